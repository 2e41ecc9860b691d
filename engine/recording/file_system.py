"""Where a file lies: on a disk of this machine, or on a file system that other machines write to as well."""

import os
from pathlib import Path

_NETWORK = frozenset(
    {
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "gfs", "gfs2", "glusterfs", "gpfs", "lustre",
        "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs",
        "wekafs",
    }
)  # fmt: skip
"""Types as in /proc/filesystems whose shared memory or locks do not reach other machines."""
_LOCAL_FUSE = frozenset({"fuseblk", "fuse.fuse-overlayfs", "fuse.lxcfs"})


def find_file_system(path: Path, mounts: str | None = None) -> str | None:
    """Return the type of the file system that holds a path (`ext4`, `nfs4`), or None where it is not known.

    Args:
        path: A file or folder; it need not exist.
        mounts: What /proc/self/mountinfo says (proc(5)); read by default.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
    place = Path(os.path.realpath(path))  # `resolve` raises where links lead in a circle
    found, depth = None, -1
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        words, kinds = fields.split(), rest.split()
        if len(words) < 5 or not kinds:
            continue
        mount = Path(_unescape(words[4]))
        # Of two mounts in one place the later one hides the other.
        if len(mount.parts) >= depth and place.is_relative_to(mount):
            found, depth = kinds[0], len(mount.parts)
    return found


def is_network(kind: str | None) -> bool:
    """Return whether write-ahead logging must not be used there: its index is memory that processes share."""
    if kind is None:
        return False
    return kind in _NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)


def _unescape(text: str) -> str:
    """Return a path of mountinfo, in which space, tab, newline and backslash are octal."""
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text
