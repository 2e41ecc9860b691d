"""The memory limit of our own control group, version 2 or 1: what a container may use of its host.

Formats: the kernel's documents `admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst`, and mountinfo(5).
"""

from pathlib import Path
from typing import NamedTuple

import msgspec


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


def read_cgroup_memory(hierarchies: list[MountedCgroup], host_total_bytes: int | None) -> CgroupMemory | None:
    """Return the tightest limit from our group upward; None where none is below the host's memory.

    Args:
        hierarchies: What `find_memory_cgroups` returned.
        host_total_bytes: The host's memory; version 1 says "no limit" by a number far above it.
    """
    tightest: tuple[int, Path, MountedCgroup] | None = None
    for hierarchy in hierarchies:
        names = _V2 if hierarchy.is_v2 else _V1
        for folder in _upward(hierarchy.folder, hierarchy.mount):
            limit = _read_number(folder / names.limit)
            if limit is None or (host_total_bytes is not None and limit >= host_total_bytes):
                continue
            if tightest is None or limit < tightest[0]:
                tightest = limit, folder, hierarchy
    if tightest is None:
        return None
    limit, folder, hierarchy = tightest
    return CgroupMemory(
        limit_bytes=limit,
        used_bytes=_read_used(folder, _V2 if hierarchy.is_v2 else _V1),
        swap_limit_bytes=_read_number(folder / "memory.swap.max") if hierarchy.is_v2 else None,
        swap_used_bytes=_read_number(folder / "memory.swap.current") if hierarchy.is_v2 else None,
    )


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
        fields, kinds = left.split(" "), right.split(" ")
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


def _read_used(folder: Path, names: _Names) -> int | None:
    used = _read_number(folder / names.used)
    if used is None:
        return None
    try:
        text = (folder / "memory.stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return used
    return max(0, used - parse_memory_stat(text).get(names.droppable, 0))


def parse_memory_stat(text: str) -> dict[str, int]:
    """Return the figures of a file `memory.stat`, lines of `name number`; other lines are passed over."""
    figures: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.isascii() and number.isdigit():
            figures[name] = int(number)
    return figures


def _read_number(path: Path) -> int | None:
    """Return the number in a file; None for `max`, and where there is no such file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


def _unescape(path: str) -> str:
    """Undo mountinfo's octal escapes of space, tab, newline and backslash."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path
