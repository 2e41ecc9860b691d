"""Recordings of real training on the simulated device, with faults put in; kept small next to this file."""

import csv
import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    MemoryReading,
    RankSample,
    Sample,
    StepReading,
)

from .shape import Shape
from .truth import Leak, Truth

FOLDER = Path(__file__).parent / "recorded"
COLUMNS = (
    "time_s",
    "total_bytes",
    "used_bytes",
    "allocated_bytes",
    "allocated_max_bytes",
    "reserved_bytes",
    "requested_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "retries",
    "resident_bytes",
    "step",
    "step_ended_s",
    "step_duration_s",
    "step_floor_bytes",
    "step_peak_bytes",
    "steps_within",
    "floor_min_bytes",
    "peak_max_bytes",
)
"""Of a recording, one row a tick; an empty cell was not measured. Times are seconds from its start."""
UUID, PID = "SIM-00000000-0000-0000-0000-000000000001", 4000


@dataclass(frozen=True)
class Recording:
    """One recording: a line of JSON with its labels, then a table."""

    path: Path
    family: str
    title: str
    interval_s: float
    duration_s: float
    truth: Truth
    epoch_s: float = 1_750_000_000.0

    @property
    def name(self) -> str:
        """What it is called."""
        return f"recorded/{self.title}"

    @property
    def shape(self) -> Shape:
        """Live ranks."""
        return Shape("live", self.interval_s)

    def samples(self) -> Iterator[Sample]:
        """Yield its samples."""
        with gzip.open(self.path, "rt", encoding="utf-8") as file:
            file.readline()
            for seq, row in enumerate(csv.DictReader(file), 1):
                yield self._read_sample(seq, row)

    def _read_sample(self, seq: int, row: dict[str, str]) -> Sample:
        whole = {name: int(cell) if cell else None for name, cell in row.items() if not name.endswith("_s")}
        total, used = whole["total_bytes"], whole["used_bytes"]
        free = None if total is None or used is None else total - used
        allocator = AllocatorReading(
            whole["allocated_bytes"],
            whole["allocated_max_bytes"],
            whole["reserved_bytes"],
            whole["requested_bytes"],
            whole["active_bytes"],
            whole["inactive_split_bytes"],
            whole["retries"],
        )
        rank = RankSample(
            PID,
            self.epoch_s,
            device_uuid=UUID,
            backend="cuda",
            is_simulated=True,
            age_s=0.1,
            allocator=allocator,
            resident_bytes=whole["resident_bytes"],
            step=self._read_step(row),
            steps_within=whole["steps_within"] or 0,
            floor_min_bytes=whole["floor_min_bytes"],
            peak_max_bytes=whole["peak_max_bytes"],
        )
        memory = MemoryReading(total, used, free, used, used)
        device = DeviceSample(
            UUID, 0, kind="simulated", memory=memory, allocator=allocator, step=whole["step"]
        )
        time_s = self.epoch_s + float(row["time_s"])
        return Sample("bench", seq, time_s, self.interval_s, (device,), ranks=(rank,))

    def _read_step(self, row: dict[str, str]) -> StepReading | None:
        if not row["step"]:
            return None
        floor, peak = row["step_floor_bytes"], row["step_peak_bytes"]
        return StepReading(
            int(row["step"]),
            self.epoch_s + float(row["step_ended_s"]),
            float(row["step_duration_s"]) if row["step_duration_s"] else None,
            int(floor) if floor else None,
            int(peak) if peak else None,
            is_peak_exact=True,
        )


def find_recordings(folder: Path = FOLDER) -> list[Recording]:
    """Return the recordings of a folder by name; empty where there are none."""
    return [read_recording(path) for path in sorted(folder.glob("*.csv.gz"))]


def read_recording(path: Path) -> Recording:
    """Read the labels of a recording; its table is read when its samples are asked for."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        labels = json.loads(file.readline())
    leaks = tuple(Leak(leak["onset_s"], leak["end_s"]) for leak in labels["leaks"])
    truth = Truth(leaks, labels["oom_s"], labels["growth_s"])
    return Recording(path, "recorded", labels["name"], labels["interval_s"], labels["duration_s"], truth)


def write_recording(
    path: Path, labels: dict[str, object], rows: Iterator[dict[str, int | float | None]]
) -> None:
    """Write labels and rows; the same content gives the same bytes."""
    text = io.StringIO()
    text.write(json.dumps(labels) + "\n")
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(text.getvalue().encode())
