"""What a compiled step of JAX needs, as XLA's own analysis says."""

from typing import Literal

import msgspec

from ....engine.errors import ErrorPart

COMPILED_SCHEMA = "vramscope.compiled-estimate/1"


class CompiledAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """XLA's `memory_analysis` of one compiled step, of one device; None for what this version leaves out."""

    argument_bytes: int | None = None
    output_bytes: int | None = None
    aliased_bytes: int | None = None
    temporary_bytes: int | None = None
    code_bytes: int | None = None
    peak_bytes: int | None = None
    platform: str = ""
    device_kind: str = ""
    jax: str = ""
    devices: int = 1
    error: tuple[ErrorPart, ...] | None = None


class CompiledEstimate(msgspec.Struct, frozen=True, kw_only=True):
    schema: Literal["vramscope.compiled-estimate/1"] = "vramscope.compiled-estimate/1"
    factory: str
    is_estimated: Literal[True] = True
    source: str
    """Who computed the sizes, and for what."""
    platform: str
    """As JAX names what the step was compiled for: `gpu`, `tpu`, `cpu`."""
    device_kind: str
    jax: str
    """Version of JAX."""
    devices: int
    """Devices of the process; the sizes are of one."""
    argument_bytes: int | None
    output_bytes: int | None
    aliased_bytes: int | None
    """Bytes of outputs that are stored in donated arguments."""
    temporary_bytes: int | None
    """Bytes that live within the step only."""
    code_bytes: int | None
    xla_peak_bytes: int | None
    """The most that lives at one time, as XLA says it; None where this version has none."""
    total_bytes: int | None
    """Arguments, outputs, temporaries and code, less what is aliased; None where one is unknown."""
    capacity_bytes: int | None
    does_fit: bool | None
    """Whether the total is within the capacity; None without one."""
    notes: tuple[str, ...]


def judge_compiled(analysis: CompiledAnalysis, factory: str, capacity_bytes: int | None) -> CompiledEstimate:
    parts = (analysis.argument_bytes, analysis.output_bytes, analysis.temporary_bytes, analysis.code_bytes)
    known = [part for part in parts if part is not None]
    total = None
    if len(known) == len(parts) and analysis.aliased_bytes is not None:
        total = sum(known) - analysis.aliased_bytes
    return CompiledEstimate(
        factory=factory,
        source=f"XLA's memory_analysis of the step compiled for {analysis.platform}",
        platform=analysis.platform,
        device_kind=analysis.device_kind,
        jax=analysis.jax,
        devices=analysis.devices,
        argument_bytes=analysis.argument_bytes,
        output_bytes=analysis.output_bytes,
        aliased_bytes=analysis.aliased_bytes,
        temporary_bytes=analysis.temporary_bytes,
        code_bytes=analysis.code_bytes,
        xla_peak_bytes=analysis.peak_bytes,
        total_bytes=total,
        capacity_bytes=capacity_bytes,
        does_fit=None if total is None or capacity_bytes is None else total <= capacity_bytes,
        notes=tuple(_list_notes(analysis)),
    )


def _list_notes(analysis: CompiledAnalysis) -> list[str]:
    notes = [
        "other arrays of the program, the context of the device and libraries are not in it",
        "what runs on the device is limited by what JAX preallocates: 75 % of it by default",
    ]
    if analysis.platform == "cpu":
        notes.insert(0, "compiled for the CPU: for a GPU XLA plans other buffers; run it where a GPU is")
    return notes
