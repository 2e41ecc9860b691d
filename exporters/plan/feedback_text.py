"""A plan held against a measured job, as text: a row a stage, and what would change."""

from collections.abc import Iterator

from ...analyzers.planning.feedback import FeedbackSplit, FeedbackStage, PlanFeedback
from ...engine.text import make_printable
from ...engine.units import GIB, MIB, format_bytes
from ..text_table import count, format_rows, wrap

_MEASURED = ("allocated", "reserved", "device", "difference", "factor", "ranks")
"""Columns; the last ones are left out where a line has no room for them."""


def describe_feedback(feedback: PlanFeedback, width: int) -> str:
    """Return a plan held against a measured job as text.

    Args:
        feedback: What was found.
        width: Cells of a line.
    """
    where = "the running job" if feedback.measured == "live" else feedback.measured
    lines = wrap(
        f"{feedback.model} in {count(len(feedback.stages), 'stage')}, planned beside what was measured in "
        f"{where}: peaks of the rank of each stage that had most. Planned is computed.",
        width,
    )
    lines += ["", *format_rows([*_list_rows(feedback)], "rrrrrrrrr", width), ""]
    for sentence in (_word_factors(feedback), *_word_change(feedback), *feedback.notes):
        lines += wrap(sentence, width)
    return "".join(f"{make_printable(line)}\n" for line in lines)


def _list_rows(feedback: PlanFeedback) -> Iterator[tuple[str, ...]]:
    """Yield heading and stages, in GiB or, of a small model, in MiB."""
    largest = max(max(stage.planned_bytes, stage.allocated_bytes or 0) for stage in feedback.stages)
    unit, name = (GIB, "GiB") if largest >= GIB else (MIB, "MiB")
    has_blocks = any(feedback.present.blocks)
    yield ("stage", "blocks" if has_blocks else "layers", f"planned {name}", *_MEASURED)
    sizes = feedback.present.blocks if has_blocks else feedback.present.layers
    for stage, size in zip(feedback.stages, sizes, strict=True):
        yield _list_cells(stage, size, unit)


def _list_cells(stage: FeedbackStage, size: int, unit: int) -> tuple[str, ...]:
    held = (stage.planned_bytes, stage.allocated_bytes, stage.reserved_bytes, stage.used_bytes)
    difference = stage.difference_bytes
    return (
        str(stage.stage),
        str(size),
        *("—" if each is None else f"{each / unit:,.2f}" for each in held),
        "—" if difference is None else f"{difference / unit:+,.2f}",
        f"{stage.factor:.3f}{'*' if stage.is_factor_assumed else ''}",
        str(stage.ranks),
    )


def _word_factors(feedback: PlanFeedback) -> str:
    assumed = "; * is the median of the others" if any(s.is_factor_assumed for s in feedback.stages) else ""
    return (
        f"Factor: measured {feedback.basis} over planned; difference is of the same two{assumed}. Expected "
        "figures below are planned bytes times the factor of their stage: estimates."
    )


def _word_change(feedback: PlanFeedback) -> Iterator[str]:
    present = feedback.present
    replanned = feedback.replanned
    if not feedback.would_change:
        yield f"The split stays: under these factors none needs less than {_name_fullest(present)}."
    else:
        share = feedback.saving_bytes / present.most_bytes
        yield (
            f"Another split would need less: {_name_blocks(replanned)} instead of "
            f"{_name_blocks(present)}. Expected of the fullest stage: {_name_fullest(replanned)} instead of "
            f"{_name_fullest(present)}, {format_bytes(feedback.saving_bytes)} ({share:.1%}) less."
        )
    if feedback.capacity_bytes is not None:
        yield _word_capacity(replanned, feedback.capacity_bytes)


def _word_capacity(split: FeedbackSplit, capacity_bytes: int) -> str:
    left = capacity_bytes - split.most_bytes
    room = f"leaves {format_bytes(left)}" if left >= 0 else f"is {format_bytes(-left)} more than it has"
    return f"Of a device of {format_bytes(capacity_bytes)} that {room}."


def _name_fullest(split: FeedbackSplit) -> str:
    fullest = split.expected_bytes.index(split.most_bytes)
    return f"{format_bytes(split.most_bytes)} in stage {fullest}"


def _name_blocks(split: FeedbackSplit) -> str:
    """Return what each stage has; layers of a model that has no blocks."""
    has_blocks = any(split.blocks)
    sizes = ", ".join(map(str, split.blocks if has_blocks else split.layers))
    return f"{sizes} {'blocks' if has_blocks else 'layers'}"
