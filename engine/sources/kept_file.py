"""A file of the kernel that stays open: reading it again costs one system call instead of four."""

import os


class KeptFile:
    """Reads a file of /proc or of a control group anew on every call.

    A control group that was removed refuses to be read; the file is opened anew then, and is absent if it
    still cannot be read.

    Args:
        path: Where the file is, or will be.
        most_bytes: How much of its beginning to read.
    """

    def __init__(self, path: str, most_bytes: int = 4096) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._descriptor: int | None = None

    def read(self) -> bytes | None:
        """Return the file's beginning as it is now; None where it cannot be read."""
        if self._descriptor is not None:
            try:
                return os.pread(self._descriptor, self._most_bytes, 0)
            except OSError:
                self.close()
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._descriptor, self._most_bytes, 0)
        except OSError:
            self.close()
            return None

    def close(self) -> None:
        """Give the descriptor back; the next reading opens the file again."""
        descriptor = self._descriptor
        self._descriptor = None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()
