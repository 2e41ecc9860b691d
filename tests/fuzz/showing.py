"""Whether what was read is also shown. That takes longer than reading, and is done for a share of inputs."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

# The same inputs each time, so that what was found is found again.
_SHARE = 16
_is_all = False


def is_shown(data: bytes) -> bool:
    return _is_all or zlib.crc32(data) % _SHARE == 0


@contextmanager
def showing_all() -> Iterator[None]:
    """Show everything that is read within, as replays do."""
    global _is_all  # noqa: PLW0603 - targets are plain functions
    before, _is_all = _is_all, True
    try:
        yield
    finally:
        _is_all = before
