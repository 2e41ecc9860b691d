"""Device memory profiles of JAX: what `jax.profiler.save_device_memory_profile` writes, a pprof file.

A small reader of the parts of pprof's messages that such a file has. Everything is bounded: bytes, samples,
frames. Format: github.com/google/pprof, proto/profile.proto.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from ..errors import InputFileError
from ..model.memory_snapshot import Frame
from ..protobuf import first_number, read_fields, read_numbers
from ..units import MIB
from .base.input_file import show_path
from .base.packed_file import CHUNK_BYTES, PackedFile

LIMIT_BYTES = 256 * MIB
MOST_SAMPLES = 1_000_000
MOST_FRAMES = 200
MOST_CHARACTERS = 1000
_EXPECTED = "expected a device memory profile of JAX (jax.profiler.save_device_memory_profile)"


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
    except ValueError:
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
                self.locations[first_number(value, 1)] = value
            elif number == 5:
                self.functions[first_number(value, 1)] = first_number(value, 2), first_number(value, 4)
            elif number == 6:
                self.texts.append(value.decode("utf-8", "replace")[:MOST_CHARACTERS])
            if len(self.samples) > MOST_SAMPLES:
                raise ValueError(f"more than {MOST_SAMPLES:,} samples")

    def text(self, index: int) -> str:
        if not 0 <= index < len(self.texts):
            raise ValueError(f"text {index} is missing")
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
            raise ValueError(f"location {location} is missing")
        for number, value in read_fields(message):
            if number == 4 and isinstance(value, bytes):
                name, filename = self.functions.get(first_number(value, 1), (0, 0))
                yield Frame(self.text(filename), first_number(value, 2), self.text(name))


def parse_device_profile(data: bytes) -> DeviceProfile:
    """Return the profile in the bytes of an uncompressed file.

    Raises:
        InputFileError: They are something else; it does not name the file.
    """
    try:
        return _parse(_Profile(data))
    except ValueError as error:
        raise InputFileError(str(error)) from None


def _parse(profile: _Profile) -> DeviceProfile:
    if not profile.texts or profile.texts[0]:
        raise ValueError("no table of texts that begins with an empty one")
    units = [(profile.text(first_number(it, 1)), profile.text(first_number(it, 2))) for it in profile.types]
    sizes = [at for at, (_, unit) in enumerate(units) if unit == "bytes"]
    counts = [at for at, (_, unit) in enumerate(units) if unit == "count"]
    if not sizes:
        raise ValueError("no column of bytes")
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
            locations += read_numbers(value)
        elif number == 2:
            values += [it - (1 << 64) if it >= 1 << 63 else it for it in read_numbers(value)]
        elif number == 3 and isinstance(value, bytes):
            labels[profile.text(first_number(value, 1))] = profile.text(first_number(value, 2))
    if size_at >= len(values) or (count_at is not None and count_at >= len(values)):
        raise ValueError("a sample has fewer values than there are columns")
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
