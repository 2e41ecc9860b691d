"""Histories of calls that hypothesis makes up, and how they are played to an allocator."""

import random
from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

Action = Literal["malloc", "free", "record", "finish", "empty", "begin", "end", "release", "read"]
KIB, MIB = 1 << 10, 1 << 20

SIZES = st.one_of(
    st.integers(1, 4 * KIB),
    st.integers(1, 2 * MIB),
    st.sampled_from([MIB, MIB + 1, 2 * MIB, 10 * MIB - 512, 10 * MIB, 20 * MIB, 21 * MIB]),
    st.integers(1, 60).map(lambda mebibytes: mebibytes * MIB),
    st.integers(1, 40 * MIB),
)
"""Around every limit of the rules, and in between."""


@dataclass(frozen=True)
class Call:
    """One call: which, with what size, on which stream, for the how-many-th of what is there."""

    action: Action
    size: int = 0
    stream: int = 0
    which: int = 0


_MALLOC = st.builds(Call, st.just("malloc"), SIZES, st.sampled_from([0, 0, 0, 5]))
_FREE = st.builds(Call, st.just("free"), which=st.integers(0, 1000))
_SELDOM = st.builds(Call, st.sampled_from(["empty", "read"]))
_STREAMS = st.builds(Call, st.sampled_from(["record", "finish"]), which=st.integers(0, 1000))
_POOLS = st.builds(Call, st.sampled_from(["begin", "end", "release"]), which=st.integers(0, 1))

PLAIN = st.lists(st.one_of(_MALLOC, _MALLOC, _FREE, _FREE, _SELDOM), max_size=80)
"""Mallocs and frees, now and then the cache emptied or the statistics read."""

STREAMED = st.lists(st.one_of(_MALLOC, _MALLOC, _FREE, _FREE, _STREAMS, _SELDOM), max_size=80)
"""With blocks that another stream uses."""

POOLED = st.lists(st.one_of(_MALLOC, _MALLOC, _FREE, _FREE, _POOLS, _SELDOM), max_size=80)
"""With private pools."""

TEXTS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:20",
    "max_split_size_mb:32,max_non_split_rounding_mb:24",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[1:8,4:2,16:0,>:4]",
    "expandable_segments:True,max_split_size_mb:24",
    "large_segment_size_mb:12",
    "expandable_segments:True,large_segment_size_mb:12",
    "garbage_collection_threshold:0.5,per_process_memory_fraction:0.6",
    "per_process_memory_fraction:0.5",
)
"""Settings that change how memory is laid out, alone and together."""

SETTINGS = st.sampled_from(TEXTS)
CAPACITIES = st.sampled_from([48 * MIB, 100 * MIB, 250 * MIB, 10_000 * MIB])


_ACTIONS: list[Action] = ["malloc", "free", "record", "finish", "empty", "begin", "end", "release", "read"]
_WEIGHTS = [50, 42, 4, 2, 0.3, 0.5, 0.6, 0.5, 1]


def make_long_history(seed: int, length: int) -> list[Call]:
    """Return a history of every kind of call, long enough for a full and fragmented card."""
    rng = random.Random(seed)
    sizes = [rng.choice([rng.randrange(1, MIB), rng.randrange(1, 30 * MIB)]) for _ in range(12)]
    calls = []
    for _ in range(length):
        action = rng.choices(_ACTIONS, _WEIGHTS)[0]
        size = rng.choice([rng.choice(sizes), rng.randrange(1, 3000), rng.randrange(1, 12 * MIB)])
        stream = rng.choices([0, 5], [9, 1])[0]
        which = rng.randrange(2) if action in {"begin", "end", "release"} else rng.randrange(1000)
        calls.append(Call(action, size, stream, which))
    return calls
