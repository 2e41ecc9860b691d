"""Whether a file descriptor still is the one that was opened: a program may close what it does not know."""

from __future__ import annotations

import os


def identify(descriptor: int) -> tuple[int, int] | None:
    """Return device and inode of what a descriptor stands for, or None where it stands for nothing.

    Args:
        descriptor: As the system numbers it.
    """
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_still(descriptor: int, identity: tuple[int, int] | None) -> bool:
    """Tell whether a descriptor stands for what it stood for when it was identified.

    A program that closes every descriptor it does not know, as daemons do, gets the same numbers for the
    files that it opens next: ours by number, and its own.

    Args:
        descriptor: As the system numbers it.
        identity: What `identify` said of it.
    """
    return identity is not None and identify(descriptor) == identity
