"""Which rank or device of one run is which of the other."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from .summary import Track


class Pair(NamedTuple):
    """One rank or device in both runs."""

    name: str
    a: Track
    b: Track


class Matching(NamedTuple):
    """All of both runs."""

    pairs: tuple[Pair, ...]
    only_in_a: tuple[str, ...]
    """Names of those without a counterpart."""
    only_in_b: tuple[str, ...]


def match_tracks(a: Sequence[Track], b: Sequence[Track]) -> Matching:
    """Return who is who: by rank where it is told, else by the device's UUID, else by its place.

    The place is the number of the node, in the order of names, and that of the device on it. Two different
    ranks are never taken for one.
    """
    left_a = list(a)
    left_b = list(b)
    found: list[tuple[Track, Track]] = []
    taken: set[int] = set()
    for name_key in (_by_rank, _by_uuid, _by_place(a, b)):
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


def _by_rank(track: Track) -> Hashable:
    return track.rank


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
