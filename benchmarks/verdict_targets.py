"""What the verdicts are held to, each with what was measured and whether it is met."""

from collections.abc import Mapping, Sequence

from .verdict_detectors import FAULTS, OURS
from .verdict_scores import Score, score, score_alarms, score_fragmented
from .verdict_speed import Speed
from .verdict_watch import Watched

Target = dict[str, object]
"""Name, measured, limit and whether it is met; None where it was not measured."""
LEAST_HOURS = 3000.0
LEAST_PER_S = 10_000.0


def judge_verdicts(
    scores: Mapping[str, Score], watched: Sequence[Watched], outside: Sequence[Watched], speed: Speed | None
) -> list[Target]:
    """Return every target with its outcome.

    Args:
        scores: Of each detector on made-up runs.
        watched: These runs.
        outside: Recorded and measured runs.
        speed: Of the analyzers; None where it was not measured.
    """
    ours = scores[OURS]
    others = [it.brier_score for name, it in scores.items() if name != OURS and it.brier_score is not None]
    measured = [run for run in outside if run.truth.is_benign and run.family == "measured"]
    alarmed, fragmented = score_fragmented(watched)
    opened = sum(claim.kind in FAULTS for run in measured for claim in run.claims[OURS])
    return [
        at_least("leak F1", ours.leak.f1, 0.98),
        at_most("false findings in 1,000 benign device-hours", ours.false_per_1000_hours, 1.0),
        *(
            at_most(
                f"{kind}: high or critical in 1,000 quiet device-hours",
                score_alarms(watched, kind).false_per_1000_hours,
                1.0,
            )
            for kind in ("live", "series", "device")
        ),
        at_least("benign device-hours", ours.benign_hours, LEAST_HOURS),
        at_most("false findings on measured traces", opened if measured else None, 0.0),
        at_least("OOM recall, 1 min before", ours.recall_at(60.0), 0.98),
        at_least("OOM recall, 5 min before", ours.recall_at(300.0), 0.95),
        at_least(
            "high or critical 1 min before an error by fragmentation (live)",
            alarmed / fragmented if fragmented else None,
            0.98,
        ),
        between("80 % interval covers", ours.coverage, 0.75, 0.85),
        *(target for kind in ("live", "series") for target in _judge_times(watched, kind)),
        at_most("median time error at mid-life", ours.error_at(0.5), 0.05),
        below("Brier score, below every baseline's", ours.brier_score, min(others, default=None)),
        at_least(
            "samples a second through all analyzers",
            None if speed is None else speed.samples_per_s,
            LEAST_PER_S,
        ),
    ]


def _judge_times(watched: Sequence[Watched], kind: str) -> list[Target]:
    it = score([run for run in watched if run.shape.kind == kind], OURS)
    return [
        between(f"{kind}: 80 % interval covers", it.coverage, 0.75, 0.85),
        at_most(f"{kind}: median time error at 90 % of life", it.error_at(0.9), 0.1),
    ]


def at_least(name: str, measured: float | None, limit: float) -> Target:
    """Return a target that a figure must reach."""
    return _target(name, measured, f"≥ {limit:,g}", measured is not None and measured >= limit)


def at_most(name: str, measured: float | None, limit: float) -> Target:
    """Return a target that a figure may not exceed."""
    return _target(name, measured, f"≤ {limit:,g}", measured is not None and measured <= limit)


def between(name: str, measured: float | None, low: float, high: float) -> Target:
    """Return a target that a figure must lie within."""
    return _target(name, measured, f"{low:g}–{high:g}", measured is not None and low <= measured <= high)


def below(name: str, measured: float | None, other: float | None) -> Target:
    """Return a target that a figure must stay below another that was measured too."""
    is_met = measured is not None and other is not None and measured < other
    return _target(name, measured, "—" if other is None else f"< {other:.5f}", is_met)


def _target(name: str, measured: float | None, limit: str, is_met: bool) -> Target:
    return {
        "name": name,
        "measured": measured,
        "limit": limit,
        "is_met": None if measured is None else is_met,
    }
