"""Messages on a pipe: each after its length in bytes, an unsigned 32-bit number, the highest byte first."""

import struct

from ..errors import WireError

HELLO = b"vramscope bridge 1\n"
"""What a bridge says first. Whatever precedes it was printed by the shell that started it."""
MOST_BEFORE_HELLO_BYTES = 64 * 1024

_LENGTH = struct.Struct("!I")


def frame(message: bytes) -> bytes:
    """Return a message as it goes through a pipe."""
    return _LENGTH.pack(len(message)) + message


class FrameReader:
    """Puts messages together again from the pieces in which a pipe yields them.

    Args:
        limit_bytes: Largest message.
        awaits_hello: Whether the other end greets first.
    """

    def __init__(self, limit_bytes: int, *, awaits_hello: bool = False) -> None:
        self.has_greeted = not awaits_hello
        """Whether messages follow from here on."""
        self._limit_bytes = limit_bytes
        self._left = bytearray()

    def take(self, data: bytes) -> list[bytes]:
        """Return the messages that are whole with this piece; an empty one is a sign of life.

        Raises:
            WireError: There is no greeting, or a message is too large.
        """
        self._left += data
        if not (self.has_greeted or self._find_hello()):
            return []
        found = []
        at = 0
        while len(self._left) - at >= _LENGTH.size:
            length = self._read_length(at)
            end = at + _LENGTH.size + length
            if end > len(self._left):
                break
            found.append(bytes(self._left[at + _LENGTH.size : end]))
            at = end
        del self._left[:at]
        return found

    def _read_length(self, at: int) -> int:
        (length,) = _LENGTH.unpack_from(self._left, at)
        if length > self._limit_bytes:
            raise WireError(f"a message of {length} bytes: expected at most {self._limit_bytes}")
        return int(length)

    def _find_hello(self) -> bool:
        at = self._left.find(HELLO)
        if at >= 0:
            del self._left[: at + len(HELLO)]
            self.has_greeted = True
        elif len(self._left) > MOST_BEFORE_HELLO_BYTES:
            raise WireError("no greeting of vramscope in what came")
        return self.has_greeted
