"""Runs by phase made by hand, with figures that can be checked by head."""

from typing import Any

from vramscope.engine.model.phase_memory import (
    MemoryLevels,
    PhaseDevice,
    PhaseMemory,
    PhaseRun,
    PhaseTraining,
    TrainingState,
)

MIB = 1 << 20
SIMULATED = PhaseDevice(kind="simulated", name="Simulated 2 GiB GPU", total_bytes=2048 * MIB)
TINY = {"vocab_size": 1000, "hidden_size": 64, "num_layers": 2, "num_heads": 4}
STATE = TrainingState(
    parameters=100 * MIB // 4,
    parameter_bytes=100 * MIB,
    gradient_bytes=100 * MIB,
    per_sample_gradient_bytes=400 * MIB,
    optimizer_bytes=0,
)
STEP = {
    "Forward": (100, 160, 160),
    "Loss": (160, 170, 180),
    "Backward": (170, 600, 650),
    "Optimizer Step": (600, 700, 750),
    "Zero Gradients": (700, 100, 700),
}
"""MiB before, after, at the peak: 70 of activations, gradients of 100, of 4 samples 400, their sum 100."""


def levels(allocated_mib: float, reserved_mib: float | None = None) -> MemoryLevels:
    """Return levels of so many MiB; reserved are 50 more where nothing is said."""
    reserved = allocated_mib + 50 if reserved_mib is None else reserved_mib
    return MemoryLevels(allocated_bytes=round(allocated_mib * MIB), reserved_bytes=round(reserved * MIB))


def phase(name: str, before: float, after: float, peak: float, *, step: int | None = None) -> PhaseMemory:
    """Return a phase by MiB."""
    return PhaseMemory(
        phase=name, step=step, before=levels(before), after=levels(after), peak=levels(peak), seconds=0.5
    )


SETUP = (phase("Model Creation", 0, 100, 100), phase("DP Setup", 100, 100, 100))


def take_step(number: int, **other: tuple[float, float, float]) -> tuple[PhaseMemory, ...]:
    """Return a step as in `STEP`, with other figures for some phases, named with underscores."""
    figures = STEP | {name.replace("_", " "): told for name, told in other.items()}
    return tuple(phase(name, *told, step=number) for name, told in figures.items())


def make_run(**other: Any) -> PhaseRun:
    """Return a run of one step in hooks mode, with other fields as given."""
    fields: dict[str, Any] = {
        "training": PhaseTraining(model_size="tiny", batch_size=4, num_steps=1),
        "device": SIMULATED,
        "model": TINY,
        "phases": (*SETUP, *take_step(1)),
        "losses": (6.9188,),
        "state": STATE,
    }
    return PhaseRun(**(fields | other))
