"""What the decoding process hands back: MessagePack, with columns as bytes."""

from array import array

import msgspec

from ...model.memory_snapshot import IntColumn, MemorySnapshot

GZIP_MARK = b"\x1f\x8b"
"""How a compressed file begins (RFC 1952)."""


class Reply(msgspec.Struct, frozen=True):
    """A snapshot, or why there is none."""

    snapshot: MemorySnapshot | None = None
    refusal: str | None = None
    is_out_of_memory: bool = False


def encode_reply(reply: Reply) -> bytes:
    """Return a reply as bytes."""
    return msgspec.msgpack.encode(reply, enc_hook=_encode_column)


def decode_reply(data: bytes) -> Reply:
    """Return the reply that bytes hold.

    Raises:
        msgspec.DecodeError: They hold none, or only a part of one.
    """
    return msgspec.msgpack.decode(data, type=Reply, dec_hook=_decode_column)


def _encode_column(value: object) -> object:
    if isinstance(value, array):
        return value.typecode, memoryview(value).cast("B")
    raise NotImplementedError


def _decode_column(kind: type, value: tuple[str, bytes]) -> IntColumn:
    typecode, data = value
    column = array(typecode)
    column.frombytes(data)
    return column
