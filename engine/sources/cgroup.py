"""The memory limit of our own control group, version 2 or 1: what a container may use of its host.

Formats: the kernel's documents `admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst`, and mountinfo(5).
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from .kept_file import KeptFile

MOST_STAT_BYTES = 8192


class CgroupMemory(msgspec.Struct, frozen=True):
    """Memory of the tightest group above this process, in bytes."""

    limit_bytes: int
    used_bytes: int | None
    """In use, less the page cache that the kernel drops first."""
    swap_limit_bytes: int | None = None
    swap_used_bytes: int | None = None


class _Names(NamedTuple):
    """What the files of one version of the memory controller are called."""

    limit: str
    used: str
    droppable: str
    """Line of `memory.stat` with the inactive page cache, descendants included."""


_V2 = _Names("memory.max", "memory.current", "inactive_file")
_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


class MountedCgroup(NamedTuple):
    """One mounted hierarchy that has the memory controller."""

    folder: Path
    """Our own group within it."""
    mount: Path
    is_v2: bool


class _Group:
    """The open files of one control group."""

    def __init__(self, folder: Path, *, is_v2: bool) -> None:
        names = _V2 if is_v2 else _V1
        self.limit = KeptFile(f"{folder}/{names.limit}")
        self._used = KeptFile(f"{folder}/{names.used}")
        self._stat = KeptFile(f"{folder}/memory.stat", MOST_STAT_BYTES)
        self._droppable = names.droppable.encode()
        self._swap_limit = KeptFile(f"{folder}/memory.swap.max") if is_v2 else None
        self._swap_used = KeptFile(f"{folder}/memory.swap.current") if is_v2 else None

    def read(self, limit_bytes: int) -> CgroupMemory:
        """Return what the group uses beside its limit."""
        return CgroupMemory(
            limit_bytes=limit_bytes,
            used_bytes=self._read_used(),
            swap_limit_bytes=_read_number(self._swap_limit),
            swap_used_bytes=_read_number(self._swap_used),
        )

    def _read_used(self) -> int | None:
        used = _read_number(self._used)
        text = None if used is None else self._stat.read()
        if used is None or text is None:
            return used
        return max(0, used - find_memory_stat(text, self._droppable))


class CgroupReader:
    """Reads the tightest limit from our group upward.

    Args:
        hierarchies: What `find_memory_cgroups` returned.
    """

    def __init__(self, hierarchies: list[MountedCgroup]) -> None:
        self._groups = [
            _Group(folder, is_v2=hierarchy.is_v2)
            for hierarchy in hierarchies
            for folder in _upward(hierarchy.folder, hierarchy.mount)
        ]

    def read(self, host_total_bytes: int | None) -> CgroupMemory | None:
        """Return the tightest limit and its use; None where none is below the host's memory.

        Args:
            host_total_bytes: The host's memory; version 1 says "no limit" by a number far above it.
        """
        tightest: tuple[int, _Group] | None = None
        for group in self._groups:
            limit = _read_number(group.limit)
            if limit is None or (host_total_bytes is not None and limit >= host_total_bytes):
                continue
            if tightest is None or limit < tightest[0]:
                tightest = limit, group
        return None if tightest is None else tightest[1].read(tightest[0])


def find_memory_cgroups(root: Path = Path("/")) -> list[MountedCgroup]:
    """Return our own group in every mounted hierarchy with the memory controller.

    Args:
        root: Where the machine's /proc and its mounts are found.
    """
    try:
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
        mounts = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    path_v1, path_v2 = parse_cgroup_paths(groups)
    found: list[MountedCgroup] = []
    for is_v2, mount_root, mount_point in parse_cgroup_mounts(mounts):
        path = path_v2 if is_v2 else path_v1
        if path is None:
            continue
        mount = root / mount_point.lstrip("/")
        folder = mount / _path_below(path, mount_root)
        found.append(MountedCgroup(folder if folder.is_dir() else mount, mount, is_v2))
    return found


def parse_cgroup_paths(text: str) -> tuple[str | None, str | None]:
    """Return our group's path in version 1's memory hierarchy and in version 2's, from /proc/self/cgroup."""
    path_v1 = path_v2 = None
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/"):
            continue
        if number == "0" and not controllers:
            path_v2 = path
        elif "memory" in controllers.split(","):
            path_v1 = path
    return path_v1, path_v2


def parse_cgroup_mounts(text: str) -> list[tuple[bool, str, str]]:
    """Return (is version 2, root within the hierarchy, mount point) of each mount in /proc/self/mountinfo."""
    mounts: list[tuple[bool, str, str]] = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        kinds = right.split(" ")
        if not separator or len(fields) < 5:
            continue
        is_v1_memory = kinds[0] == "cgroup" and "memory" in kinds[-1].split(",")
        if kinds[0] == "cgroup2" or is_v1_memory:
            mounts.append((kinds[0] == "cgroup2", _unescape(fields[3]), _unescape(fields[4])))
    return mounts


def _path_below(path: str, mount_root: str) -> str:
    """Return a group's path below a mount that may show only part of the hierarchy, as in a container."""
    base = mount_root.rstrip("/")
    if ".." in path.split("/") or (base and path != base and not path.startswith(f"{base}/")):
        return ""
    return path[len(base) :].lstrip("/")


def _upward(folder: Path, mount: Path) -> list[Path]:
    folders = [folder]
    while folders[-1] != mount and mount in folders[-1].parents:
        folders.append(folders[-1].parent)
    return folders


def find_memory_stat(text: bytes, name: bytes) -> int:
    """Return one figure of a file `memory.stat`, lines of `name number`; 0 where it is not there."""
    _, found, rest = (b"\n" + text).partition(b"\n" + name + b" ")
    number = rest.partition(b"\n")[0]
    return int(number) if found and number.isdigit() else 0


def _read_number(file: KeptFile | None) -> int | None:
    """Return the number in a file; None for `max`, and where there is no such file."""
    text = None if file is None else file.read()
    return int(text) if text is not None and text.strip().isdigit() else None


def _unescape(path: str) -> str:
    """Undo mountinfo's octal escapes of space, tab, newline and backslash."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path
