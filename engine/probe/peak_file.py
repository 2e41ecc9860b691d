"""The peaks of this process, in a file for the `vramscope run` that prints them when its job has ended."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from .backends import Reading

FOLDER_VARIABLE = "VRAMSCOPE_SUMMARY_DIR"
# What is copied from a hello.
_ABOUT = ("pid", "started_s", "is_simulated", "device", "coordinates", "capacity_bytes", "context_bytes")


class PeakFile:
    """Follows the peaks of the allocator, and writes the file again when they have risen.

    A process that is killed leaves the peaks that it had a second before.

    Args:
        folder: Where to write; None to do nothing.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        # Bytes allocated and reserved at the most, and errors so far.
        self._peaks: tuple[int, int, int] = (0, 0, 0)
        self._written: tuple[Any, ...] | None = None
        # The newest flight record.
        self.record: str | None = None

    @property
    def is_wanted(self) -> bool:
        return self._folder is not None

    @property
    def is_due(self) -> bool:
        return self.is_wanted and self._written != (*self._peaks, self.record)

    def note(self, reading: Reading) -> None:
        """Raise the peaks to a reading: the program may have reset those of its allocator meanwhile."""
        allocated = reading.peak_bytes or reading.allocated_bytes or 0
        self._raise(allocated, reading.reserved_bytes or 0, reading.ooms or 0)

    def note_statistics(self, statistics: dict[str, Any]) -> None:
        """Raise the peaks to the allocator's own, which see what is between two readings."""
        self._raise(
            statistics.get("allocated_bytes.all.peak") or 0,
            statistics.get("reserved_bytes.all.peak") or 0,
            statistics.get("num_ooms") or 0,
        )

    def write(self, hello: dict[str, Any], uses: dict[str, Any] | None = None) -> None:
        """Write the file; a folder that is gone or full is left alone: nobody waits for the file then.

        Args:
            uses: On a simulated card, what takes more of a real one than tensors.
        """
        if self._folder is None:
            return
        allocated, reserved, ooms = self._peaks
        content = {name: hello.get(name) for name in _ABOUT}
        content.update(
            allocated_bytes=allocated,
            reserved_bytes=reserved,
            ooms=ooms,
            flight_record=self.record,
            uses=uses,
        )
        path = os.path.join(self._folder, f"{hello['pid']}.json")  # noqa: PTH118 - the probe stays light
        with suppress(OSError, TypeError, ValueError):
            with open(f"{path}.new", "w", encoding="utf-8") as file:  # noqa: PTH123
                json.dump(content, file)
            os.replace(f"{path}.new", path)  # noqa: PTH105
        self._written = (*self._peaks, self.record)

    def _raise(self, allocated: int, reserved: int, ooms: int) -> None:
        before = self._peaks
        if allocated > before[0] or reserved > before[1] or ooms > before[2]:
            self._peaks = (max(allocated, before[0]), max(reserved, before[1]), max(ooms, before[2]))
