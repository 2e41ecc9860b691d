"""Landlock: this process and its children may open only what lies under the paths that were allowed.

The numbers are those of `linux/landlock.h`; landlock(7) explains them. What is open already stays usable.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

# The same on every architecture that Linux runs on but alpha.
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_DIR = 1 << 7
MAKE_REGULAR = 1 << 8
TRUNCATE = 1 << 14
READ = READ_FILE | READ_DIR
WRITE = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REGULAR | TRUNCATE
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
# Version of Landlock: all rights on files that it knows, as a number of bits.
_KNOWN_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
_NEWEST_BITS = 16
# From version 4 on: binding and connecting TCP sockets; from 6: abstract Unix sockets and signals.
_ALL_TCP = 3
_ALL_SCOPES = 3
SCOPES_SINCE = 6
# Before, whoever may not write a file may still cut it short.
TRUNCATES_SINCE = 3


def find_version() -> int:
    """Return the version of Landlock that this kernel has; 0 without it, or where it is switched off."""
    found = _call(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    return max(0, found)


def restrict(allowed: Mapping[Path, int]) -> bool:
    """Restrict this thread, those that it starts, and its children; return whether the kernel did.

    It asks for a process that gave up privileges.

    Args:
        allowed: Rights by file or folder; one that does not exist is left out.
    """
    version = find_version()
    if version == 0:
        return False
    handled = (1 << _KNOWN_BITS.get(version, _NEWEST_BITS)) - 1
    attributes = struct.pack(
        "=QQQ", handled, _ALL_TCP if version >= 4 else 0, _ALL_SCOPES if version >= SCOPES_SINCE else 0
    )
    # An older kernel refuses fields that it does not know.
    size = 8 if version < 4 else 16 if version < SCOPES_SINCE else 24
    ruleset = _call(_CREATE_RULESET, attributes[:size], size, 0)
    if ruleset < 0:
        return False
    try:
        _allow(ruleset, allowed.items(), handled)
        return _call(_RESTRICT_SELF, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, allowed: Iterable[tuple[Path, int]], handled: int) -> None:
    for path, rights in allowed:
        with suppress(OSError):
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
                fitting = rights & handled & (-1 if is_folder else _OF_FILES)
                _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", fitting, place), 0)
            finally:
                os.close(place)


def _call(number: int, *arguments: bytes | int | None) -> int:
    words = [it if it is None or isinstance(it, bytes) else ctypes.c_long(it) for it in arguments]
    return int(ctypes.CDLL(None).syscall(ctypes.c_long(number), *words))
