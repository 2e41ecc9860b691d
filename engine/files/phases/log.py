"""Reader of the captured output of Opacus's phase profiler, and of `vramscope phases --format original`.

The text has one block a stage, losses, a summary and the final state; other lines (warnings, progress) may
stand anywhere. Several runs may follow each other in one file. What it calls MB is MiB.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from ...errors import InputFileError
from ...model.phase_memory import UNKNOWN, MemoryLevels, PhaseFile, PhaseRecord, RecordedPhase
from ..base.input_file import show_name, show_path
from ..base.packed_file import CUT_NOTE
from ..base.series_record import LeftOut, show_cell
from ..base.text_lines import LineFile
from ..framework.lines import COLOUR
from ..framework.oom_text import MARK, parse_oom_text
from .figures import NUMBER, read_mebibytes

_MARK = re.compile(
    r"^[^\S\n]*+(?:=== .{1,200} (?:Memory Usage|Completed) ===[^\S\n]*+$"
    r"|MEMORY USAGE SUMMARY|EXECUTION SUMMARY \()",
    re.MULTILINE,
)
_LONGEST_LINE = 1 << 20
"""Progress bars redraw themselves without a line end."""


def has_phases(text: str) -> bool:
    """Tell whether a text has a block or the summary of such a profiler in it."""
    return _MARK.search(COLOUR.sub("", text)) is not None


def read_log(path: Path) -> PhaseFile:
    """Read the runs of a captured output; lines that cannot be used are counted in a note.

    Raises:
        InputFileError: The file cannot be read, or has no stage in it.
    """
    file = LineFile(path, longest_line=_LONGEST_LINE)
    left_out = LeftOut(show_path(path))
    runs = [LoggedRun(left_out)]
    for number, line in file.numbered_lines():
        # A progress bar stands before a line that was printed while it was drawn.
        text = COLOUR.sub("", line).rpartition("\r")[2].strip()
        if text.startswith(BEGIN) and runs[-1].has_begun:
            runs.append(LoggedRun(left_out))
        if text:
            runs[-1].take(number, text)
    records: list[PhaseRecord] = [record for run in runs if (record := run.finish()) is not None]
    if not records:
        reason = left_out.first or 'expected blocks such as "=== Forward Pass Memory Usage ==="'
        raise InputFileError(f"{show_path(path)}: no stage in it can be used; {reason}")
    cut = (CUT_NOTE,) if file.is_cut else ()
    return PhaseFile(file=show_name(path), records=tuple(records), notes=(*cut, *left_out.notes()))


BEGIN = "使用设备"
"""The first line of a run: which device it uses."""
SIMULATED = "模拟设备"
"""Our line before it, where the device is a modelled one."""
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
_FOLLOWERS = {
    "Model Creation": "DP Setup",
    "DP Setup": "Forward Pass",
    "Forward Pass": "Backward Pass",
    "Backward Pass": "Optimizer Step",
    "Optimizer Step": "Zero Gradients",
    "Zero Gradients": "Forward Pass",
}
"""A stage is printed when it is over: an error comes from the one after the last."""


class LoggedRun:
    """What the lines of one run come to.

    Args:
        left_out: Where damaged lines are counted.
    """

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
        """Whether a line of it came already."""
        return bool(self._heads or self._stages or self._entries)

    def take(self, number: int, text: str) -> None:
        """Take a line without blanks around it."""
        if stage := _STAGE.fullmatch(text):
            self._stages.append(_Stage(stage.group(1), self._step))
        elif text.startswith(_HEADINGS):
            self._is_summary = True
        elif self._is_summary and (entry := _ENTRY.fullmatch(text)):
            self._entries.append(_Stage(entry.group(1), None))
        elif text.startswith(_LABELS):
            self._take_figures(number, text)
        elif step := _STEP.fullmatch(text):
            self._step = int(step.group(1))
        elif MARK.search(text) or text.startswith(_OUT_OF_MEMORY):
            self._take_error(text)
        elif text.startswith(SIMULATED):
            self._is_simulated = True
        elif field := _FIELD.fullmatch(text):
            self._take_field(number, *field.groups())

    def finish(self) -> PhaseRecord | None:
        """Return the run; None where it has no stage."""
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
        """Return the stages by their blocks, and where an excerpt has no block, by the summary's entry."""
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

    def _take_figures(self, number: int, text: str) -> None:
        stages, pattern = (self._entries, _ENTRY_FIGURE) if self._is_summary else (self._stages, _FIGURES)
        match = pattern.fullmatch(text)
        if match is None or not stages:
            self._left_out.add("line", f"line {number}", f"{show_cell(text)}, expected figures in MB")
            return
        label, *figures = match.groups()
        values = [None if figure is None else read_mebibytes(figure) for figure in (*figures, None)[:2]]
        stages[-1].levels[label] = MemoryLevels(allocated_bytes=values[0], reserved_bytes=values[1])

    def _take_field(self, number: int, label: str, value: str) -> None:
        if label == BEGIN:
            self._heads["device"] = value.strip()
        elif label in _HEADS:
            self._heads[_HEADS[label]] = value.strip()
        elif label in _SIZES:
            size = _read_count(value)
            if size is None:
                self._left_out.add("line", f"line {number}", f"{show_cell(value)} is no number")
            else:
                self._sizes[_SIZES[label]] = size
        elif label in _FINALS and (figure := re.fullmatch(rf"({NUMBER}) MB", value, re.ASCII)):
            self._final[_FINALS[label]] = read_mebibytes(figure.group(1))
        elif label == "损失":
            self._losses.append(_read_loss(value))

    def _take_error(self, text: str) -> None:
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
    """The lines of one block, or of one entry of the summary."""

    def __init__(self, name: str, step: int | None) -> None:
        self.name = name
        self.step = step
        self.levels: dict[str, MemoryLevels] = {}

    def is_same(self, entry: "_Stage") -> bool:
        """Return whether an entry of the summary can be of this block: it repeats its name and peak."""
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
    """Return the most of all phases; of the reserved bytes the levels after each are all that is told."""
    allocated = [each.peak.allocated_bytes for each in phases if each.peak.allocated_bytes is not None]
    reserved = [each.after.reserved_bytes for each in phases if each.after.reserved_bytes is not None]
    return MemoryLevels(
        allocated_bytes=max(allocated, default=None), reserved_bytes=max(reserved, default=None)
    )


def _read_count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,15}", text.strip(), re.ASCII) else None


def _read_loss(text: str) -> float | None:
    """Return a loss; None where it was not computed, or is no number."""
    try:
        loss = float(text)
    except ValueError:
        return None
    return loss if abs(loss) < float("inf") else None
