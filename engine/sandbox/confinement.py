"""What a process that reads files of others may still do, as far as the kernel can forbid the rest."""

import ctypes
import os
import site
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..child_processes import find_root
from . import landlock, seccomp

_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION = 0x20080522
# CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER: files of any user.
_OF_FILES = 0b1110
# Programs, libraries, time zones, fonts and terminals; nothing of a person's is there.
_SYSTEM = (
    *("/usr", "/lib", "/lib64", "/bin", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/terminfo", "/etc/fonts", "/var/cache/fontconfig"),
    # Other processes keep their secrets: the kernel lets nobody look into them from inside.
    *("/proc", "/sys/devices/system"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
)


class Protection(NamedTuple):
    """What this kernel can forbid a process."""

    # 0 without it.
    landlock_version: int
    has_seccomp: bool

    @property
    def is_whole(self) -> bool:
        """Whether files, sockets, programs and other processes are all out of reach."""
        return self.landlock_version >= landlock.TRUNCATES_SINCE and self.has_seccomp


def find_protection() -> Protection:
    return Protection(landlock.find_version(), _find_machine() is not None and seccomp.is_available())


def confine(reads: Iterable[Path], writes: Iterable[Path], *, scratch: Path) -> None:
    """Leave this process only what reading, computing and writing a result need, as far as the kernel can.

    It can read Python's and the system's files, and start Python, which is confined alike. There is no way
    back. It must be the only thread.

    Args:
        reads: Files and folders to read.
        writes: Files and folders to read and write.
        scratch: Folder of its temporary files. Somebody else removes it at the end.
    """
    _give_up_privileges()
    rights = dict.fromkeys(map(Path, _SYSTEM), landlock.READ)
    rights |= dict.fromkeys(_list_code(), landlock.READ)
    rights |= dict.fromkeys(reads, landlock.READ)
    rights[Path(os.devnull)] = landlock.READ_FILE | landlock.WRITE_FILE
    rights |= dict.fromkeys(_list_programs(), landlock.READ | landlock.EXECUTE)
    rights |= dict.fromkeys((*writes, scratch), landlock.WRITE)
    # An older Landlock does not watch over signals.
    is_scoped = landlock.restrict(rights) and landlock.find_version() >= landlock.SCOPES_SINCE
    machine = _find_machine()
    if machine is not None:
        seccomp.install(seccomp.assemble_for_reading(machine, signals_of=None if is_scoped else os.getpid()))


def confine_decoder() -> None:
    """Leave this process only its memory and what it has open, as far as the kernel can."""
    _give_up_privileges()
    landlock.restrict({})
    machine = _find_machine()
    if machine is not None:
        seccomp.install(seccomp.assemble_for_decoding(machine))


def _give_up_privileges() -> None:
    """Give up what root may do but to files, and let no program gain rights, as by setuid.

    The kernel confines nobody who could gain rights. Root might look into other processes.
    """
    library = ctypes.CDLL(None)
    library.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # `capget` and `capset`: effective, permitted and inheritable, each in two words of 32 bits.
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION, 0), 8)
    sets = ctypes.create_string_buffer(24)
    if library.capget(header, sets) == 0:
        effective, permitted, inheritable, *_ = struct.unpack("=6I", sets.raw)
        kept = (effective & _OF_FILES, permitted & _OF_FILES, inheritable & _OF_FILES, 0, 0, 0)
        library.capset(header, struct.pack("=6I", *kept))


def _find_machine() -> seccomp.Machine | None:
    """Return the architecture of this process, if there is a filter for it."""
    name = os.uname().machine
    if struct.calcsize("P") != 8 or sys.byteorder != "little":
        return None
    if name == "x86_64":
        return "x86_64"
    return "aarch64" if name == "aarch64" else None


def _list_code() -> list[Path]:
    """Return from where Python imports, also where packages there are links to elsewhere."""
    places = [sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), *sys.path]
    folders = list(dict.fromkeys(Path(it) for it in places if it.startswith("/")))
    links: list[Path] = []
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            links += [Path(entry.path) for entry in entries if entry.is_symlink()]
    return [find_root(), *folders, *links]


def _list_programs() -> list[Path]:
    """Return Python, and the loader of its libraries, which counts as a program too."""
    programs = [Path(sys.executable)]
    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
        mapped = {line.partition("/")[2] for line in lines}
        programs += [Path(f"/{it}") for it in mapped if it.rpartition("/")[2].startswith("ld")]
    return programs
