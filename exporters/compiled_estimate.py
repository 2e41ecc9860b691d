"""What a compiled step of JAX needs, as text."""

from ..analyzers.planning.steps.compiled import CompiledEstimate
from ..engine.text import make_printable
from ..engine.units import format_bytes
from .text import UNKNOWN, format_rows, wrap


def describe_compiled_estimate(estimate: CompiledEstimate, width: int) -> str:
    where = f"{estimate.platform} ({estimate.device_kind})" if estimate.device_kind else estimate.platform
    lead = (
        f"{estimate.factory}: estimated by XLA's memory_analysis of the step compiled for {where}, "
        f"JAX {estimate.jax}; nothing was measured"
    )
    parts = (
        ("arguments", estimate.argument_bytes),
        ("outputs", estimate.output_bytes),
        ("of these in donated arguments", None if not estimate.aliased_bytes else -estimate.aliased_bytes),
        ("temporary, within the step", estimate.temporary_bytes),
        ("code", estimate.code_bytes),
        ("together", estimate.total_bytes),
        ("peak as XLA says it", estimate.xla_peak_bytes),
    )
    optional = {"of these in donated arguments", "peak as XLA says it"}
    rows = [[name, _size(size)] for name, size in parts if size is not None or name not in optional]
    lines = [*wrap(make_printable(lead), width), "", *format_rows(rows, "lr", width), ""]
    if estimate.devices > 1:
        lines += wrap(f"sizes are of one of {estimate.devices:,} devices", width)
    if estimate.capacity_bytes is not None:
        lines += wrap(_say_fit(estimate), width)
    for note in estimate.notes:
        lines += wrap(f"note: {note}", width)
    return "\n".join(lines).rstrip("\n") + "\n"


def _size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return UNKNOWN
    return f"-{format_bytes(-size_bytes)}" if size_bytes < 0 else format_bytes(size_bytes)


def _say_fit(estimate: CompiledEstimate) -> str:
    capacity = format_bytes(estimate.capacity_bytes or 0)
    if estimate.does_fit is None:
        return f"whether it fits into {capacity} is unknown"
    return f"it {'fits' if estimate.does_fit else 'does not fit'} into {capacity}"
