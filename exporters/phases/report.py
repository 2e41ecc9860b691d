"""A training by phase as one JSON object: every rank, what its phases differ by, its peak, advice."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from ...analyzers.planning.phases import AdviceTrial, PhaseAdvice, advise_phases
from ...engine.model.phase_memory import MemoryLevels, PhaseFile, PhaseMemory, PhaseRecord, PhaseRun
from ...engine.text import make_printable
from ...engine.units import MIB
from ..text import UNKNOWN, show_number

SCHEMA = "vramscope.phases/1"


class PhaseDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Level after a phase less that before it; negative where it freed more."""

    phase: str
    step: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None


class RankSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from the run of one rank."""

    rank: int
    peak: MemoryLevels
    """The most of all phases."""
    peak_phase: str | None
    """Phase in which most was allocated."""
    peak_step: int | None
    share_of_device: float | None
    """Most reserved bytes over the capacity; of the CPU resident bytes over the host's memory."""
    differences: tuple[PhaseDifference, ...]
    """In the order of the phases of the run."""


class PhaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope phases --json` prints."""

    schema: str = SCHEMA
    is_simulated: bool
    """Whether the device of any rank is modelled: then no value is measured on a GPU."""
    runs: tuple[PhaseRun, ...]
    """One a rank."""
    ranks: tuple[RankSummary, ...]
    """In the order of the runs."""
    advice: PhaseAdvice | None
    """For the rank with the highest peak."""
    trials: tuple[AdviceTrial, ...] = ()
    """What advised changes came to, where they were tried."""


def report_phases(runs: Sequence[PhaseRun], trials: Sequence[AdviceTrial] = ()) -> PhaseReport:
    ordered = tuple(sorted(runs, key=lambda run: run.rank))
    return PhaseReport(
        is_simulated=any(run.device.kind == "simulated" for run in ordered),
        runs=ordered,
        ranks=tuple(map(_summarize, ordered)),
        advice=advise_phases(ordered),
        trials=tuple(trials),
    )


def _summarize(run: PhaseRun) -> RankSummary:
    peak = run.peak
    total = run.device.total_bytes
    at = None
    if peak.allocated_bytes is not None:
        at = next(each for each in run.phases if each.peak.allocated_bytes == peak.allocated_bytes)
    held = peak.allocated_bytes if run.device.kind == "cpu" else peak.reserved_bytes
    return RankSummary(
        rank=run.rank,
        peak=peak,
        peak_phase=None if at is None else at.phase,
        peak_step=None if at is None else at.step,
        share_of_device=held / total if held is not None and total else None,
        differences=tuple(
            PhaseDifference(
                phase=each.phase,
                step=each.step,
                allocated_bytes=each.allocated_difference_bytes,
                reserved_bytes=each.reserved_difference_bytes,
            )
            for each in run.phases
        ),
    )


# The content of a file of another phase profiler, as one JSON object.

RECORD_SCHEMA = "vramscope.phase-records/1"


class PhaseRecordReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope phases --read FILE --json` prints of a file."""

    schema: str = RECORD_SCHEMA
    file: str
    records: tuple[PhaseRecord, ...]
    """One per run, in the order of the file."""
    notes: tuple[str, ...]
    """Sentences about what the values are and what was left out."""


def report_phase_records(file: PhaseFile) -> PhaseRecordReport:
    return msgspec.convert(file, PhaseRecordReport, from_attributes=True)


# A run by phase in the words of the phase profiler that comes with examples of Opacus, line by line.
#
# Its stages are fewer than ours: it computes the loss within the forward call, so that Forward and Loss are
# one `Forward Pass` here. What it calls MB is MiB. Two kinds of lines are ours, because it has no words for
# them: that the device is simulated, and that memory ran out.

_STAGES = {"Forward": "Forward Pass", "Loss": "Forward Pass", "Backward": "Backward Pass"}
_RULE = "=" * 60
_NO_FIGURES = "(CPU模式 - 内存统计不可用)"


def describe_as_original(run: PhaseRun) -> str:
    """Return the text of one rank; on the CPU the original's words for a run without figures."""
    stages = merge_stages(run.phases)
    lines = [
        *_describe_head(run),
        *_describe_steps(run, stages),
        *_describe_end(run),
        *_describe_summary(stages, has_figures=_has_figures(run)),
        *_describe_final(run),
    ]
    return "\n".join(lines) + "\n"


def merge_stages(phases: Sequence[PhaseMemory]) -> tuple[PhaseMemory, ...]:
    """Return the phases by the original's stages: Forward and the Loss that follows it are one."""
    stages: list[PhaseMemory] = []
    for phase in phases:
        name = _STAGES.get(phase.phase, phase.phase)
        if phase.phase == "Loss" and stages and (stages[-1].phase, stages[-1].step) == (name, phase.step):
            stages[-1] = _join(stages[-1], phase)
        else:
            stages.append(msgspec.structs.replace(phase, phase=name))
    return tuple(stages)


def _join(first: PhaseMemory, second: PhaseMemory) -> PhaseMemory:
    seconds = None
    if first.seconds is not None and second.seconds is not None:
        seconds = first.seconds + second.seconds
    return msgspec.structs.replace(
        first,
        after=second.after,
        peak=MemoryLevels(
            allocated_bytes=_find_most(first.peak.allocated_bytes, second.peak.allocated_bytes),
            reserved_bytes=_find_most(first.peak.reserved_bytes, second.peak.reserved_bytes),
        ),
        seconds=seconds,
    )


def _find_most(first: int | None, second: int | None) -> int | None:
    """Return the larger one; unknown where one of both is."""
    return None if first is None or second is None else max(first, second)


def _describe_head(run: PhaseRun) -> Iterator[str]:
    training = run.training
    sizes = run.model
    if run.device.kind == "simulated":
        yield f"模拟设备: {make_printable(run.device.name)} (以下数值为模拟值，非实测)"
    yield f"使用设备: {'cuda' if _has_figures(run) else 'cpu'}"
    model = training.model_size or training.factory or training.hugging_face or UNKNOWN
    yield f"模型大小: {make_printable(model)}"
    yield f"批次大小: {training.batch_size}"
    yield f"序列长度: {training.seq_length}"
    yield f"训练步数: {training.num_steps}"
    yield ""
    yield "模型配置:"
    yield f"  词汇表大小: {sizes.get('vocab_size', UNKNOWN)}"
    yield f"  隐藏层大小: {sizes.get('hidden_size', UNKNOWN)}"
    yield f"  层数: {sizes.get('num_layers', UNKNOWN)}"
    yield f"  注意力头数: {sizes.get('num_heads', UNKNOWN)}"


def _describe_steps(run: PhaseRun, stages: Sequence[PhaseMemory]) -> Iterator[str]:
    steps = run.training.num_steps
    step = None
    for stage in stages:
        if stage.step != step:
            yield from _describe_loss(run, step)
            if step is None:
                yield from ("", f"开始训练 {steps} 步...")
            step = stage.step
            yield from ("", f"--- 训练步骤 {step}/{steps} ---")
        if _has_figures(run):
            yield from ("", *describe_stage(stage))
        else:
            yield from ("", f"=== {stage.phase} Completed ===", _NO_FIGURES)
    yield from _describe_loss(run, step)


def describe_stage(stage: PhaseMemory) -> Iterator[str]:
    """Yield the lines on one stage: before, after, peak and difference."""
    yield f"=== {make_printable(stage.phase)} Memory Usage ==="
    yield f"Before: {_show_levels(stage.before)}"
    yield f"After:  {_show_levels(stage.after)}"
    yield f"Peak:   {_show_mb(stage.peak.allocated_bytes)} MB allocated"
    allocated = _show_mb(stage.allocated_difference_bytes, "+")
    yield f"Diff:   {allocated} MB allocated, {_show_mb(stage.reserved_difference_bytes, '+')} MB reserved"


def _describe_loss(run: PhaseRun, step: int | None) -> Iterator[str]:
    if step is not None and step <= len(run.losses):
        loss = run.losses[step - 1]
        yield "损失: —" if loss is None else f"损失: {loss:.4f}"


def _describe_end(run: PhaseRun) -> Iterator[str]:
    if run.end == "out_of_memory":
        place = _STAGES.get(run.failed_phase or "", run.failed_phase or UNKNOWN)
        asked = "" if run.requested_bytes is None else f", 请求 {_show_mb(run.requested_bytes)} MB"
        yield from ("", f"CUDA内存不足: {place}{asked}")


def _describe_summary(stages: Sequence[PhaseMemory], *, has_figures: bool) -> Iterator[str]:
    yield ""
    if has_figures:
        yield from summarize_stages(
            SummaryStage(it.phase, it.peak.allocated_bytes, it.allocated_difference_bytes) for it in stages
        )
        return
    yield from (_RULE, "EXECUTION SUMMARY (CPU模式)", _RULE)
    for number, stage in enumerate(stages, 1):
        yield f"{number}. {stage.phase}"
        yield "   已完成 (CPU模式)"


class SummaryStage(NamedTuple):
    name: str
    peak_bytes: int | None
    difference_bytes: int | None
    is_peak_exact: bool = True
    """Else the peak is a lower bound, for which the original has no word."""


def summarize_stages(stages: Iterable[SummaryStage]) -> Iterator[str]:
    yield from (_RULE, "MEMORY USAGE SUMMARY", _RULE)
    for number, stage in enumerate(stages, 1):
        yield f"{number}. {make_printable(stage.name)}"
        yield f"   Peak: {_show_mb(stage.peak_bytes)} MB{'' if stage.is_peak_exact else ' (at least)'}"
        yield f"   Diff: {_show_mb(stage.difference_bytes, '+')} MB"


def _describe_final(run: PhaseRun) -> Iterator[str]:
    """Yield the final state; its peak is that of the last stage, because the original resets it at each."""
    if not _has_figures(run) or not run.phases:
        return
    last = run.phases[-1]
    yield from ("", "最终内存状态:")
    yield f"  已分配: {_show_mb(last.after.allocated_bytes)} MB"
    yield f"  已保留: {_show_mb(last.after.reserved_bytes)} MB"
    yield f"  峰值分配: {_show_mb(last.peak.allocated_bytes)} MB"


def _has_figures(run: PhaseRun) -> bool:
    """Return whether the device has an allocator: the original prints nothing of the CPU's memory."""
    return run.device.kind != "cpu"


def _show_levels(levels: MemoryLevels) -> str:
    return f"{_show_mb(levels.allocated_bytes)} MB allocated, {_show_mb(levels.reserved_bytes)} MB reserved"


def _show_mb(size_bytes: int | None, sign: str = "") -> str:
    return show_number(size_bytes, f"{sign}.2f", per=MIB)
