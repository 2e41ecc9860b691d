"""The training processes of a recording: as rows of CSV and Parquet, and as counter tracks of Perfetto."""

import json
import math
from collections.abc import Iterable, Iterator
from typing import BinaryIO, TextIO

from ...analyzers.findings.subjects import name_rank
from ...engine.model import AllocatorReading, DeviceSample, RankCoordinates, RankSample, Sample, StepReading
from ...engine.model.sample import ModelStateReading
from ...engine.text import make_printable
from .rows import Values, write_csv_table, write_table

# One process at one sample. A process whose newest reading is old has no row.
RANK_COLUMNS = (
    ("time_s", "double"),
    ("node", "string"),
    ("device", "string"),
    ("pid", "int64"),
    ("rank", "int64"),
    ("tp", "int64"),
    ("pp", "int64"),
    ("dp", "int64"),
    ("step", "int64"),
    ("allocated_bytes", "int64"),
    ("allocated_max_bytes", "int64"),
    ("reserved_bytes", "int64"),
    ("requested_bytes", "int64"),
    ("active_bytes", "int64"),
    ("inactive_split_bytes", "int64"),
    ("step_floor_bytes", "int64"),
    ("step_peak_bytes", "int64"),
    ("parameters_bytes", "int64"),
    ("gradients_bytes", "int64"),
    ("optimizer_bytes", "int64"),
    ("retries", "int64"),
    ("ooms", "int64"),
)
"""Name and type of each column."""
_NO_RANK = RankCoordinates(-1)


def read_ranks(samples: Iterable[Sample]) -> Iterator[Values]:
    """Yield a row for each process of each sample, in the order of `RANK_COLUMNS`; None is unmeasured."""
    for sample in samples:
        labels = {device.uuid: device.label for device in sample.devices}
        for rank in sample.ranks:
            if rank.state == "ok" and rank.allocator is not None:
                yield _read_rank(sample, rank, labels.get(rank.device_uuid or ""))


def _read_rank(sample: Sample, rank: RankSample, label: str | None) -> Values:
    place = rank.coordinates or _NO_RANK
    allocator = rank.allocator or AllocatorReading()
    step = rank.step or StepReading(0, 0.0)
    state = rank.model_state or ModelStateReading()
    return (
        *(sample.time_s, sample.node, label, rank.pid),
        *(None if rank.coordinates is None else place.rank, place.tp, place.pp, place.dp),
        None if rank.step is None else step.index,
        *(allocator.allocated_bytes, allocator.allocated_max_bytes, allocator.reserved_bytes),
        *(allocator.requested_bytes, allocator.active_bytes, allocator.inactive_split_bytes),
        *(step.floor_bytes, step.peak_bytes),
        *(state.parameters_bytes, state.gradients_bytes, state.optimizer_bytes),
        *(allocator.retries, allocator.ooms),
    )


def write_ranks_csv(samples: Iterable[Sample], stream: TextIO) -> None:
    """Write the processes of samples under a header; an empty cell is unmeasured."""
    write_csv_table((name for name, _ in RANK_COLUMNS), read_ranks(samples), stream)


def write_ranks_parquet(samples: Iterable[Sample], stream: BinaryIO) -> None:
    """Write the processes of samples as one table; see `write_table` for what it raises."""
    write_table(RANK_COLUMNS, read_ranks(samples), stream)


# Counter tracks: the JSON of trace events that Perfetto and chrome://tracing open. A device, or a process on
# it, is a group of tracks; a counter keeps its value until the next event.
# Format: perfetto.dev/docs/getting-started/other-formats (Chrome JSON).


def write_tracks(samples: Iterable[Sample], stream: BinaryIO) -> None:
    """Write samples as counters of devices and processes, and their steps as slices."""
    stream.write(b'{"displayTimeUnit":"ms","traceEvents":[')
    separator = b"\n"
    for event in _list_events(samples):
        stream.write(separator + json.dumps(event, allow_nan=False, separators=(",", ":")).encode())
        separator = b",\n"
    stream.write(b"\n]}\n")


def _list_events(samples: Iterable[Sample]) -> Iterator[dict[str, object]]:
    groups: dict[tuple[str, str, int], int] = {}
    ended: dict[tuple[str, str, int], float] = {}
    for sample in samples:
        if not math.isfinite(sample.time_s):
            continue
        labels = {device.uuid: device.label for device in sample.devices}
        for device in sample.devices:
            key = (sample.node, device.uuid, -1)
            yield from _name_group(groups, key, f"{sample.node} device {device.label}", device.is_simulated)
            yield from _count(groups[key], sample.time_s, _read_device(device))
        for rank in sample.ranks:
            key = (sample.node, rank.device_uuid or "", rank.pid)
            name = f"{sample.node} {name_rank(rank)} on device {labels.get(rank.device_uuid or '', '?')}"
            yield from _name_group(groups, key, name, rank.is_simulated)
            if rank.state == "ok":
                yield from _count(groups[key], sample.time_s, _read_tracks(rank))
            step = rank.step
            if step is None or step.duration_s is None or not math.isfinite(step.ended_s - step.duration_s):
                continue
            if ended.get(key, -math.inf) < step.ended_s:
                ended[key] = step.ended_s
                yield _slice(groups[key], step, step.duration_s)


def _name_group(
    groups: dict[tuple[str, str, int], int], key: tuple[str, str, int], name: str, is_simulated: bool
) -> Iterator[dict[str, object]]:
    if key not in groups:
        groups[key] = len(groups) + 1
        shown = f"{make_printable(name)}{' (simulated)' if is_simulated else ''}"
        yield {"ph": "M", "name": "process_name", "pid": groups[key], "args": {"name": shown}}


def _count(group: int, time_s: float, values: dict[str, float | None]) -> Iterator[dict[str, object]]:
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            yield {"ph": "C", "pid": group, "ts": round(1e6 * time_s), "name": name, "args": {name: value}}


def _read_device(device: DeviceSample) -> dict[str, float | None]:
    if device.state != "ok":
        return {}
    return {
        "used_bytes": device.memory.used_bytes,
        "capacity_bytes": device.memory.total_bytes,
        "utilization_percent": device.utilization_percent,
    }


def _read_tracks(rank: RankSample) -> dict[str, float | None]:
    allocator = rank.allocator or AllocatorReading()
    return {
        "allocated_bytes": allocator.allocated_bytes,
        "reserved_bytes": allocator.reserved_bytes,
        "inactive_split_bytes": allocator.inactive_split_bytes,
    }


def _slice(group: int, step: StepReading, duration_s: float) -> dict[str, object]:
    sizes = {"floor_bytes": step.floor_bytes, "peak_bytes": step.peak_bytes}
    return {
        "ph": "X",
        "pid": group,
        "tid": 1,
        "ts": round(1e6 * (step.ended_s - duration_s)),
        "dur": round(1e6 * duration_s),
        "name": f"step {step.index}",
        "args": {name: size for name, size in sizes.items() if size is not None},
    }
