"""What steps leave behind, once their floors grow steadily: how much by now, and which line holds it."""

from collections.abc import Sequence

from ...engine.model.flight_record import FlightRecord
from ..snapshot_summary import StackGroup
from .model import FloorTrend, KeptMemory

_SLACK = 1.1
"""A line that holds this much more than all that was kept is none that leaked, such as the model's own."""
_FEW_STEPS = 10
"""Between two moments at which something is kept, at most."""


def find_kept(
    record: FlightRecord, trend: FloorTrend | None, stacks: Sequence[StackGroup]
) -> KeptMemory | None:
    """Return what is kept from step to step; None where the floors do not grow steadily.

    It is the newest floor less the model's state; where that is unknown, or its gradients are gone at the
    floor, what the floors grew by over the record, which is the least that it can be.

    Args:
        record: What the probe wrote.
        trend: How the floors of the steps went.
        stacks: Live blocks by stack, the largest first.
    """
    if trend is None or not trend.is_rising:
        return None
    growth = trend.last_bytes - trend.first_bytes
    state = sum_model_state(record)
    newest = next(step.floor_bytes for step in reversed(record.steps) if step.floor_bytes is not None)
    size = growth if state is None else max(growth, newest - state)
    holder = next((group for group in stacks if _may_hold(group, size, trend.steps)), None)
    return KeptMemory(size_bytes=size, growth_bytes_per_step=trend.growth_bytes_per_step, holder=holder)


def _may_hold(group: StackGroup, kept_bytes: int, steps: int) -> bool:
    """Tell a line that may leak: it holds not more than is kept, and a block of each step.

    Where something is kept every few steps only, as an evaluation is, it must hold most of it.
    """
    if group.headline is None or group.size_bytes > _SLACK * kept_bytes:
        return False
    is_most = group.size_bytes >= kept_bytes / 2
    return group.count >= steps or (is_most and group.count >= steps // _FEW_STEPS)


def sum_model_state(record: FlightRecord) -> int | None:
    """Return the bytes of parameters, gradients and optimizer state; None if one is unknown."""
    model = record.model_state
    if model is None:
        return None
    parts = (model.parameters_bytes, model.gradients_bytes, model.optimizer_bytes)
    if any(part is None for part in parts):
        return None
    return sum(part or 0 for part in (*parts, model.grad_sample_bytes))
