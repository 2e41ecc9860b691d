"""One at a time changes the keys of a user: whoever else would, waits for it."""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import OutputFileError
from .private_files import make_private_folder

LOCK_NAME = ".lock"
WITHIN_S = 10.0
"""A change takes milliseconds, on a slow file server seconds."""
_RETRY_S = 0.02
_CANNOT_LOCK = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""Told by file systems that know no locks, such as NFS without its lock service."""


@contextmanager
def lock_keys(folder: Path, tell: Callable[[str], None], *, within_s: float = WITHIN_S) -> Iterator[None]:
    """Read and write the keys of a folder while nobody else does, on this node or another that shares it.

    Args:
        folder: Of the keys; made where it is missing.
        tell: Told in one sentence where the file system cannot lock; the change is made nevertheless.
        within_s: How long to wait for others.

    Raises:
        InputFileError: The folder is open to others or somebody else's.
        OutputFileError: The lock cannot be written, or somebody holds it for longer than that.
    """
    path = folder / LOCK_NAME
    make_private_folder(folder)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise OutputFileError(f"{path}: {error.strerror or error}") from error
    try:
        _wait(descriptor, path, tell, time.monotonic() + within_s)
        yield
    finally:
        os.close(descriptor)  # which gives the lock back


def _wait(descriptor: int, path: Path, tell: Callable[[str], None], end_s: float) -> None:
    while True:
        try:
            # Of the open file, not of the process; NFS makes a lock of its server of it.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end_s:
                raise OutputFileError(
                    f"{path}: another `vramscope keys` has been changing the keys all the time: look for it, "
                    "then type this again"
                ) from None
            time.sleep(_RETRY_S)
        except OSError as error:
            if error.errno not in _CANNOT_LOCK:
                raise OutputFileError(f"{path}: {error.strerror or error}") from error
            tell("the file system of your keys cannot lock: change them in one place at a time")
            return
        else:
            return
