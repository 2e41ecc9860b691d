"""The wire format of protocol buffers, for the few messages that are read without generated code.

Format: protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator

_VARINT = 0
_FIXED64 = 1
_BYTES = 2
_FIXED32 = 5
_MOST_VARINT_BYTES = 10
_SIZES_BYTES = {_FIXED64: 8, _FIXED32: 4}


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field; texts, messages and numbers of a fixed size are bytes.

    Raises:
        ValueError: A field has an unknown type or no number, or ends behind the message.
    """
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        number = key >> 3
        kind = key & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _read_varint(message, at)
        elif kind == _BYTES or kind in _SIZES_BYTES:
            length, at = _read_varint(message, at) if kind == _BYTES else (_SIZES_BYTES[kind], at)
            if length > len(message) - at:
                raise ValueError("a field ends behind its message")
            value = message[at : at + length]
            at += length
        else:
            raise ValueError(f"a field of type {kind}")
        if number == 0:
            raise ValueError("a field has no number")
        yield number, value


def read_parts(message: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the texts or messages of one field, which may be repeated."""
    return (value for number, value in read_fields(message) if number == wanted and isinstance(value, bytes))


def read_numbers(value: int | bytes) -> list[int]:
    """Return a repeated number, packed or not."""
    if isinstance(value, int):
        return [value]
    numbers = []
    at = 0
    while at < len(value):
        number, at = _read_varint(value, at)
        numbers.append(number)
    return numbers


def first_number(message: bytes, wanted: int) -> int:
    """Return the number of a field; 0, the default of protocol buffers, where it is missing."""
    return next((it for number, it in read_fields(message) if number == wanted and isinstance(it, int)), 0)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number of up to 64 bits in groups of seven, the lowest first, and where it ends."""
    number = 0
    for place in range(_MOST_VARINT_BYTES):
        if at + place >= len(message):
            break
        byte = message[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number & ((1 << 64) - 1), at + place + 1
    raise ValueError("a number has no end")
