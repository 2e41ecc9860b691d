"""Two runs held against each other, rank by rank, by step where both tell steps and else by time."""

from collections.abc import Sequence

from .matching import Matching, match_tracks
from .model import Alignment, Comparison, FoundOnce, RunDifference, RunFacts, SubjectDifference
from .occurrences import find_once
from .pairing import Compared, compare_pair, has_common_steps
from .summary import RunSummary
from .words import word_verdict

LINE_CELLS = 400
"""Cells of the verdict in its complete form."""


def compare_runs(
    a: RunSummary, b: RunSummary, *, files: tuple[str, str], formats: tuple[str, str] = ("", "")
) -> Comparison:
    """Return where and when two runs part; the summaries cannot be used again.

    Ranks are compared with the same rank, devices with the same UUID or place. Steps are aligned by their
    number, so that runs of different speed, length and sampling rate can be compared; where no rank has steps
    that both runs have, seconds since the first sample are. `parting.py` says how they are told from noise.

    Args:
        a: The run that is compared with.
        b: The run that is compared; differences are B less A.
        files: Names of both.
        formats: What they are.
    """
    matching = match_tracks(a.tracks, b.tracks)
    steps = {id(pair): has_common_steps(pair) for pair in matching.pairs}
    alignment: Alignment = "step" if any(steps.values()) else "time"
    compared = [compare_pair(pair, "step" if steps[id(pair)] else "time") for pair in matching.pairs]
    facts = _describe(a, files[0], formats[0]), _describe(b, files[1], formats[1])
    because = _explain_time(a, b, matching) if alignment == "time" else None
    once = find_once(a, b, matching.pairs, alignment)
    return _conclude(compared, matching, facts, once, alignment, because)


def _conclude(
    compared: Sequence[Compared],
    matching: Matching,
    facts: tuple[RunFacts, RunFacts],
    once: tuple[tuple[FoundOnce, ...], tuple[FoundOnce, ...]],
    alignment: Alignment,
    because: str | None,
) -> Comparison:
    subjects = tuple(each.difference for each in compared)
    first = _find_first(subjects, alignment)
    most = _find_most(subjects)
    told = first or most
    verdict = word_verdict(subjects, told, most, *once, told.aligned_by if told is not None else alignment)
    difference = RunDifference(
        verdict=verdict.fit(LINE_CELLS),
        aligned_by=alignment,
        aligned_because=because,
        bin_width=max((each.bin_width for each in compared), default=1.0),
        a=facts[0],
        b=facts[1],
        parts=told is not None,
        first=None if told is None else told.name,
        most=None if most is None else most.name,
        subjects=subjects,
        only_in_a=matching.only_in_a,
        only_in_b=matching.only_in_b,
        found_only_in_a=once[0],
        found_only_in_b=once[1],
    )
    return Comparison(difference, tuple(each.curves for each in compared), verdict)


def _find_first(subjects: Sequence[SubjectDifference], alignment: Alignment) -> SubjectDifference | None:
    """Return who parts first, of those aligned as the runs are; of several the one that parts more."""
    parted = [each for each in subjects if each.parting is not None and each.aligned_by == alignment]

    def order(subject: SubjectDifference) -> tuple[float, int]:
        shown = subject.shown
        start = 0.0 if shown is None or shown.parts_at is None else shown.parts_at
        return start, -subject.capital_bytes

    return min(parted, key=order, default=None)


def _find_most(subjects: Sequence[SubjectDifference]) -> SubjectDifference | None:
    parted = [each for each in subjects if each.parting is not None]
    return max(parted, key=lambda subject: subject.capital_bytes, default=None)


def _explain_time(a: RunSummary, b: RunSummary, matching: Matching) -> str | None:
    if not matching.pairs:
        return None
    has_steps = [any(track.first_step is not None for track in run.tracks) for run in (a, b)]
    if all(has_steps):
        return "they have no steps in common"
    missing = [name for name, found in zip("AB", has_steps, strict=True) if not found]
    return f"{' and '.join(missing)} {'tells' if len(missing) == 1 else 'tell'} no steps"


def _describe(run: RunSummary, file: str, kind: str) -> RunFacts:
    starts = [track.first_step for track in run.tracks if track.first_step is not None]
    ends = [track.last_step for track in run.tracks if track.last_step is not None]
    left_out = run.subjects_left_out
    more = (f"ranks and devices past the first few thousand were left out: {left_out:,}",) if left_out else ()
    return RunFacts(
        file=file,
        format=kind,
        samples=run.samples,
        duration_s=run.end_s - run.start_s,
        subjects=len(run.tracks),
        first_step=min(starts, default=None),
        last_step=max(ends, default=None),
        restarts=max((track.steps.restarts for track in run.tracks), default=0),
        notes=(*run.notes, *more),
        is_simulated=run.is_simulated,
    )
