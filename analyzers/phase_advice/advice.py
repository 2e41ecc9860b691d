"""`advise_phases`: which phase to attack, and what each change would make of the highest peak."""

from collections.abc import Iterable, Sequence

from ...engine.model.phase_memory import PhaseRun
from ...engine.readers.oom_text import parse_oom_text
from .changes import Effect, apply_effect, list_effects
from .levels import PhaseLevel, add_up, list_levels
from .model import PeakPart, PhaseAdvice, PhaseChange
from .parts import Parts, find_needed, find_parts

LEAST_SHARE = 0.01
"""Of the peak: what saves less is not advised."""
FIT_SHARE = 0.95
"""Of what the device had for this run: an estimate below it fits, one above all of it does not."""


def advise_phases(runs: Sequence[PhaseRun]) -> PhaseAdvice | None:
    """Return advice for the rank whose peak is highest; None where nothing was measured, or on the CPU.

    What is resident there stays so when a tensor goes, so that levels do not tell of parts.

    Args:
        runs: One a rank.
    """
    measured = [run for run in runs if run.device.kind != "cpu"]
    advised = [advice for run in measured if (advice := _advise(run)) is not None]
    return max(
        advised, key=lambda advice: (advice.missing_bytes is not None, advice.peak_bytes), default=None
    )


def _advise(run: PhaseRun) -> PhaseAdvice | None:
    parts = find_parts(run)
    levels = sorted(list_levels(run, parts), key=lambda level: -level.peak_bytes)
    if not levels:
        return None
    attacked = _choose_attacked(run, levels)
    rest = [level for level in levels if level is not attacked]
    needed, room = find_needed(run), _find_room(run)
    missing = None if needed is None or room is None else max(0, attacked.peak_bytes - room)
    # What did not fit shows that less than all of the device can be had.
    limit = room if needed is None or room is None else min(needed, room)
    return PhaseAdvice(
        rank=run.rank,
        phase=attacked.phase,
        step=attacked.step,
        peak_bytes=attacked.peak_bytes,
        is_predicted=attacked.is_predicted,
        parts=tuple(_list_parts(attacked, parts)),
        next_phase=rest[0].phase if rest else None,
        next_peak_bytes=rest[0].peak_bytes if rest else None,
        missing_bytes=missing,
        stranded_bytes=_find_stranded(run) if missing == 0 else None,
        changes=tuple(_list_changes(run, parts, levels[0].peak_bytes, limit)),
    )


def _choose_attacked(run: PhaseRun, levels: Sequence[PhaseLevel]) -> PhaseLevel:
    """Return the phase in which memory ran out, else the one with the highest peak."""
    failed = run.failed_phase if run.end == "out_of_memory" else None
    return next((level for level in levels if level.phase == failed), levels[0])


def _find_room(run: PhaseRun) -> int | None:
    """Return what the device had for this run where memory ran out: what it held, and what was free."""
    if run.end != "out_of_memory":
        return None
    said = parse_oom_text(run.error or "")
    if said is not None and said.reserved_bytes is not None and said.free_bytes is not None:
        return said.reserved_bytes + said.free_bytes
    reserved = None if run.held is None else run.held.reserved_bytes
    return reserved if reserved is None or said is None else reserved + (said.free_bytes or 0)


def _find_stranded(run: PhaseRun) -> int | None:
    """Return what was reserved and not allocated when memory ran out."""
    said = parse_oom_text(run.error or "")
    if said is not None and said.reserved_bytes is not None and said.allocated_bytes is not None:
        return said.reserved_bytes - said.allocated_bytes
    return None


def _list_parts(level: PhaseLevel, parts: Parts) -> Iterable[PeakPart]:
    named = [part for name, part in parts.items() if name in level.fullest]
    yield from sorted(named, key=lambda part: -part.size_bytes)
    rest = level.peak_bytes - add_up(level.fullest, parts)
    if rest > 0:
        yield PeakPart(name="everything else", size_bytes=rest, basis="remainder")


def _list_changes(run: PhaseRun, parts: Parts, peak_bytes: int, room: int | None) -> list[PhaseChange]:
    found: dict[str, PhaseChange] = {}
    for effect in list_effects(run, parts):
        change = _judge(effect, run, parts, peak_bytes, room)
        # Of one kind the mildest that does: the first that fits, else the strongest; without a limit a half.
        kind = effect.flags[0] if effect.flags else effect.name
        held = found.get(kind)
        if held is None or (room is not None and held.does_fit is not True):
            found[kind] = change
    return sorted(found.values(), key=lambda change: -(change.saved_bytes or 0))


def _judge(effect: Effect, run: PhaseRun, parts: Parts, peak_bytes: int, room: int | None) -> PhaseChange:
    part = parts[effect.part]
    peaks = apply_effect(effect, run, parts) if effect.is_sized else {}
    phase = max(peaks, key=lambda name: peaks[name], default=None)
    changed = None if phase is None else peaks[phase]
    saved = None if changed is None else max(0, peak_bytes - changed)
    return PhaseChange(
        name=effect.name,
        flags=effect.flags,
        part=effect.part,
        part_saved_bytes=_count_saved(effect, parts),
        basis=part.basis,
        cost=effect.cost,
        peak_bytes=changed,
        peak_phase=phase,
        saved_bytes=saved if saved is None or saved >= LEAST_SHARE * peak_bytes else 0,
        does_fit=None if changed is None or room is None else _fits(changed, room),
    )


def _count_saved(effect: Effect, parts: Parts) -> int | None:
    if not effect.is_sized:
        return None
    share = effect.shares.get(effect.part, 1.0) if effect.shares else 0.0
    return round((1 - share) * parts[effect.part].size_bytes)


def _fits(peak_bytes: int, room: int) -> bool | None:
    if peak_bytes <= FIT_SHARE * room:
        return True
    return False if peak_bytes > room else None
