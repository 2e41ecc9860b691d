"""What happened in one run and not in the other: out-of-memory errors and findings."""

from collections.abc import Iterator, Sequence

from ...engine.model import Finding
from .matching import Pair
from .model import Alignment, FoundOnce
from .pairing import step_at
from .summary import RunSummary, Track

OUT_OF_MEMORY = "oom_met"
_Key = tuple[str, str]
"""Kind, and who."""


def find_once(
    a: RunSummary, b: RunSummary, pairs: Sequence[Pair], alignment: Alignment
) -> tuple[tuple[FoundOnce, ...], tuple[FoundOnce, ...]]:
    """Return what was found in A only and in B only, errors first, then in the order of time.

    Of each kind the first on each rank or device counts.
    """
    in_a = dict(_list_all(a, {id(pair.a): pair.name for pair in pairs}, alignment))
    in_b = dict(_list_all(b, {id(pair.b): pair.name for pair in pairs}, alignment))
    return _leave(in_a, in_b), _leave(in_b, in_a)


def _leave(these: dict[_Key, FoundOnce], others: dict[_Key, FoundOnce]) -> tuple[FoundOnce, ...]:
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
