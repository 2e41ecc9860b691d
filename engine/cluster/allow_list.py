"""Which keys this user allows: each a public key, what its holder may do, and the name it is known by."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple, TypeGuard, get_args

from ..errors import InputFileError, UsageError
from .keys import KEY_DIGITS, parse_key
from .private_files import read_private, write_private

Role = Literal["viewer", "controller", "worker", "node"]
"""`viewer` reads; `controller` acknowledges, mutes and asks processes too; `worker` reads and sends findings.
A `node` may do nothing here: it is an agent elsewhere, which viewers of this user trust by its key."""
ROLES: tuple[Role, ...] = get_args(Role)
MOST_KEYS = 1000
ALLOW_LIST_NAME = "allowed"
_MOST_FILE_BYTES = 256 * 1024
_NAME = re.compile(r"[\w.@:*?\[\]%+-]{1,100}", re.ASCII)
_HEAD = (
    "# Keys that vramscope allows: role, public key, name. Written by `vramscope keys allow` and `revoke`.\n"
)


class AllowedKey(NamedTuple):
    """One key and what its holder may do."""

    role: Role
    public: bytes
    name: str
    """Of a node: the host as viewers type it, or a pattern such as `n*`."""


class AllowList:
    """The keys of one user's list, in its order.

    Args:
        keys: The keys; of two entries for one holder, or for one node by its name, the later counts.
    """

    def __init__(self, keys: Iterable[AllowedKey] = ()) -> None:
        self.keys = tuple({_slot(it): it for it in keys}.values())
        self._roles = {it.public: it.role for it in self.keys if it.role != "node"}

    def role_of(self, public: bytes) -> Role | None:
        """Return what the holder of a key may do at an agent here; None for nothing."""
        return self._roles.get(public)

    def key_of_node(self, *names: str) -> bytes | None:
        """Return the key of the agent that has one of these names, of the first entry that fits."""
        nodes = [it for it in self.keys if it.role == "node"]
        return next((it.public for it in nodes if any(fnmatchcase(name, it.name) for name in names)), None)

    def allow(self, key: AllowedKey) -> "AllowList":
        """Return the list with one more key, or with another role and name for it.

        Raises:
            UsageError: The name is taken or cannot be written, or there are too many keys.
        """
        check_name(key.name)
        others = [it for it in self.keys if _slot(it) != _slot(key)]
        if any(it.name == key.name and it.role != "node" for it in others) and key.role != "node":
            raise UsageError(
                f"{key.name} names another key already: choose another name, or type "
                f"`vramscope keys revoke {key.name}` first"
            )
        if len(others) >= MOST_KEYS:
            raise UsageError(f"{MOST_KEYS} keys are allowed already, and no more are kept: revoke some")
        return AllowList([*others, key])

    def revoke(self, word: str) -> tuple["AllowList", tuple[AllowedKey, ...]]:
        """Return the list without the keys of a name, or without one key, and what was taken from it."""
        public = parse_key(word)
        gone = tuple(it for it in self.keys if word == it.name or public == it.public)
        return AllowList(it for it in self.keys if it not in gone), gone


def _slot(key: AllowedKey) -> tuple[bool, bytes | str]:
    """Return what there is one entry of: the key of a holder, the name of a node."""
    is_node = key.role == "node"
    return is_node, key.name if is_node else key.public


def check_name(name: str) -> None:
    """Refuse a name that could not be read back from the list.

    Raises:
        UsageError: It is empty, too long, or has other characters than letters, digits and a few signs.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"name {name!r}: expected up to 100 letters, digits and signs of . @ : * ? [ ] % + - _"
        )
    if parse_key(name) is not None:
        raise UsageError(f"name {name}: it reads as a key; choose a word")


def read_allow_list(folder: Path) -> AllowList:
    """Return the keys that are allowed; none where there is no list.

    Raises:
        InputFileError: The list is open to others, somebody else's, or a line of it is wrong.
    """
    path = folder / ALLOW_LIST_NAME
    lines = (read_private(path, _MOST_FILE_BYTES) or "").splitlines()
    return AllowList(
        _read_line(f"{path}:{number}", line)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    )


def save_allow_list(allowed: AllowList, folder: Path) -> None:
    """Replace the list.

    Raises:
        InputFileError: The folder is open to others or somebody else's.
        OutputFileError: The file cannot be written.
    """
    lines = (f"{it.role} {it.public.hex()} {it.name}\n" for it in allowed.keys)
    write_private(folder / ALLOW_LIST_NAME, _HEAD + "".join(lines))


def _read_line(where: str, line: str) -> AllowedKey:
    words = line.split()
    if len(words) != 3:
        raise InputFileError(f"{where}: expected three words: a role, a public key, a name")
    role, key, name = words
    public = parse_key(key)
    if not _is_role(role):
        raise InputFileError(f"{where}: role {role!r}: expected {', '.join(ROLES)}")
    if public is None:
        raise InputFileError(f"{where}: expected a public key of {KEY_DIGITS} hexadecimal digits")
    try:
        check_name(name)
    except UsageError as error:
        raise InputFileError(f"{where}: {error}") from error
    return AllowedKey(role, public, name)


def _is_role(word: str) -> TypeGuard[Role]:
    return word in ROLES
