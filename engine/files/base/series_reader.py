"""What readers of series share: records of devices over time, and the count of what was left out."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from ...errors import InputFileError
from ...model import DeviceKind, DeviceState, RankCoordinates
from .input_file import show_path

SeriesFormat = Literal[
    "series CSV",
    "nvidia-smi log",
    "nvidia-smi table",
    "nvidia-smi dmon",
    "gpustat JSON",
    "all-smi recording",
    "memory trace",
    "snapshot export",
    "status stream",
    "recording",
    "framework log",
    "memory snapshot",
    "memory timeline",
    "profiler trace",
    "InternLM log",
    "memory report",
    "stormlog telemetry",
]
# A column that names more is no column of devices.
MOST_DEVICES = 4096
# A file with more that cannot be used, and little else, is given up: each costs more than a good one.
MOST_LEFT_OUT = 100_000
# No device has a pebibyte; a larger number is not memory.
MOST_BYTES = 2**50
# The year 2286; a larger number is not in seconds.
MOST_SECONDS = 1e10
# A time from here on is since the epoch (September 2001), a smaller one since a start.
WALL_CLOCK_FROM_S = 1e9
_SHOWN_KINDS = 4


class SeriesDevice(msgspec.Struct, frozen=True):
    # UUID if the input has one, else made up of what it has (`index-0`).
    uuid: str
    index: int
    # As in the input: `0`, `cuda:1`, `node3/gpu2`.
    label: str
    is_uuid_real: bool = False
    name: str | None = None
    # `simulated` if the values were computed and not measured.
    kind: DeviceKind = "gpu"


class SeriesRecord(msgspec.Struct, frozen=True, gc=False):
    """One device at one time. None means unmeasured."""

    # Line of the file, or position in it, from 1.
    line: int
    time_s: float
    device: SeriesDevice
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    used_bytes: int | None = None
    total_bytes: int | None = None
    step: int | None = None
    free_bytes: int | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    state: DeviceState = "ok"
    reason: str | None = None
    # Most since the record before; None if only the moment is known.
    allocated_max_bytes: int | None = None
    used_max_bytes: int | None = None
    active_bytes: int | None = None
    # So far: the device refused a segment and the cache was flushed.
    retries: int | None = None
    ooms: int | None = None
    rank: RankCoordinates | None = None


class RecordError(ValueError):
    """One record cannot be used; caught where records are counted, never shown."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class LeftOut:
    """Counts records that were left out, by kind, with the first place of each."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kinds: dict[str, tuple[int, str]] = {}
        self.count = 0
        # Records read so far, left out or not; 0 if nobody counts them.
        self.seen = 0

    def add(self, kind: str, place: str, detail: str) -> None:
        """Count one; only the first of a kind is remembered.

        Raises:
            InputFileError: A hundred thousand were left out, and they are more than a quarter of all.
        """
        seen, first = self._kinds.get(kind, (0, f"{place}: {detail}"))
        self._kinds[kind] = (seen + 1, first)
        self.count += 1
        if self.count > MOST_LEFT_OUT and self.count * 4 > self.seen:
            raise InputFileError(
                f"{self._name}: more than {MOST_LEFT_OUT:,} records cannot be used; the first at {self.first}"
            ) from None

    @property
    def first(self) -> str | None:
        return next((first for _, first in self._kinds.values()), None)

    def explain_absence(self, path: Path) -> str:
        """One line: why a file has no record at all, and what was expected."""
        name = show_path(path)
        first = self.first
        if first is None:
            return f"{name}: no record after the header; expected at least one line of data"
        return f"{name}: no usable record among {self.count:,}; the first at {first}"

    def notes(self) -> tuple[str, ...]:
        """A sentence for each kind, the most frequent first."""
        kinds = sorted(self._kinds.values(), key=lambda kind: -kind[0])
        more = sum(count for count, _ in kinds[_SHOWN_KINDS:])
        rest = (f"{_count(more)} left out for other reasons",) if more else ()
        return (*(_describe(count, first) for count, first in kinds[:_SHOWN_KINDS]), *rest)


def _describe(count: int, first: str) -> str:
    return (
        f"{_count(count)} left out: {first}"
        if count == 1
        else f"{_count(count)} left out, the first at {first}"
    )


def _count(count: int) -> str:
    return "1 record was" if count == 1 else f"{count:,} records were"


def show_cell(text: str) -> str:
    """Quote and shorten a cell for an error."""
    short = text.strip()
    return ascii(short if len(short) <= 24 else f"{short[:21]}...")


_NUMBERED = re.compile(r"(?:cuda:|gpu[ _:-]?|device[ _:-]?)?([+-]?\d{1,9})(?:\.0+)?", re.IGNORECASE)
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F/-]{7,}")


class SeriesDevices:
    """Finds devices by their cell, and gives indexes to those without a number."""

    def __init__(self) -> None:
        self._by_key: dict[str, SeriesDevice] = {}
        self._taken: set[int] = set()
        self._first_host: str | None = None
        self._free_index = 0

    def __bool__(self) -> bool:
        return bool(self._by_key)

    @property
    def only(self) -> SeriesDevice | None:
        """The device if there is exactly one."""
        return next(iter(self._by_key.values())) if len(self._by_key) == 1 else None

    def find(self, cell: str) -> SeriesDevice:
        text = cell.strip()
        if not text:
            raise RecordError("device", "device is empty, expected a number or a name")
        number = _NUMBERED.fullmatch(text)
        key = str(int(number.group(1))) if number else text
        known = self._by_key.get(key)
        return known if known is not None else self._add(key, text, is_number=number is not None)

    def identify(self, uuid: str | None, index: int | None, label: str, name: str | None) -> SeriesDevice:
        """Return the device of a log with a UUID, an index, or only some other identity as its label."""
        key = uuid or (f"{index}" if index is not None else label)
        known = self._by_key.get(key)
        if known is None:
            known = self._add(
                key, label, is_number=uuid is None and index is not None, index=index, name=name
            )
        return known

    def identify_on(self, host: str, uuid: str | None, index: int, name: str | None) -> SeriesDevice:
        """Return a device of a log of several hosts; those of a second host have its name in their label."""
        if self._first_host is None:
            self._first_host = host
        if host == self._first_host:
            return self.identify(uuid, index, str(index), name)
        return self.identify(uuid, None, f"{host}/{index}", name)

    def identify_apart(self, number: int, label: str) -> SeriesDevice:
        """Return a device that stays separate: another may have the same number, and nothing says they are
        one.
        """
        if label not in self._by_key:
            self._check_room(label)
            self._by_key[label] = SeriesDevice(f"name-{label}", number, label, name=label)
        return self._by_key[label]

    def describe_names(self) -> tuple[str, ...]:
        """A sentence with the indexes given to devices that the input knows by name."""
        named = [it for it in self._by_key.values() if it.label not in (str(it.index), it.name)]
        named = [device for device in named if not _NUMBERED.fullmatch(device.label)]
        if not named:
            return ()
        shown = ", ".join(f"{show_cell(device.label)} is {device.index}" for device in named[:4])
        more = f" and {len(named) - 4:,} more" if len(named) > 4 else ""
        return (f"devices without a number were numbered in order: {shown}{more}",)

    def _add(
        self, key: str, label: str, *, is_number: bool, index: int | None = None, name: str | None = None
    ) -> SeriesDevice:
        self._check_room(label)
        number = int(key) if is_number else self._next_index() if index is None else index
        if is_number and number in self._taken:
            raise RecordError(
                "device",
                f"device {number} is already used for a device without a number, expected one way to "
                "name devices",
            )
        is_real = _UUID.fullmatch(key) is not None
        uuid = key if is_real else f"index-{number}" if is_number else f"name-{key}"
        device = SeriesDevice(uuid, number, label, is_uuid_real=is_real, name=name)
        self._by_key[key] = device
        self._taken.add(number)
        return device

    def _check_room(self, label: str) -> None:
        if len(self._by_key) >= MOST_DEVICES:
            raise RecordError(
                "devices",
                f"device {show_cell(label)}: too many devices, expected at most {MOST_DEVICES:,}",
            )

    def _next_index(self) -> int:
        while self._free_index in self._taken:
            self._free_index += 1
        return self._free_index


class _Opened(Protocol):
    @property
    def read_share(self) -> float: ...

    def close(self) -> None: ...


class FileReader:
    """What the readers of one file share: where it is, how far it was read, and what was left out.

    `opened` is None if the file is read whole at once.
    """

    def __init__(self, path: Path, opened: _Opened | None = None) -> None:
        self._path = path
        self._opened = opened
        self._left_out = LeftOut(show_path(path))

    @property
    def read_share(self) -> float:
        return 1.0 if self._opened is None else self._opened.read_share

    def explain_absence(self) -> str:
        """One line: why there is no record at all, and what was expected."""
        return self._left_out.explain_absence(self._path)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()


class SeriesReader(FileReader, ABC):
    """Reads the records of one file, once and in the order of the file."""

    format: SeriesFormat

    def __init__(self, path: Path, opened: _Opened | None = None) -> None:
        super().__init__(path, opened)
        self._devices = SeriesDevices()

    @property
    def has_allocator(self) -> bool:
        return True

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was left out or reinterpreted; complete after the last record."""

    @abstractmethod
    def records(self) -> Iterator[SeriesRecord]:
        """Yield the records; what cannot be used is counted in `notes`."""
