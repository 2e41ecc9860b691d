"""Reader of the captured output of Opacus's phase profiler, and of `vramscope phases --format original`.

The text has one block a stage, losses, a summary and the final state, between other lines (warnings,
progress). Several runs may follow each other in one file. What it calls MB is MiB.
"""

import codecs
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from ...errors import InputFileError
from ...model.phase_memory import UNKNOWN, MemoryLevels, PhaseFile, PhaseRecord, RecordedPhase
from ...units import GIB, MIB
from ..base.input_file import lower_first, show_name, show_path
from ..base.packed_file import CUT_NOTE, LineFile, read_packed_file
from ..base.series_reader import MOST_BYTES, MOST_SECONDS, LeftOut, show_cell
from ..framework.log import COLOUR
from ..framework.oom_text import MARK, parse_oom_text

NUMBER = r"[-+]?\d{1,12}(?:\.\d{1,9})?"


def read_mebibytes(text: str) -> int | None:
    """Return bytes, or None if no device could have so many."""
    return find_bytes(float(text), MIB)


def find_bytes(value: float | None, unit_bytes: int = 1) -> int | None:
    """Return whole bytes of a number in a unit; None if it is absent or no device could have so many."""
    if value is None or not -MOST_BYTES < value * unit_bytes < MOST_BYTES:
        return None
    return round(value * unit_bytes)


_MARK = re.compile(
    r"^[^\S\n]*+(?:=== .{1,200} (?:Memory Usage|Completed) ===[^\S\n]*+$"
    r"|MEMORY USAGE SUMMARY|EXECUTION SUMMARY \()",
    re.MULTILINE,
)
# Progress bars redraw themselves without a line end.
_LONGEST_LINE = 1 << 20


def has_phases(text: str) -> bool:
    """Return whether a text has a block or the summary of such a profiler."""
    return _MARK.search(COLOUR.sub("", text)) is not None


def read_log(path: Path) -> PhaseFile:
    """Read the runs of a captured output; lines that cannot be used are counted in a note."""
    file = LineFile(path, longest_line=_LONGEST_LINE)
    left_out = LeftOut(show_path(path))
    runs = [LoggedRun(left_out)]
    for number, line in file.numbered_lines():
        # A progress bar stands before a line that was printed while it was drawn.
        text = COLOUR.sub("", line).rpartition("\r")[2].strip()
        if text.startswith(BEGIN) and runs[-1].has_begun:
            runs.append(LoggedRun(left_out))
        if text:
            runs[-1].read_line(number, text)
    records: list[PhaseRecord] = [record for run in runs if (record := run.finish()) is not None]
    if not records:
        reason = left_out.first or 'expected blocks such as "=== Forward Pass Memory Usage ==="'
        raise InputFileError(f"{show_path(path)}: no usable stage; {reason}")
    cut = (CUT_NOTE,) if file.is_cut else ()
    return PhaseFile(file=show_name(path), records=tuple(records), notes=(*cut, *left_out.notes()))


# The first line of a run: which device it uses.
BEGIN = "使用设备"
# Our line before it, if the device is a simulated one.
SIMULATED = "模拟设备"
_OUT_OF_MEMORY = "CUDA内存不足"
_HEADS = {
    "模型大小": "model_size",
    "批次大小": "batch_size",
    "序列长度": "seq_length",
    "训练步数": "num_steps",
}
_SIZES = {
    "词汇表大小": "vocab_size",
    "隐藏层大小": "hidden_size",
    "层数": "num_layers",
    "注意力头数": "num_heads",
}
_FINALS = {"已分配": "allocated", "已保留": "reserved"}
_FIELD = re.compile(r"(\w{1,40})\s*[:：]\s*(.{1,200})")
_STAGE = re.compile(r"=== (.{1,200}) (?:Memory Usage|Completed) ===")
_FIGURES = re.compile(
    rf"(Before|After|Peak|Diff): +({NUMBER}) MB allocated(?:, ({NUMBER}) MB reserved)?", re.ASCII
)
_LABELS = ("Before:", "After:", "Peak:", "Diff:")
_STEP = re.compile(r"--- 训练步骤 (\d{1,9})/\d{1,9} ---")
_ENTRY = re.compile(r"\d{1,9}\. (.{1,200})")
_ENTRY_FIGURE = re.compile(rf"(Peak|Diff): ({NUMBER}) MB", re.ASCII)
_HEADINGS = ("MEMORY USAGE SUMMARY", "EXECUTION SUMMARY (")
# A stage is printed when it is over: an error comes from the one after the last.
_FOLLOWERS = {
    "Model Creation": "DP Setup",
    "DP Setup": "Forward Pass",
    "Forward Pass": "Backward Pass",
    "Backward Pass": "Optimizer Step",
    "Optimizer Step": "Zero Gradients",
    "Zero Gradients": "Forward Pass",
}


class LoggedRun:
    def __init__(self, left_out: LeftOut) -> None:
        self._left_out = left_out
        self._heads: dict[str, str] = {}
        self._sizes: dict[str, int] = {}
        self._final: dict[str, int | None] = {}
        self._stages: list[_Stage] = []
        self._entries: list[_Stage] = []
        self._losses: list[float | None] = []
        self._step: int | None = None
        self._is_summary = False
        self._is_simulated = False
        self._requested_bytes: int | None = None
        self._failed_phase: str | None = None
        self._is_out_of_memory = False

    @property
    def has_begun(self) -> bool:
        return bool(self._heads or self._stages or self._entries)

    def read_line(self, number: int, text: str) -> None:
        if stage := _STAGE.fullmatch(text):
            self._stages.append(_Stage(stage.group(1), self._step))
        elif text.startswith(_HEADINGS):
            self._is_summary = True
        elif self._is_summary and (entry := _ENTRY.fullmatch(text)):
            self._entries.append(_Stage(entry.group(1), None))
        elif text.startswith(_LABELS):
            self._read_figures(number, text)
        elif step := _STEP.fullmatch(text):
            self._step = int(step.group(1))
        elif MARK.search(text) or text.startswith(_OUT_OF_MEMORY):
            self._read_error(text)
        elif text.startswith(SIMULATED):
            self._is_simulated = True
        elif field := _FIELD.fullmatch(text):
            self._read_field(number, *field.groups())

    def finish(self) -> PhaseRecord | None:
        """Return the run; None if it has no stage."""
        phases = tuple(each.finish() for each in self._merge_summary())
        if not phases:
            return None
        heads = self._heads
        final = self._final
        is_failed = self._is_out_of_memory
        return PhaseRecord(
            format="phase profiler log",
            device=heads.get("device"),
            is_simulated=self._is_simulated,
            model_size=heads.get("model_size"),
            batch_size=_read_count(heads.get("batch_size")),
            seq_length=_read_count(heads.get("seq_length")),
            num_steps=_read_count(heads.get("num_steps")),
            model=self._sizes,
            phases=phases,
            losses=tuple(self._losses),
            peak=_find_peak(phases),
            final=MemoryLevels(allocated_bytes=final.get("allocated"), reserved_bytes=final.get("reserved")),
            end="out_of_memory" if is_failed else "finished",
            failed_phase=(self._failed_phase or _FOLLOWERS.get(phases[-1].phase)) if is_failed else None,
            requested_bytes=self._requested_bytes,
        )

    def _merge_summary(self) -> list["_Stage"]:
        """Return the stages by their blocks, or by the summary's entry if an excerpt has no block."""
        merged = []
        blocks = list(self._stages)
        for entry in self._entries:
            merged.append(blocks.pop(0) if blocks and blocks[0].is_same(entry) else entry)
        if not blocks:
            return merged or self._stages
        if self._entries:
            missing = f"the block of {show_cell(blocks[0].name)} has no entry there"
            self._left_out.add("summary", "at its end", missing)
        return self._stages

    def _read_figures(self, number: int, text: str) -> None:
        stages, pattern = (self._entries, _ENTRY_FIGURE) if self._is_summary else (self._stages, _FIGURES)
        match = pattern.fullmatch(text)
        if match is None or not stages:
            self._left_out.add("line", f"line {number}", f"{show_cell(text)}, expected sizes in MB")
            return
        label, *figures = match.groups()
        values = [None if figure is None else read_mebibytes(figure) for figure in (*figures, None)[:2]]
        stages[-1].levels[label] = MemoryLevels(allocated_bytes=values[0], reserved_bytes=values[1])

    def _read_field(self, number: int, label: str, value: str) -> None:
        if label == BEGIN:
            self._heads["device"] = value.strip()
        elif label in _HEADS:
            self._heads[_HEADS[label]] = value.strip()
        elif label in _SIZES:
            size = _read_count(value)
            if size is None:
                self._left_out.add("line", f"line {number}", f"{show_cell(value)} is not a number")
            else:
                self._sizes[_SIZES[label]] = size
        elif label in _FINALS and (figure := re.fullmatch(rf"({NUMBER}) MB", value, re.ASCII)):
            self._final[_FINALS[label]] = read_mebibytes(figure.group(1))
        elif label == "损失":
            self._losses.append(_read_loss(value))

    def _read_error(self, text: str) -> None:
        self._is_out_of_memory = True
        said = parse_oom_text(text)
        if said is not None and self._requested_bytes is None:
            self._requested_bytes = said.asked_bytes
        if text.startswith(_OUT_OF_MEMORY):
            match = re.fullmatch(rf"{_OUT_OF_MEMORY}: (.{{1,200}}?)(?:, 请求 ({NUMBER}) MB)?", text, re.ASCII)
            if match is not None:
                self._failed_phase = match.group(1)
                self._requested_bytes = read_mebibytes(match.group(2)) if match.group(2) else None


class _Stage:
    """One block, or one entry of the summary."""

    def __init__(self, name: str, step: int | None) -> None:
        self.name = name
        self.step = step
        self.levels: dict[str, MemoryLevels] = {}

    def is_same(self, entry: "_Stage") -> bool:
        """Return whether an entry of the summary can be this block: it repeats its name and peak."""
        peaks = [stage.levels.get("Peak", UNKNOWN).allocated_bytes for stage in (self, entry)]
        return self.name == entry.name and (None in peaks or peaks[0] == peaks[1])

    def finish(self) -> RecordedPhase:
        return RecordedPhase(
            phase=self.name,
            step=self.step,
            before=self.levels.get("Before", UNKNOWN),
            after=self.levels.get("After", UNKNOWN),
            peak=self.levels.get("Peak", UNKNOWN),
            told=self.levels.get("Diff", UNKNOWN),
        )


def _find_peak(phases: Sequence[RecordedPhase]) -> MemoryLevels:
    """Return the most of all phases; reserved bytes are known after each phase only."""
    allocated = [each.peak.allocated_bytes for each in phases if each.peak.allocated_bytes is not None]
    reserved = [each.after.reserved_bytes for each in phases if each.after.reserved_bytes is not None]
    return MemoryLevels(
        allocated_bytes=max(allocated, default=None), reserved_bytes=max(reserved, default=None)
    )


def _read_count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,15}", text.strip(), re.ASCII) else None


def _read_loss(text: str) -> float | None:
    """None if it was not computed, or is no number."""
    try:
        loss = float(text)
    except ValueError:
        return None
    return loss if abs(loss) < float("inf") else None


# One result a configuration, with snapshots that come in pairs `X_start`, `X_end`, one within another. The
# FSDP dialect is in GiB (`peak_memory_gb`); the single-GPU dialect is in bytes (`peak_memory`) and has the
# highest level so far too. The counter of the highest level is reset once a configuration: it is the peak of
# a phase only if it rose within that phase.

SIZE_LIMIT_BYTES = 256 * MIB
_STEP_NAME = re.compile(r"training_step_(\d{1,9})", re.ASCII)
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
    """Read the results of a file; those, and snapshots, that cannot be used are counted in a note."""
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
        raise InputFileError(f"{show_path(path)}: no usable result; {reason}")
    return PhaseFile(
        file=show_name(path), records=tuple(records), notes=(*_explain(records), *left_out.notes())
    )


def _make_record(result: _Result, place: str, left_out: LeftOut) -> PhaseRecord:
    is_binary = result.peak_memory is not None
    unit_bytes = 1 if is_binary else GIB
    peak = find_bytes(result.peak_memory) if is_binary else find_bytes(result.peak_memory_gb, GIB)
    breakdown = {name: find_bytes(value, unit_bytes) for name, value in result.memory_breakdown.items()}
    snapshots = []
    for number, raw in enumerate(result.snapshots):
        try:
            snapshots.append(msgspec.json.decode(raw, type=Snapshot))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            left_out.add("snapshot", f"{place}.snapshots[{number}]", lower_first(str(error)))
    return PhaseRecord(
        format="single-GPU profiler" if is_binary else "FSDP profiler",
        device="cuda",
        batch_size=result.batch_size,
        physical_batch_size=result.max_physical_batch_size,
        seq_length=result.seq_length,
        is_lora=result.is_lora,
        lora_rank=result.lora_rank if result.is_lora else None,
        phases=_pair(snapshots, place, left_out),
        peak=MemoryLevels(allocated_bytes=peak, reserved_bytes=None),
        breakdown={name: value for name, value in breakdown.items() if value is not None},
        duration_s=result.execution_time,
    )


def _pair(snapshots: list[Snapshot], place: str, left_out: LeftOut) -> tuple[RecordedPhase, ...]:
    """Return the phases in the order in which they began; a snapshot without its other is counted."""
    begun: list[tuple[int, str, Snapshot, int | None]] = []
    phases: list[tuple[int, RecordedPhase]] = []
    step: int | None = None
    for number, snapshot in enumerate(snapshots):
        name, _, edge = snapshot.stage.rpartition("_")
        if edge == "start":
            found = _STEP_NAME.fullmatch(name)
            step = int(found.group(1)) + 1 if found else step
            begun.append((number, name, snapshot, step))
        elif edge == "end" and any(name == each[1] for each in begun):
            while begun[-1][1] != name:
                left_out.add("stage", place, f"{show_cell(begun.pop()[1])} has a start but no end")
            at, _, start, of_step = begun.pop()
            phases.append((at, _make_phase(name, of_step, start, snapshot)))
            step = None if _STEP_NAME.fullmatch(name) else step
        else:
            left_out.add("stage", place, f"{show_cell(snapshot.stage)} has no start")
    for each in begun:
        left_out.add("stage", place, f"{show_cell(each[1])} has a start but no end")
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
            allocated_bytes=_find_phase_peak(
                start.max_allocated, end.max_allocated, before.allocated_bytes, after.allocated_bytes
            ),
            reserved_bytes=_find_phase_peak(
                start.max_reserved, end.max_reserved, before.reserved_bytes, after.reserved_bytes
            ),
        ),
        seconds=end.timestamp - start.timestamp if is_timed and end.timestamp and start.timestamp else None,
    )


def _find_phase_peak(
    start: float | None, end: float | None, before: int | None, after: int | None
) -> int | None:
    """Return the peak within a phase from the highest levels so far; None if they do not show it."""
    if start is None or end is None or before is None or after is None:
        return None
    return round(end) if end > start or round(end) == max(before, after) else None


def _explain(records: list[PhaseRecord]) -> tuple[str, ...]:
    notes = []
    if any(each.format == "FSDP profiler" for each in records):
        notes.append(
            "a sum of the FSDP profiler is the highest level of the run so far less the level at the "
            "start of the phase: too much where an earlier phase was higher"
        )
    if any(each.format == "single-GPU profiler" for each in records):
        notes.append(
            "the peak of a phase is known only where it is the highest of the run so far; the sums of "
            "the single-GPU profiler are the highest level at each moment of that name"
        )
    return tuple(notes)
