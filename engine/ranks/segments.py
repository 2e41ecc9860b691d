"""Segment maps on their way: put together from a probe's parts, carried packed, unpacked by who draws them.

A hub never looks inside: a process that packs nonsense, or very much, costs the hub neither time nor memory.
"""

import base64
import binascii
import zlib

import msgspec

from ..errors import WireError
from ..model import LiveStack, Segment, SegmentMap
from .messages import ModulesPart, ProbedSegments, SegmentsPart

MAX_PARTS = 256
MAX_PACKED_BYTES = 8 * 1024**2
MAX_UNPACKED_BYTES = 32 * 1024**2

_CONTENT = msgspec.json.Decoder(ProbedSegments)


class PackedSegments(msgspec.Struct, frozen=True):
    """The segment map of one process as its probe packed it."""

    node: str
    pid: int
    device_uuid: str | None
    data: bytes
    """The zlib-compressed JSON of a `ProbedSegments`."""


class PartAssembly:
    """The parts of one answer, in whatever order they come.

    Args:
        what: Name of the answer, as it shall stand in what is wrong with it.
    """

    def __init__(self, what: str = "a segment map") -> None:
        self._what = what
        self._pieces: dict[int, str] = {}
        self._parts: int | None = None
        self._chars = 0

    def add(self, part: SegmentsPart | ModulesPart) -> bytes | None:
        """Take one part; return the packed answer once it is whole.

        Raises:
            WireError: The parts do not fit together, or are too many.
        """
        if self._parts is None:
            self._parts = part.parts
        if part.parts != self._parts or not part.part < part.parts <= MAX_PARTS:
            raise WireError(f"sent part {part.part} of {part.parts} of {self._what}; at most {MAX_PARTS} fit")
        self._chars += len(part.data) - len(self._pieces.get(part.part, ""))
        if self._chars > MAX_PACKED_BYTES * 4 // 3:
            raise WireError(f"sent {self._what} of more than {MAX_PACKED_BYTES} bytes")
        self._pieces[part.part] = part.data
        if len(self._pieces) < part.parts:
            return None
        try:
            return base64.b64decode("".join(self._pieces[n] for n in range(part.parts)), validate=True)
        except (binascii.Error, ValueError) as error:
            raise WireError(f"sent {self._what} that is no base64: {error}") from error


def unpack_segments(packed: PackedSegments) -> SegmentMap:
    """Return the segment map that a probe packed.

    Raises:
        WireError: It is not what it should be, or larger than `MAX_UNPACKED_BYTES`.
    """
    content = _decode(packed)
    return SegmentMap(
        node=packed.node,
        pid=packed.pid,
        device_uuid=packed.device_uuid,
        time_s=content.time_s,
        segments=tuple(
            Segment(address, total, "large" if pool else "small", stream, blocks, is_expandable, is_private)
            for address, total, pool, stream, is_expandable, is_private, blocks in content.segments
        ),
        segments_left_out=content.left_out,
        live_stacks=tuple(LiveStack(*stack) for stack in content.live_stacks),
        is_at_step_end=content.is_at_step_end,
    )


def _decode(packed: PackedSegments) -> ProbedSegments:
    where = f"the segment map of process {packed.pid}"
    text = inflate(packed.data, where)
    try:
        return _CONTENT.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"{where} cannot be read: {error}") from error


def inflate(data: bytes, where: str) -> bytes:
    """Return what a probe has packed.

    Args:
        data: Of zlib.
        where: What it is, for what is wrong with it.

    Raises:
        WireError: It is no such data, cut short, or larger than `MAX_UNPACKED_BYTES`.
    """
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(data, MAX_UNPACKED_BYTES)
    except zlib.error as error:
        raise WireError(f"{where} cannot be read: {error}") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise WireError(f"{where} is cut short, or larger than {MAX_UNPACKED_BYTES} bytes")
    return text
