"""Advice about a training by phase as plain text."""

from collections.abc import Iterator, Sequence

from ..analyzers.phase_advice import AdviceTrial, PhaseAdvice, PhaseChange
from ..engine.text import make_printable
from ..engine.units import MIB
from .phase_table import show_mib
from .text_table import format_rows, wrap

_BASES = {
    "counted": "counted tensor by tensor",
    "measured": "measured, as a difference",
    "computed": "computed from sizes: not reached",
    "remainder": "temporary tensors, and what has no name",
}
_LEAST_BYTES = MIB // 200
"""What is shown as 0.00 MiB is not shown."""
_FITS = {True: "would fit", False: "would not fit even so", None: "too close to be sure"}


def describe_advice(advice: PhaseAdvice, width: int) -> Iterator[str]:
    """Yield the lines: the phase to attack, what it holds, what each change would save.

    Args:
        advice: What was found.
        width: Cells of a line.
    """
    yield from wrap(_describe_attack(advice), width)
    rows = [
        [
            part.name,
            show_mib(part.size_bytes),
            f"{part.size_bytes / advice.peak_bytes:.1%}",
            _BASES[part.basis],
        ]
        for part in advice.parts
        if part.size_bytes >= _LEAST_BYTES
    ]
    yield from format_rows([["at its peak", "MiB", "share", ""], *rows] if rows else [], "lrrl", width)
    helping = [change for change in advice.changes if change.saved_bytes]
    others = [change for change in advice.changes if not change.saved_bytes]
    if helping:
        yield from wrap("what would lower the peak, estimated from these parts:", width)
    for change in helping:
        yield from wrap(f"- {_describe_change(change, advice)}", width, "  ")
    if others:
        yield from wrap("what would not, or by how much nobody knows:", width)
    for change in others:
        yield from wrap(f"- {_describe_other(change, advice)}", width, "  ")


def _describe_attack(advice: PhaseAdvice) -> str:
    step = "" if advice.step is None else f" of step {advice.step}"
    kind = "would need" if advice.is_predicted else "peaks at"
    text = f"Attack {advice.phase}{step}: it {kind} {show_mib(advice.peak_bytes)} MiB"
    if advice.is_predicted or advice.missing_bytes is not None:
        text += " at least"
    if advice.missing_bytes is not None:
        text += _describe_shortage(advice)
    if advice.next_phase is None or advice.next_peak_bytes is None:
        return f"{text}."
    after = f"{advice.next_phase} with {show_mib(advice.next_peak_bytes)} MiB"
    if advice.next_peak_bytes > advice.peak_bytes:
        return f"{text}. Higher still is {after}."
    return f"{text}. Next is {after}: what is saved in {advice.phase} alone counts down to there."


def _describe_shortage(advice: PhaseAdvice) -> str:
    if advice.missing_bytes:
        return f", {show_mib(advice.missing_bytes)} MiB more than the device had for it"
    stranded = "" if advice.stranded_bytes is None else f" ({show_mib(advice.stranded_bytes)} MiB)"
    return (
        "; there was room for the request, in pieces: what was reserved and not allocated"
        f"{stranded} could not serve it, and PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may"
    )


def _describe_change(change: PhaseChange, advice: PhaseAdvice) -> str:
    flags = f" ({' '.join(change.flags)})" if change.flags else ""
    where = "" if change.peak_phase == advice.phase else f", then in {change.peak_phase}"
    fits = "" if advice.missing_bytes is None else f"; {_FITS[change.does_fit]}"
    return (
        f"{change.name}{flags}: peak {show_mib(change.peak_bytes)} MiB{where}, "
        f"{show_mib(change.saved_bytes)} MiB less{fits}. Costs: {change.cost}."
    )


def _describe_other(change: PhaseChange, advice: PhaseAdvice) -> str:
    flags = f" ({' '.join(change.flags)})" if change.flags else ""
    if change.part_saved_bytes is None or change.peak_bytes is None:
        return f"{change.name}{flags}: saves {change.part}; how much, only the sizes of the model would tell."
    if change.part_saved_bytes == 0:
        return f"{change.name}{flags}: leaves the {change.part} as they are."
    return (
        f"{change.name}{flags}: {show_mib(change.part_saved_bytes)} MiB of {change.part} would go, "
        f"and the peak would stay, in {change.peak_phase}."
    )


def describe_trials(trials: Sequence[AdviceTrial], width: int) -> Iterator[str]:
    """Yield what changes really came to, beside what was estimated.

    Args:
        trials: One a change that was tried.
        width: Cells of a line.
    """
    rows = [["tried, MiB", "estimated", "peak", "reserved", "less by", ""]]
    for trial in trials:
        sizes = (trial.estimated_peak_bytes, trial.peak_bytes, trial.reserved_peak_bytes, trial.saved_bytes)
        ended = {"finished": "", "out_of_memory": "out of memory", None: "refused"}.get(trial.end, trial.end)
        rows.append([" ".join(trial.flags), *map(show_mib, sizes), ended or ""])
    yield from format_rows(rows, "lrrrrl", width)
    for trial in trials:
        if trial.error is not None:
            yield from wrap(f"{' '.join(trial.flags)}: {make_printable(trial.error)}", width)
    if any("--batch-size" in trial.flags for trial in trials):
        yield from wrap(
            "--batch-size was tried as it is: virtual steps hold the sum of gradients on top", width
        )
