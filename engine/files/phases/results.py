"""Reader of `memory_profile_results.json` of the two siblings of Opacus's phase profiler.

One result a configuration, with snapshots that come in pairs `X_start`, `X_end`, one within another. The FSDP
dialect is in GiB (`peak_memory_gb`); the single-GPU dialect is in bytes (`peak_memory`) and tells the highest
level so far too. The counter of the highest level is reset once a configuration: within a phase it tells the
peak only where it rose.
"""

import codecs
import re
from pathlib import Path
from typing import Annotated

import msgspec

from ...errors import InputFileError
from ...model.phase_memory import MemoryLevels, PhaseFile, PhaseRecord, RecordedPhase
from ...units import GIB, MIB
from ..base.input_file import lower_first, show_name, show_path
from ..base.packed_file import read_packed_file
from ..base.series_record import MOST_BYTES, MOST_SECONDS, LeftOut, show_cell
from .figures import find_bytes

SIZE_LIMIT_BYTES = 256 * MIB
_STEP = re.compile(r"training_step_(\d{1,9})", re.ASCII)
_EXPECTATION = 'expected a list of results, [{"seq_length": 128, "snapshots": [...]}]'
_Bytes = Annotated[float, msgspec.Meta(ge=0, lt=MOST_BYTES)]
_Gibibytes = Annotated[float, msgspec.Meta(ge=0, lt=MOST_BYTES / GIB)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, lt=MOST_SECONDS)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=10**15)]


class Snapshot(msgspec.Struct):
    """One moment, in either dialect."""

    stage: Annotated[str, msgspec.Meta(max_length=200)]
    timestamp: _Seconds | None = None
    allocated_gb: _Gibibytes | None = None
    reserved_gb: _Gibibytes | None = None
    allocated: _Bytes | None = None
    reserved: _Bytes | None = None
    max_allocated: _Bytes | None = None
    max_reserved: _Bytes | None = None

    @property
    def levels(self) -> MemoryLevels:
        """What was held."""
        if self.allocated_gb is not None or self.reserved_gb is not None:
            return MemoryLevels(
                allocated_bytes=find_bytes(self.allocated_gb, GIB),
                reserved_bytes=find_bytes(self.reserved_gb, GIB),
            )
        return MemoryLevels(
            allocated_bytes=find_bytes(self.allocated), reserved_bytes=find_bytes(self.reserved)
        )


class _Result(msgspec.Struct):
    seq_length: _Count | None = None
    batch_size: _Count | None = None
    max_physical_batch_size: _Count | None = None
    is_lora: bool | None = None
    lora_rank: _Count | None = None
    peak_memory_gb: _Gibibytes | None = None
    peak_memory: _Bytes | None = None
    execution_time: _Seconds | None = None
    memory_breakdown: dict[str, float] = {}
    snapshots: list[msgspec.Raw] = []


def read_results(path: Path) -> PhaseFile:
    """Read the results of a file; those, and snapshots, that cannot be used are counted in a note.

    Raises:
        InputFileError: The file cannot be read, or has no result in it.
    """
    left_out = LeftOut(show_path(path))
    records = []
    try:
        data = read_packed_file(path, SIZE_LIMIT_BYTES).removeprefix(codecs.BOM_UTF8)
        listed = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputFileError(f"{show_path(path)}: {lower_first(str(error))}; {_EXPECTATION}") from error
    for number, raw in enumerate(listed):
        try:
            result = msgspec.json.decode(raw, type=_Result)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            left_out.add("result", f"$[{number}]", lower_first(str(error)))
            continue
        records.append(_make_record(result, f"$[{number}]", left_out))
    if not records:
        reason = left_out.first or _EXPECTATION
        raise InputFileError(f"{show_path(path)}: no result in it can be used; {reason}")
    return PhaseFile(
        file=show_name(path), records=tuple(records), notes=(*_explain(records), *left_out.notes())
    )


def _make_record(result: _Result, place: str, left_out: LeftOut) -> PhaseRecord:
    is_binary = result.peak_memory is not None
    unit_bytes = 1 if is_binary else GIB
    peak = find_bytes(result.peak_memory) if is_binary else find_bytes(result.peak_memory_gb, GIB)
    breakdown = {name: find_bytes(value, unit_bytes) for name, value in result.memory_breakdown.items()}
    return PhaseRecord(
        format="single-GPU profiler" if is_binary else "FSDP profiler",
        device="cuda",
        batch_size=result.batch_size,
        physical_batch_size=result.max_physical_batch_size,
        seq_length=result.seq_length,
        is_lora=result.is_lora,
        lora_rank=result.lora_rank if result.is_lora else None,
        phases=_pair(_read_snapshots(result.snapshots, place, left_out), place, left_out),
        peak=MemoryLevels(allocated_bytes=peak, reserved_bytes=None),
        breakdown={name: value for name, value in breakdown.items() if value is not None},
        duration_s=result.execution_time,
    )


def _read_snapshots(listed: list[msgspec.Raw], place: str, left_out: LeftOut) -> list[Snapshot]:
    snapshots = []
    for number, raw in enumerate(listed):
        try:
            snapshots.append(msgspec.json.decode(raw, type=Snapshot))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            left_out.add("snapshot", f"{place}.snapshots[{number}]", lower_first(str(error)))
    return snapshots


def _pair(snapshots: list[Snapshot], place: str, left_out: LeftOut) -> tuple[RecordedPhase, ...]:
    """Return the phases in the order in which they began; a snapshot without its other is counted."""
    begun: list[tuple[int, str, Snapshot, int | None]] = []
    phases: list[tuple[int, RecordedPhase]] = []
    step: int | None = None
    for number, snapshot in enumerate(snapshots):
        name, _, edge = snapshot.stage.rpartition("_")
        if edge == "start":
            found = _STEP.fullmatch(name)
            step = int(found.group(1)) + 1 if found else step
            begun.append((number, name, snapshot, step))
        elif edge == "end" and any(name == each[1] for each in begun):
            while begun[-1][1] != name:
                left_out.add("stage", place, f"{show_cell(begun.pop()[1])} has a start and no end")
            at, _, start, of_step = begun.pop()
            phases.append((at, _make_phase(name, of_step, start, snapshot)))
            step = None if _STEP.fullmatch(name) else step
        else:
            left_out.add("stage", place, f"{show_cell(snapshot.stage)} has no start")
    for each in begun:
        left_out.add("stage", place, f"{show_cell(each[1])} has a start and no end")
    return tuple(phase for _, phase in sorted(phases, key=lambda item: item[0]))


def _make_phase(name: str, step: int | None, start: Snapshot, end: Snapshot) -> RecordedPhase:
    before = start.levels
    after = end.levels
    is_timed = start.timestamp is not None and end.timestamp is not None and end.timestamp >= start.timestamp
    return RecordedPhase(
        phase=name,
        step=step,
        before=before,
        after=after,
        peak=MemoryLevels(
            allocated_bytes=_find_peak(
                start.max_allocated, end.max_allocated, before.allocated_bytes, after.allocated_bytes
            ),
            reserved_bytes=_find_peak(
                start.max_reserved, end.max_reserved, before.reserved_bytes, after.reserved_bytes
            ),
        ),
        seconds=end.timestamp - start.timestamp if is_timed and end.timestamp and start.timestamp else None,
    )


def _find_peak(start: float | None, end: float | None, before: int | None, after: int | None) -> int | None:
    """Return the peak within a phase out of the highest levels so far, where they tell it."""
    if start is None or end is None or before is None or after is None:
        return None
    return round(end) if end > start or round(end) == max(before, after) else None


def _explain(records: list[PhaseRecord]) -> tuple[str, ...]:
    notes = []
    if any(each.format == "FSDP profiler" for each in records):
        notes.append(
            "the sums of the FSDP profiler are the highest level of the run so far less what a phase began "
            "with: more than a phase took, where an earlier one was higher"
        )
    if any(each.format == "single-GPU profiler" for each in records):
        notes.append(
            "a peak within a phase is known where it is the highest of the run so far; "
            "the sums of the single-GPU profiler are levels, the highest at each moment of that name"
        )
    return tuple(notes)
