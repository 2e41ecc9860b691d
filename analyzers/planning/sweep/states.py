"""What became of a layout: by its trace first, then by its log, then by the lists of the sweep."""

from typing import Protocol

from ....engine.files.sweep import Sweep, SweepConfiguration
from .model import CellState

_OF_DEGREES = "divisible"
"""In what frameworks say of degrees that cannot be."""


class Limits(Protocol):
    """What the degrees of a layout have to divide, as far as it is known."""

    @property
    def world_size(self) -> int | None:
        """GPUs in all."""
        ...

    @property
    def layers(self) -> int | None:
        """Of the model."""
        ...

    @property
    def heads(self) -> int | None:
        """Attention heads of a layer."""
        ...


def judge_state(configuration: SweepConfiguration, sweep: Sweep) -> tuple[CellState, str | None]:
    """Return the state of a layout that was tried, and why it is not `ok`."""
    log = configuration.log
    outcome = configuration.outcome
    if configuration.trace is not None or outcome == "success":
        return "ok", None
    cause = None if log is None else log.cause
    if log is not None and log.is_out_of_memory:
        return "oom", cause
    if outcome == "started":
        return "running", cause
    if cause is not None:
        return "invalid" if _OF_DEGREES in cause else "failed", cause
    impossible = explain_impossibility(configuration.tp, configuration.pp, sweep, dp=configuration.dp)
    return ("failed", None) if impossible is None else ("invalid", impossible)


def explain_impossibility(tp: int, pp: int, limits: Limits, *, dp: int | None = None) -> str | None:
    """Return why a layout cannot be, None where nothing is known against it.

    Args:
        tp: Tensor parallel size, which the attention heads are divided by.
        pp: Pipeline parallel size, which the layers are divided by.
        limits: World size, layers and heads.
        dp: Data parallel size; None for whatever is left.
    """
    world_size = limits.world_size
    layers = limits.layers
    heads = limits.heads
    if heads is not None and heads % tp:
        return f"{heads:,} attention heads are not divisible by TP {tp:,}"
    if layers is not None and layers % pp:
        return f"{layers:,} layers are not divisible by PP {pp:,}"
    if world_size is not None and world_size % (tp * pp):
        return f"{world_size:,} GPUs are not divisible by TP × PP = {tp * pp:,}"
    if world_size is not None and dp is not None and tp * pp * dp != world_size:
        return f"TP × PP × DP = {tp * pp * dp:,} is not the world size of {world_size:,}"
    return None
