"""What measured and computed bytes differ in, in sentences: a difference that is named can be trusted."""

from ...engine.units import format_bytes
from .breakdown import KIND_WORDS, Breakdown, KindBreakdown

_LEAST_SHARE = 0.01
"""Of the larger figure; below it two figures say the same."""


def explain_differences(breakdown: Breakdown) -> tuple[str, ...]:
    """Return a sentence for each kind whose two figures are known and differ, and one for the remainder."""
    sentences = [_explain(each) for each in breakdown.kinds]
    return (*(each for each in sentences if each), *_explain_remainder(breakdown))


def _explain(kind: KindBreakdown) -> str:
    measured = kind.measured_bytes
    computed = kind.computed_bytes
    if (
        measured is None
        or computed is None
        or abs(measured - computed) <= _LEAST_SHARE * max(measured, computed)
    ):
        return ""
    figures = f"{format_bytes(measured)} measured, {format_bytes(computed)} computed"
    return f"{KIND_WORDS[kind.kind]}: {figures}: {_name_cause(kind, measured < computed)}"


def _name_cause(kind: KindBreakdown, is_less: bool) -> str:
    if kind.kind == "activation":
        return (
            "computed is what modules without children put out; measured is what autograd saved for the "
            "backward pass, inputs, attention and loss among it"
        )
    if kind.kind == "grads" and is_less:
        return (
            "computed counts one for each parameter; measured are those that were there when it was written"
        )
    if is_less:
        return "tensors share storages, which are counted once, or have none of their own"
    return "storages are larger than the tensors in them"


def _explain_remainder(breakdown: Breakdown) -> tuple[str, ...]:
    allocated = breakdown.allocated_bytes
    rest = breakdown.unattributed_bytes
    if allocated is None or rest is None:
        return ()
    return (
        f"the allocator had {format_bytes(allocated)} when it had most: {format_bytes(rest)} of it in no "
        "tensor counted here (buffers, temporary tensors, workspaces, rounding)",
    )
