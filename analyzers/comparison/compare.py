"""Compares two runs rank by rank, by step where both have steps and else by time."""

from collections.abc import Iterator, Sequence

from ...engine.model import Finding
from .model import (
    OUT_OF_MEMORY,
    Alignment,
    Comparison,
    FoundOnce,
    RunDifference,
    RunFacts,
    SubjectDifference,
    word_verdict,
)
from .pairing import Compared, Matching, Pair, compare_pair, has_common_steps, match_tracks, step_at
from .summary import RunSummary, Track

# Cells of the verdict in its complete form.
LINE_CELLS = 400


def compare_runs(
    a: RunSummary, b: RunSummary, *, files: tuple[str, str], formats: tuple[str, str] = ("", "")
) -> Comparison:
    """Return where and when two runs part; the summaries cannot be used again.

    Ranks are compared with the same rank, devices with the same UUID or place. Steps are aligned by their
    number, so that runs of different speed, length and sampling rate can be compared; where no rank has steps
    that both runs have, seconds since the first sample are. `parting.py` explains the test for noise.
    Differences are B less A.
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
    parted = [each for each in subjects if each.parting is not None]
    most = max(parted, key=lambda subject: subject.capital_bytes, default=None)
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
    """Return who parts first, among those aligned as the runs are; of several the one that parts more."""
    parted = [each for each in subjects if each.parting is not None and each.aligned_by == alignment]

    def order(subject: SubjectDifference) -> tuple[float, int]:
        shown = subject.shown
        start = 0.0 if shown is None or shown.parts_at is None else shown.parts_at
        return start, -subject.capital_bytes

    return min(parted, key=order, default=None)


def _explain_time(a: RunSummary, b: RunSummary, matching: Matching) -> str | None:
    if not matching.pairs:
        return None
    has_steps = [any(track.first_step is not None for track in run.tracks) for run in (a, b)]
    if all(has_steps):
        return "they share no steps"
    missing = [name for name, found in zip("AB", has_steps, strict=True) if not found]
    return f"{' and '.join(missing)} {'has' if len(missing) == 1 else 'have'} no steps"


def _describe(run: RunSummary, file: str, kind: str) -> RunFacts:
    starts = [track.first_step for track in run.tracks if track.first_step is not None]
    ends = [track.last_step for track in run.tracks if track.last_step is not None]
    left_out = run.subjects_left_out
    more = (f"left out: {left_out:,} ranks and devices after the first few thousand",) if left_out else ()
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


# What happened in one run and not in the other: out-of-memory errors and findings.

# Kind, and subject.

_Key = tuple[str, str]


def find_once(
    a: RunSummary, b: RunSummary, pairs: Sequence[Pair], alignment: Alignment
) -> tuple[tuple[FoundOnce, ...], tuple[FoundOnce, ...]]:
    """Return what was found in A only and in B only, errors first, then in the order of time.

    Of each kind the first on each rank or device counts.
    """
    in_a = dict(_list_all(a, {id(pair.a): pair.name for pair in pairs}, alignment))
    in_b = dict(_list_all(b, {id(pair.b): pair.name for pair in pairs}, alignment))
    return _list_only(in_a, in_b), _list_only(in_b, in_a)


def _list_only(these: dict[_Key, FoundOnce], others: dict[_Key, FoundOnce]) -> tuple[FoundOnce, ...]:
    left = [found for key, found in these.items() if key not in others]
    return tuple(sorted(left, key=lambda found: (found.kind != OUT_OF_MEMORY, found.at or 0.0)))


def _list_all(
    run: RunSummary, names: dict[int, str], alignment: Alignment
) -> Iterator[tuple[_Key, FoundOnce]]:
    """Yield the first of each kind on each; later ones first, so that a dict keeps the first."""
    for finding in reversed(run.findings):
        track = next((each for each in run.tracks if _is_about(finding, each)), None)
        who = None if track is None else names.get(id(track), track.name)
        at = _place(track, finding.opened_s - run.start_s, alignment)
        found = FoundOnce(kind=finding.kind, subject=who, at=at, title=finding.title)
        yield (finding.kind, who or finding.node), found
    for track in run.tracks:
        if track.first_oom_s is not None:
            who = names.get(id(track), track.name)
            at = _place(track, track.first_oom_s, alignment)
            title = f"{who} ran out of memory"
            yield (OUT_OF_MEMORY, who), FoundOnce(kind=OUT_OF_MEMORY, subject=who, at=at, title=title)


def _is_about(finding: Finding, track: Track) -> bool:
    return finding.device_uuid is not None and (finding.node, finding.device_uuid) == track.key[:2]


def _place(track: Track | None, since_s: float, alignment: Alignment) -> float | None:
    if alignment == "time":
        return max(0.0, since_s)
    return None if track is None else step_at(track, since_s)
