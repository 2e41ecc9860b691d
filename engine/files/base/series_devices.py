"""Devices of a series, whatever its column of devices holds: numbers, `cuda:1`, UUIDs, names of any kind."""

import re

from .series_record import MOST_DEVICES, RecordError, SeriesDevice, show_cell

_NUMBERED = re.compile(r"(?:cuda:|gpu[ _:-]?|device[ _:-]?)?([+-]?\d{1,9})(?:\.0+)?", re.IGNORECASE)
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F/-]{7,}")


class SeriesDevices:
    """Knows each device by its cell, and gives indexes to those that have none."""

    def __init__(self) -> None:
        self._by_key: dict[str, SeriesDevice] = {}
        self._taken: set[int] = set()
        self._free_index = 0

    def __bool__(self) -> bool:
        return bool(self._by_key)

    @property
    def only(self) -> SeriesDevice | None:
        """The device where there is one and no other, else None."""
        return next(iter(self._by_key.values())) if len(self._by_key) == 1 else None

    def find(self, cell: str) -> SeriesDevice:
        """Return the device that a cell names.

        Raises:
            RecordError: The cell is empty, or there are too many devices for this to be a column of devices.
        """
        text = cell.strip()
        if not text:
            raise RecordError("device", "device is empty, expected a number or a name")
        number = _NUMBERED.fullmatch(text)
        key = str(int(number.group(1))) if number else text
        known = self._by_key.get(key)
        return known if known is not None else self._add(key, text, is_number=number is not None)

    def identify(self, uuid: str | None, index: int | None, label: str, name: str | None) -> SeriesDevice:
        """Return the device of a log that tells UUID, index, or only some other identity as its label."""
        key = uuid or (f"{index}" if index is not None else label)
        known = self._by_key.get(key)
        if known is None:
            known = self._add(
                key, label, is_number=uuid is None and index is not None, index=index, name=name
            )
        return known

    def identify_apart(self, number: int, label: str) -> SeriesDevice:
        """Return a device of whose number there may be another one: nothing tells whether it is the same."""
        if label not in self._by_key:
            self._check_room(label)
            self._by_key[label] = SeriesDevice(f"name-{label}", number, label, name=label)
        return self._by_key[label]

    def describe_names(self) -> tuple[str, ...]:
        """Return a sentence with the indexes of devices that the input knows by name."""
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
                f"device {number} stands for one without a number already, expected one way to name them",
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
                f"device {show_cell(label)} is one too many, expected at most {MOST_DEVICES:,} devices",
            )

    def _next_index(self) -> int:
        while self._free_index in self._taken:
            self._free_index += 1
        return self._free_index
