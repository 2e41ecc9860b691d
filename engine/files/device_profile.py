"""Device memory profiles of JAX: what `jax.profiler.save_device_memory_profile` writes, a pprof file.

A small reader of the parts of pprof's protocol buffers that such a file has. Everything is bounded: bytes,
fields, samples, frames. Format: github.com/google/pprof, proto/profile.proto.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from ..errors import InputFileError
from ..model.memory_snapshot import Frame
from ..units import MIB
from .base.input_file import show_path
from .base.packed_file import CHUNK_BYTES, PackedFile

LIMIT_BYTES = 256 * MIB
MOST_SAMPLES = 1_000_000
MOST_FRAMES = 200
MOST_CHARACTERS = 1000
_EXPECTED = "expected a device memory profile of JAX (jax.profiler.save_device_memory_profile)"
# Wire types of protocol buffers.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10
Field = tuple[int, "int | bytes"]


class LiveBuffers(msgspec.Struct, frozen=True):
    """Memory that lived at one place of a program on one device."""

    size_bytes: int
    count: int
    kind: str
    """`buffer` (an array), `executable` (a compiled program), or as the file says."""
    device: str
    """As JAX names it: `TFRT_CPU_0`, `gpu:0`; empty for what is on none, such as an executable."""
    frames: tuple[Frame, ...]
    """Innermost first."""


class DeviceProfile(msgspec.Struct, frozen=True):
    """One file."""

    buffers: tuple[LiveBuffers, ...]
    notes: tuple[str, ...] = ()


def is_device_profile(path: Path) -> bool:
    """Return whether a file begins as such a profile does; a file that cannot be read is refused later."""
    try:
        file = PackedFile(path)
        try:
            return begins_device_profile(file.read(CHUNK_BYTES))
        finally:
            file.close()
    except (InputFileError, OSError):
        return False


def begins_device_profile(head: bytes) -> bool:
    """Return whether bytes begin with the type of a column: two places in the table of texts."""
    try:
        number, value = next(read_fields(head), (0, 0))
        parts = dict(read_fields(value)) if number == 1 and isinstance(value, bytes) else {}
    except InputFileError:
        return False
    return (
        0 < len(parts) <= 2 and parts.keys() <= {1, 2} and all(isinstance(it, int) for it in parts.values())
    )


def read_device_profile(path: Path) -> DeviceProfile:
    """Read a profile, compressed by gzip or not.

    Raises:
        InputFileError: It cannot be read, or is no such profile.
    """
    file = PackedFile(path)
    data = bytearray()
    try:
        while len(data) <= LIMIT_BYTES and (chunk := file.read(CHUNK_BYTES)):
            data += chunk
    finally:
        file.close()
    if len(data) > LIMIT_BYTES:
        raise InputFileError(f"{show_path(path)}: more than {LIMIT_BYTES // MIB} MiB unpacked; {_EXPECTED}")
    try:
        return parse_device_profile(bytes(data))
    except InputFileError as error:
        raise InputFileError(f"{show_path(path)}: {error}; {_EXPECTED}") from error


class _Profile:
    """The messages of a profile, as they stand in the file."""

    def __init__(self, data: bytes) -> None:
        self.types: list[bytes] = []
        self.samples: list[bytes] = []
        self.locations: dict[int, bytes] = {}
        self.functions: dict[int, tuple[int, int]] = {}
        self.texts: list[str] = []
        self._frames: dict[int, tuple[Frame, ...]] = {}
        for number, value in read_fields(data):
            if not isinstance(value, bytes):
                continue
            if number == 1:
                self.types.append(value)
            elif number == 2:
                self.samples.append(value)
            elif number == 4:
                self.locations[_first(value, 1)] = value
            elif number == 5:
                self.functions[_first(value, 1)] = _first(value, 2), _first(value, 4)
            elif number == 6:
                self.texts.append(value.decode("utf-8", "replace")[:MOST_CHARACTERS])
            if len(self.samples) > MOST_SAMPLES:
                raise InputFileError(f"more than {MOST_SAMPLES:,} samples")

    def text(self, index: int) -> str:
        if not 0 <= index < len(self.texts):
            raise InputFileError(f"text {index} is missing")
        return self.texts[index]

    def frames(self, location: int) -> tuple[Frame, ...]:
        """Return the newest calls of a location, which many samples share."""
        found = self._frames.get(location)
        if found is None:
            found = self._frames[location] = tuple(islice(self._read_frames(location), MOST_FRAMES))
        return found

    def _read_frames(self, location: int) -> Iterator[Frame]:
        message = self.locations.get(location)
        if message is None:
            raise InputFileError(f"location {location} is missing")
        for number, value in read_fields(message):
            if number == 4 and isinstance(value, bytes):
                name, filename = self.functions.get(_first(value, 1), (0, 0))
                yield Frame(self.text(filename), _first(value, 2), self.text(name))


def parse_device_profile(data: bytes) -> DeviceProfile:
    """Return the profile in the bytes of an uncompressed file.

    Raises:
        InputFileError: They are something else; it does not name the file.
    """
    profile = _Profile(data)
    if not profile.texts or profile.texts[0]:
        raise InputFileError("no table of texts that begins with an empty one")
    units = [(profile.text(_first(it, 1)), profile.text(_first(it, 2))) for it in profile.types]
    sizes = [at for at, (_, unit) in enumerate(units) if unit == "bytes"]
    counts = [at for at, (_, unit) in enumerate(units) if unit == "count"]
    if not sizes:
        raise InputFileError("no column of bytes")
    found = []
    negative = 0
    for sample in profile.samples:
        buffers = _read_sample(profile, sample, sizes[0], counts[0] if counts else None)
        if buffers.size_bytes < 0:
            negative += 1
        else:
            found.append(buffers)
    notes = (f"{negative:,} samples of less than 0 bytes were left out",) if negative else ()
    return DeviceProfile(tuple(sorted(found, key=lambda it: -it.size_bytes)), notes)


def _read_sample(profile: _Profile, sample: bytes, size_at: int, count_at: int | None) -> LiveBuffers:
    locations: list[int] = []
    values: list[int] = []
    labels: dict[str, str] = {}
    for number, value in read_fields(sample):
        if number == 1:
            locations += _numbers(value)
        elif number == 2:
            values += [it - (1 << 64) if it >= 1 << 63 else it for it in _numbers(value)]
        elif number == 3 and isinstance(value, bytes):
            labels[profile.text(_first(value, 1))] = profile.text(_first(value, 2))
    if size_at >= len(values) or (count_at is not None and count_at >= len(values)):
        raise InputFileError("a sample has fewer values than there are columns")
    frames: list[Frame] = []
    for location in locations:
        frames += profile.frames(location)
        if len(frames) >= MOST_FRAMES:
            break
    return LiveBuffers(
        size_bytes=values[size_at],
        count=1 if count_at is None else max(0, values[count_at]),
        kind=labels.get("kind", "buffer"),
        device=labels.get("device", ""),
        frames=tuple(frames[:MOST_FRAMES]),
    )


def _numbers(value: "int | bytes") -> list[int]:
    """Return a repeated number, packed or not."""
    if isinstance(value, int):
        return [value]
    numbers = []
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        numbers.append(number)
    return numbers


def _first(message: bytes, wanted: int) -> int:
    """Return the number of a field; 0, the default of protocol buffers, where it is missing."""
    return next((it for number, it in read_fields(message) if number == wanted and isinstance(it, int)), 0)


def read_fields(message: bytes) -> Iterator[Field]:
    """Yield number and value of each field of a protocol buffer.

    Raises:
        InputFileError: A field has an unknown type, or ends behind the message.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32, _BYTES):
            length, at = _varint(message, at) if kind == _BYTES else (8 if kind == _FIXED64 else 4, at)
            if length > len(message) - at:
                raise InputFileError("a field ends behind its message")
            value = message[at : at + length]
            at += length
        else:
            raise InputFileError(f"a field of type {kind}")
        if number == 0:
            raise InputFileError("a field has no number")
        yield number, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, and where it ends."""
    number = 0
    for place in range(_MOST_VARINT_BYTES):
        if at + place >= len(message):
            break
        byte = message[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number & ((1 << 64) - 1), at + place + 1
    raise InputFileError("a number has no end")
