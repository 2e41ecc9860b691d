"""Studies made by hand: runs whose memory follows a law that a test knows."""

import msgspec

from vramscope.engine.model.phase_memory import (
    LengthPoint,
    LengthStudy,
    MemoryLevels,
    PhaseDevice,
    PhaseMemory,
    PhaseRun,
    PhaseTraining,
    PrivacyMode,
)

MIB = 1 << 20
LENGTHS = (64, 128, 256, 512, 1024, 2048)
DEVICE = PhaseDevice(kind="simulated", name="Simulated 24 GiB GPU", total_bytes=24 << 30)
PHASES = (
    "Model Creation",
    "DP Setup",
    "Forward",
    "Loss",
    "Backward",
    "Optimizer Step",
    "Zero Gradients",
)


def differences(privacy: PrivacyMode, length: int) -> dict[str, int]:
    """Return what each phase adds: constant, linear and quadratic in the length."""
    gradients = {"none": 100, "hooks": 200, "functorch": 200, "ghost": 110}[privacy] * MIB
    forward = 2 * MIB + 1_000 * length + 48 * length * length
    return {
        "Model Creation": 100 * MIB,
        "DP Setup": 0,
        "Forward": forward,
        "Loss": 4_000 * length,
        "Backward": gradients - forward - 4_000 * length,
        "Optimizer Step": 0,
        "Zero Gradients": -gradients,
    }


def make_run(
    privacy: PrivacyMode = "hooks", length: int = 128, batch: int = 1, fails_in: str | None = None
) -> PhaseRun:
    """Return a run of one step; it runs out of memory in a phase where one is named."""
    training = PhaseTraining(
        model_size="tiny", batch_size=batch, seq_length=length, num_steps=1, privacy=privacy
    )
    told, held = [], 0
    added = {name: it for name, it in differences(privacy, length).items() if _has(privacy, name)}
    names = list(added) if fails_in is None else list(added)[: list(added).index(fails_in)]
    for name in names:
        before, held = held, held + added[name]
        peak = max(before, held) + (MIB if name == "Backward" else 0)
        step = None if name in PHASES[:2] else 1
        told.append(
            PhaseMemory(
                phase=name, step=step, before=_levels(before), after=_levels(held), peak=_levels(peak)
            )
        )
    failed = {} if fails_in is None else {"failed_phase": fails_in, "failed_step": 1}
    run = PhaseRun(training=training, device=DEVICE, phases=tuple(told))
    if fails_in is None:
        return run
    return msgspec.structs.replace(run, end="out_of_memory", requested_bytes=512 * MIB, **failed)


def make_study(
    modes: tuple[PrivacyMode, ...] = ("hooks",),
    lengths: tuple[int, ...] = LENGTHS,
    out_of_memory: dict[int, str] | None = None,
) -> LengthStudy:
    """Return a study.

    Args:
        modes: Algorithms.
        lengths: Tokens.
        out_of_memory: Lengths at which memory runs out, and in which phase.
    """
    failures = out_of_memory or {}
    return LengthStudy(
        training=PhaseTraining(model_size="tiny", num_steps=1, privacy=modes[0]),
        device="simulate:24GiB",
        lengths=lengths,
        privacy_modes=modes,
        points=tuple(
            LengthPoint(
                privacy=mode, seq_length=length, run=make_run(mode, length, fails_in=failures.get(length))
            )
            for mode in modes
            for length in lengths
        ),
    )


def _has(privacy: PrivacyMode, phase: str) -> bool:
    return privacy != "none" or phase != "DP Setup"


def _levels(allocated: int) -> MemoryLevels:
    return MemoryLevels(allocated_bytes=allocated, reserved_bytes=-(-allocated // (2 * MIB)) * 2 * MIB)
