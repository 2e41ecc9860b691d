"""Compares two runs rank by rank, by step where both have steps and else by time."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from ...engine.files.base.series_reader import WALL_CLOCK_FROM_S
from ...engine.model import Finding
from ..growth_renewal import word_past
from .model import (
    FIGURE_WORDS,
    OUT_OF_MEMORY,
    Alignment,
    Comparison,
    Curves,
    Figure,
    FigureDifference,
    FoundOnce,
    RunDifference,
    RunFacts,
    SubjectDifference,
    word_verdict,
)
from .parting import WINDOWS, Parting, explain_cache, find_parting
from .summary import TIME_UNIT_S, Bins, Cell, RunSummary, Track, walk


class Pair(NamedTuple):
    name: str
    a: Track
    b: Track


class Matching(NamedTuple):
    pairs: tuple[Pair, ...]
    # Names of those without a counterpart.
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]


def match_tracks(a: Sequence[Track], b: Sequence[Track]) -> Matching:
    """Match tracks by rank where it is known, else by the device's UUID, else by its place.

    The place is the number of the node, in the order of names, and that of the device on it. Two different
    ranks are never matched.
    """
    left_a = list(a)
    left_b = list(b)
    found: list[tuple[Track, Track]] = []
    taken: set[int] = set()
    name_keys: tuple[Callable[[Track], Hashable], ...] = (
        lambda track: track.rank,
        _by_uuid,
        _by_place(a, b),
    )
    for name_key in name_keys:
        keys_a = _unique(left_a, name_key)
        keys_b = _unique(left_b, name_key)
        for key in keys_a.keys() & keys_b.keys():
            one = keys_a[key]
            other = keys_b[key]
            if None not in (one.rank, other.rank) and one.rank != other.rank:
                continue
            found.append((one, other))
            taken.update((id(one), id(other)))
        left_a, left_b = ([it for it in left if id(it) not in taken] for left in (left_a, left_b))
    found.sort(key=lambda pair: _order(pair[0]))
    names = _name_all([one if one.rank is not None else other for one, other in found])
    return Matching(
        tuple(Pair(name, *pair) for name, pair in zip(names, found, strict=True)),
        *(tuple(_name_all(sorted(left, key=_order))) for left in (left_a, left_b)),
    )


def _by_uuid(track: Track) -> Hashable:
    node, uuid, _, place = track.key
    return (node, uuid, max(0, place)) if uuid else None


def _by_place(a: Sequence[Track], b: Sequence[Track]) -> Callable[[Track], Hashable]:
    numbers = {
        id(track): number
        for tracks in (a, b)
        for number, node in enumerate(sorted({track.key[0] for track in tracks}))
        for track in tracks
        if track.key[0] == node
    }
    return lambda track: (numbers[id(track)], track.index, max(0, track.key[3]))


def _unique(tracks: Sequence[Track], name_key: Callable[[Track], Hashable]) -> dict[Hashable, Track]:
    counts = Counter(name_key(track) for track in tracks)
    return {key: track for track in tracks if (key := name_key(track)) is not None and counts[key] == 1}


def _order(track: Track) -> tuple[bool, int, str, int, int]:
    return track.rank is None, track.rank or 0, track.key[0], track.index, track.key[3]


def _name_all(tracks: Sequence[Track]) -> list[str]:
    """Return their names, with the node where a name stands for several."""
    counts = Counter(track.name for track in tracks)
    names = [track.name if counts[track.name] == 1 else f"{track.name} of {track.key[0]}" for track in tracks]
    again = Counter(names)
    return [
        name if again[name] == 1 else f"{name}, {track.key[1]}"
        for name, track in zip(names, tracks, strict=True)
    ]


# One rank or device in both runs: which values can be compared, over which steps, and where they part.

# With so many times as many readings of a step as in the other run, the most of a step is no fair comparison.

UNEVEN = 1.5

# Share of readings without the most since the one before, from which that of a step depends on the rate.
SAMPLED = 0.1

_Row = tuple[int, Cell | None, Cell | None]
_GETTERS: Mapping[Figure, Callable[[Cell], float | None]] = {
    "allocated_peak": lambda cell: cell.peak_bytes,
    "allocated_floor": lambda cell: cell.floor_bytes,
    "allocated_mean": lambda cell: _mean(cell.allocated_sum, cell.allocated_count),
    "reserved": lambda cell: cell.reserved_bytes,
    "used": lambda cell: cell.used_bytes,
    "used_mean": lambda cell: _mean(cell.used_sum, cell.used_count),
}
_RATCHETS: tuple[Figure, ...] = ("reserved", "used", "used_mean")


class Compared(NamedTuple):
    difference: SubjectDifference
    curves: Curves
    # Steps or seconds.
    bin_width: float


class _Series(NamedTuple):
    """One value over the bins in which both runs have it."""

    places: list[int]
    a: list[float]
    b: list[float]


def has_common_steps(pair: Pair) -> bool:
    """Return whether the steps of both overlap; samples between them seldom meet the same ones."""
    firsts = [track.first_step for track in (pair.a, pair.b) if track.first_step is not None]
    lasts = [track.last_step for track in (pair.a, pair.b) if track.last_step is not None]
    return len(firsts) == len(lasts) == 2 and max(firsts) <= min(lasts)


def compare_pair(pair: Pair, alignment: Alignment) -> Compared:
    """Compare one rank or device, by step or by time."""
    by_step = alignment == "step"
    one = pair.a.steps.bins() if by_step else pair.a.times
    other = pair.b.steps.bins() if by_step else pair.b.times
    rows = list(walk(one, other, _choose_width(one, other)))
    common = [row for row in rows if row[1] is not None and row[2] is not None]
    scale = one.width * (1.0 if by_step else TIME_UNIT_S)
    figures = _choose_figures(pair, common)
    series = {figure: found for figure in figures if (found := _pick(common, figure)).places}
    parted = _part_all(series)
    told = tuple(_describe_parting(figure, found, series[figure], scale) for figure, found in parted.items())
    span: tuple[float | None, float | None] = (None, None)
    if by_step:
        span = _find_span(pair, common, scale)
    elif common:
        span = common[0][0] * scale, common[-1][0] * scale
    difference = SubjectDifference(
        name=pair.name,
        rank=pair.a.rank if pair.a.rank is not None else pair.b.rank,
        device_a=pair.a.label,
        device_b=pair.b.label,
        aligned_by=alignment,
        compared=len(common),
        from_position=span[0],
        to_position=span[1],
        parting=_choose_parting(told, scale * (len(common) // WINDOWS // 2)),
        figures=told,
        a_step_s=_measure_step([row[1] for row in rows], one.width) if by_step else None,
        b_step_s=_measure_step([row[2] for row in rows], one.width) if by_step else None,
    )
    return Compared(difference, _draw(rows, tuple(series), scale), scale)


def _find_span(pair: Pair, common: Sequence[_Row], width: float) -> tuple[float | None, float | None]:
    """Return the first and last step of the bins that both have, as far as both runs have them."""
    if not common:
        return None, None
    starts = [track.first_step or 0 for track in (pair.a, pair.b)]
    ends = [track.last_step or 0 for track in (pair.a, pair.b)]
    return max(common[0][0] * width, *starts), min((common[-1][0] + 1) * width - 1, *ends)


def _choose_width(one: Bins, other: Bins) -> int:
    """Return the width at which most bins have readings of both: rates and phases of two runs differ."""
    best_width = max(one.width, other.width)
    best = 0
    width = best_width
    while True:
        keys = [{number * bins.width // width for number in bins.cells} for bins in (one, other)]
        common = len(keys[0] & keys[1])
        if common > best:
            best_width = width
            best = common
        if min(map(len, keys)) <= max(1, best):
            return best_width
        width *= 2


def _choose_figures(pair: Pair, common: Sequence[_Row]) -> list[Figure]:
    a = sum(cell.readings for _, cell, _ in common if cell is not None)
    b = sum(cell.readings for _, _, cell in common if cell is not None)
    is_uneven = max(a, b) > UNEVEN * min(a, b)
    tracks = (pair.a, pair.b)
    if is_uneven and any(track.sampled_allocated > SAMPLED * track.readings for track in tracks):
        allocated: list[Figure] = ["allocated_mean"]
    elif pair.a.has_step_floors != pair.b.has_step_floors or (is_uneven and not pair.a.has_step_floors):
        # The least that was read within a step is not what is live at its ends.
        allocated = ["allocated_peak"]
    else:
        allocated = ["allocated_peak", "allocated_floor"]
    is_used_sampled = is_uneven and any(track.sampled_used > SAMPLED * track.readings for track in tracks)
    return [*allocated, "reserved", "used_mean" if is_used_sampled else "used"]


def _pick(common: Sequence[_Row], figure: Figure) -> _Series:
    read = _GETTERS[figure]
    series = _Series([], [], [])
    for number, one, other in common:
        a, b = (None if cell is None else read(cell) for cell in (one, other))
        if a is not None and b is not None:
            series.places.append(number)
            series.a.append(a)
            series.b.append(b)
    return series


def _part_all(series: Mapping[Figure, _Series]) -> dict[Figure, Parting]:
    """Find where each value parts; random differences between steps explain as much of the cache."""
    parted: dict[Figure, Parting] = {}
    tolerance = 0.0
    for figure, found in series.items():
        is_ratchet = figure in _RATCHETS
        parted[figure] = find_parting(
            found.a, found.b, tolerance=tolerance if is_ratchet else 0.0, is_ratchet=is_ratchet
        )
        if figure in ("allocated_peak", "allocated_mean"):
            differences = [b - a for a, b in zip(found.a, found.b, strict=True)]
            tolerance = explain_cache(differences, parted[figure].start)
    return parted


def _describe_parting(figure: Figure, found: Parting, series: _Series, scale: float) -> FigureDifference:
    return FigureDifference(
        figure=figure,
        parts_at=None if found.start is None else series.places[found.start] * scale,
        is_from_start=found.start == 0,
        a_bytes=round(found.a),
        b_bytes=round(found.b),
        difference_bytes=round(found.difference),
        difference_percent=100.0 * found.difference / found.a if found.a else None,
        final_a_bytes=round(found.final_a),
        final_b_bytes=round(found.final_b),
        final_difference_bytes=round(found.final_difference),
        noise_bytes=round(found.band),
    )


def _choose_parting(told: Sequence[FigureDifference], slack: float) -> Figure | None:
    """Return the value that parts first; of those within the slack the one that explains the others."""
    starts = [each.parts_at for each in told if each.parts_at is not None]
    if not starts:
        return None
    early = [each for each in told if each.parts_at is not None and each.parts_at <= min(starts) + slack]
    order = list(FIGURE_WORDS)
    return min(early, key=lambda each: order.index(each.figure)).figure


def _measure_step(cells: Sequence[Cell | None], width: int) -> float | None:
    """Return the median duration of a step as reported by steps, else the mean time from one to the next."""
    known = [cell for cell in cells if cell is not None]
    told = [cell.duration_sum_s / cell.duration_count for cell in known if cell.duration_count]
    if told:
        return median(told)
    present = [(place, cell) for place, cell in enumerate(cells) if cell is not None]
    if len(present) < 2:
        return None
    first, start = present[0]
    last, end = present[-1]
    length_s = end.start_s - start.start_s
    return length_s / ((last - first) * width) if length_s > 0 else None


def _draw(rows: Sequence[_Row], figures: Sequence[Figure], scale: float) -> Curves:
    def read(place: int, figure: Figure) -> tuple[float | None, ...]:
        cells = (row[1] if place == 1 else row[2] for row in rows)
        return tuple(None if cell is None else _GETTERS[figure](cell) for cell in cells)

    return Curves(
        tuple(row[0] * scale for row in rows),
        {figure: read(1, figure) for figure in figures},
        {figure: read(2, figure) for figure in figures},
    )


def _mean(total: int, count: int) -> float | None:
    return total / count if count else None


def step_at(track: Track, since_s: float) -> float | None:
    """Return the step of a rank at a time since the start of its run; None where it has no steps."""
    bins = track.steps.bins()
    begun = [number for number, cell in bins.cells.items() if cell.start_s <= since_s]
    return float(max(begun) * bins.width) if begun else None


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
        ended_s=run.end_s if run.end_s >= WALL_CLOCK_FROM_S else None,
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
        found = FoundOnce(kind=finding.kind, subject=who, at=at, title=word_past(finding))
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
