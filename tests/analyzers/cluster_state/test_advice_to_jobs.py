"""Whom a cluster asks to do something: only who can help, soon before an error, and seldom."""

import msgspec

from vramscope.analyzers.cluster_state import Adviser, ClusterState
from vramscope.engine.model import HeadroomEstimate
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import Snapshot

from .clusters import Word, Words, make_node, watch

GRAVE = Word("high", 301.0)
"""A second passes before it is concluded upon."""
CACHING = Word(floor_gib=20, peak_gib=20, reserved_gib=28)
TOKENS = HeadroomEstimate("tokens", 70 * GIB, 100, 9, 9000.0, 0.95, largest_size=6144)


def _share_device(snapshot: Snapshot) -> Snapshot:
    """Return a node whose two ranks train on one device."""
    assert snapshot.sample is not None
    first, second = snapshot.sample.ranks
    ranks = (first, msgspec.structs.replace(second, device_uuid=first.device_uuid))
    return msgspec.structs.replace(snapshot, sample=msgspec.structs.replace(snapshot.sample, ranks=ranks))


def _ask(
    words: Words, *, is_shared: bool = False, seconds: int = 5, adviser: Adviser | None = None
) -> list[str]:
    state, adviser, asked = ClusterState(), adviser or Adviser(), list[str]()
    for at_s in range(seconds):
        nodes = [make_node(number, float(at_s), words) for number in range(2)]
        watch(state, lambda _, its=nodes: map(_share_device, its) if is_shared else its, 1, since_s=at_s)  # type: ignore[misc]
        asked += [f"{it.rank.name}: {it.action}: {it.reason}" for it in adviser.decide(state.picture)]
    return asked


def test_the_neighbour_on_the_device_is_asked_for_its_cache_once_in_ten_minutes() -> None:
    words = {0: GRAVE, 1: CACHING}
    told = (
        "rank 1: empty_cache: rank 0 on the same device may run out of memory in 5 m 00 s; "
        "8.0 GiB of cache here are not needed"
    )
    assert _ask(words, is_shared=True) == [told]
    assert len(_ask(words, is_shared=True, seconds=610)) == 2


def test_nobody_is_asked_for_what_cannot_help() -> None:
    assert _ask({0: GRAVE, 1: CACHING}) == []  # each on a device of its own
    assert _ask({0: GRAVE, 1: CACHING._replace(reserved_gib=20.1)}, is_shared=True) == []
    assert _ask({0: GRAVE, 1: CACHING._replace(peak_gib=28)}, is_shared=True) == [], "its steps need it"
    for later in (Word("high", 3000.0), Word("medium", 300.0), Word("low")):
        assert _ask({0: later, 1: CACHING}, is_shared=True) == []


def test_a_rank_on_a_full_device_is_asked_for_its_cache_for_the_sake_of_other_libraries() -> None:
    [told] = _ask({0: GRAVE._replace(floor_gib=70, peak_gib=70, reserved_gib=78)})
    assert told == (
        "rank 0: empty_cache: the device is full, and 8.0 GiB of the cache are not needed: libraries "
        "outside the allocator, such as NCCL, need room"
    )


def test_a_long_batch_is_to_be_skipped_only_where_sizes_are_told_and_seen_ones_no_longer_fit() -> None:
    [told] = _ask({0: GRAVE._replace(headroom=(TOKENS,))})
    assert told == (
        "rank 0: skip_long_batch: out of memory expected in 5 m 00 s; 6,144 tokens would fit, and steps "
        "of up to 9,000 were seen"
    )
    fits = msgspec.structs.replace(TOKENS, largest_size=20_000)
    assert _ask({0: GRAVE._replace(headroom=(fits,))}) == []
