"""A block: rows of some minutes as compressed columns; samples in one body, what was said in another."""

import struct
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec

from ..decoders import make_msgpack_decoder
from ..model import Assessment, Finding, Sample
from ..text import clean_texts
from .columns import ColumnError
from .contents import Told
from .layout import StructPlan

MOST_RAW_BYTES = 32 << 20
"""No body that is written unpacks to more."""
MOST_BODY_ROWS = 1 << 16
_LEVEL = 6
DAMAGES = (ValueError, LookupError, TypeError, OverflowError, RuntimeError, struct.error)
"""What decoding of damaged bytes may raise: wrong types, text that is no UTF-8, too deep a nesting."""

Part = Literal["samples", "told"]
Names = dict[Part, tuple[str, ...]]
"""Names of the columns of each body, in order."""


class TickedSample(msgspec.Struct, frozen=True):
    """A sample and its number in the recording, by which all are ordered."""

    tick: int
    sample: Sample


class _ToldRow(msgspec.Struct, frozen=True):
    """As `Told`, with findings as MessagePack: their evidence is of any type."""

    tick: int
    time_s: float
    findings: tuple[bytes, ...]
    assessments: tuple[Assessment, ...] | None


class Body(NamedTuple):
    """Compressed columns."""

    data: bytes
    raw_bytes: int
    """How many bytes they are uncompressed."""
    rows: int


class BlockError(ValueError):
    """A body that cannot be read; caught where damage is counted, never shown by itself."""


_FINDING = make_msgpack_decoder(Finding)


@cache
def _plan_of(part: Part) -> StructPlan:
    return StructPlan("", TickedSample if part == "samples" else _ToldRow)


@cache
def list_columns() -> Names:
    """Return the names of the columns as this version writes them."""
    return {"samples": tuple(_plan_of("samples").names()), "told": tuple(_plan_of("told").names())}


def pack_samples(rows: Sequence[TickedSample]) -> Body:
    """Return samples as compressed columns."""
    return _pack("samples", rows)


def unpack_samples(body: Body, names: Names) -> list[TickedSample]:
    """Return the samples of a body, with the names of its columns as the file lists them.

    Raises:
        BlockError: It is damaged, or would unpack to more than any that is written.
    """
    return _unpack("samples", body, names)


def pack_told(rows: Sequence[Told]) -> Body:
    """Return what analyzers said as compressed columns."""
    encode = msgspec.msgpack.encode
    return _pack(
        "told",
        [_ToldRow(it.tick, it.time_s, tuple(map(encode, it.findings)), it.assessments) for it in rows],
    )


def unpack_told(body: Body, names: Names) -> list[Told]:
    """Return what analyzers said.

    Raises:
        BlockError: As `unpack_samples`.
    """
    rows: list[_ToldRow] = _unpack("told", body, names)
    try:
        return [
            Told(it.tick, it.time_s, tuple(map(_decode_finding, it.findings)), it.assessments) for it in rows
        ]
    except DAMAGES as error:
        raise BlockError(str(error)) from error


def _decode_finding(data: bytes) -> Finding:
    return clean_texts(_FINDING.decode(data))


def _pack(part: Part, rows: Sequence[msgspec.Struct]) -> Body:
    columns: list[bytes] = []
    _plan_of(part).write(rows, columns)
    lengths = struct.pack(f"<I{len(columns)}I", len(columns), *map(len, columns))
    raw = b"".join([lengths, *columns])
    return Body(zlib.compress(raw, _LEVEL), len(raw), len(rows))


def _unpack(part: Part, body: Body, names: Names) -> list[Any]:
    if not 0 <= body.rows <= MOST_BODY_ROWS:
        raise BlockError(f"{body.rows} rows")
    try:
        columns = _split(_inflate(body), names[part])
        return list(_plan_of(part).read(columns, body.rows))
    except DAMAGES as error:
        raise BlockError(str(error)) from error


def _inflate(body: Body) -> bytes:
    """Return what was compressed, never more than was announced."""
    if not 0 <= body.raw_bytes <= MOST_RAW_BYTES:
        raise BlockError(f"{body.raw_bytes} bytes")
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(body.data, body.raw_bytes + 1)
    except zlib.error as error:
        raise BlockError(str(error)) from error
    if len(raw) != body.raw_bytes or not inflater.eof:
        raise BlockError(f"{len(raw)} bytes, {body.raw_bytes} expected")
    return raw


def _split(raw: bytes, names: Sequence[str]) -> dict[str, bytes]:
    (count,) = struct.unpack_from("<I", raw)
    if count != len(names):
        raise ColumnError(f"{count} columns, {len(names)} expected")
    lengths = struct.unpack_from(f"<{count}I", raw, 4)
    at, columns = 4 + 4 * count, {}
    for name, length in zip(names, lengths, strict=True):
        columns[name] = raw[at : at + length]
        at += length
    if at != len(raw):
        raise ColumnError(f"{len(raw)} bytes, {at} expected")
    return columns
