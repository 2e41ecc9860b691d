"""How fast the allocator model runs, by the calls a simulated device makes and by replaying a trace.

The peer is the naive reading of the same rules that the tests hold the model against: it looks at every block
at every call, and so gets only the beginning of a trace.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median

from tests.analyzers.allocator_model.naive import NaiveAllocator
from vramscope.analyzers.allocator_model import (
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
    replay,
)

from .allocator_traces import Event, make_training_trace
from .budgets import Budget
from .measure.tables import format_number, format_table

LIMIT_NS = 2000.0
"""Of one event: 500,000 a second."""
STEPS = 20
NAIVE_EVENTS = 600
LENGTHS = tuple(range(256, 1025, 8))
CARD_BYTES = 80 << 30


@dataclass(frozen=True)
class AllocatorSpeed:
    """CPU time of one event: the median of some runs."""

    what: str
    trace: str
    events: int
    event_us: float

    @property
    def events_per_s(self) -> float:
        """Events in a second of CPU time."""
        return 1e6 / self.event_us


def measure_allocator_model(runs: int) -> list[AllocatorSpeed]:
    """Return the speed of calls and of replays, on steps that are alike and on steps of all lengths.

    Args:
        runs: Runs of each, in turn; the median counts.
    """
    traces = {
        "same length": make_training_trace(STEPS),
        "variable length": make_training_trace(STEPS, LENGTHS),
    }
    ways: dict[str, Callable[[Sequence[Event]], None]] = {
        "malloc and free": lambda events: _call_model(events, ""),
        "replay": _replay,
        "malloc and free, expandable": lambda events: _call_model(events, "expandable_segments:True"),
    }
    speeds = []
    for trace, events in traces.items():
        seconds: dict[str, list[float]] = {what: [] for what in ways}
        for _ in range(runs):
            for what, run in ways.items():
                seconds[what].append(_time(run, events))
        speeds += [
            AllocatorSpeed(what, trace, len(events), _per_event(s, events)) for what, s in seconds.items()
        ]
        start = events[:NAIVE_EVENTS]
        naive = [_time(_call_naive, start)]
        speeds.append(
            AllocatorSpeed("naive reading of the rules", trace, len(start), _per_event(naive, start))
        )
    return speeds


def _per_event(seconds: Sequence[float], events: Sequence[Event]) -> float:
    return 1e6 * median(seconds) / len(events)


def _time(run: Callable[[Sequence[Event]], None], events: Sequence[Event]) -> float:
    """Return the CPU seconds of a run."""
    with _collected_garbage():
        start = time.process_time()
        run(events)
        return time.process_time() - start


@contextmanager
def _collected_garbage() -> Iterator[None]:
    """Let no run pay for what the one before left."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def _call_model(events: Sequence[Event], settings: str) -> None:
    allocator = CachingAllocator(PrivateDeviceMemory(CARD_BYTES), AllocatorSettings.parse(settings))
    malloc, free = allocator.malloc, allocator.free
    live: dict[int, int] = {}
    for block, size in events:
        if size:
            live[block] = malloc(size)
        else:
            free(live.pop(block))
    allocator.memory_stats()


def _replay(events: Sequence[Event]) -> None:
    if replay(events, capacity_bytes=CARD_BYTES).oom_event is not None:
        raise RuntimeError("the trace does not fit the card")


def _call_naive(events: Sequence[Event]) -> None:
    naive = NaiveAllocator(AllocatorSettings(), CARD_BYTES)
    live: dict[int, int] = {}
    for block, size in events:
        if size:
            live[block] = naive.malloc(size)
        else:
            naive.free(live.pop(block))


def judge_allocator_model(speeds: Sequence[AllocatorSpeed]) -> list[Budget]:
    """Return the budgets: an event within two microseconds, on either trace."""
    return [
        Budget(f"allocator model, {speed.what}, {speed.trace}", 1000 * speed.event_us, LIMIT_NS, "ns/event")
        for speed in speeds
        if speed.what in {"malloc and free", "replay"}
    ]


def format_allocator_model(speeds: Sequence[AllocatorSpeed]) -> str:
    """Return the table of speeds."""
    rows = [
        [
            f"{speed.what}, {speed.trace}",
            f"{speed.events:,}",
            format_number(speed.event_us, 2),
            format_number(speed.events_per_s, 0),
        ]
        for speed in speeds
    ]
    head = ["", "events", "µs/event", "events/s"]
    return format_table("Allocator model (CPU time, medians)", head, rows)


def as_allocator_figures(speeds: Sequence[AllocatorSpeed]) -> list[dict[str, object]]:
    """Return the speeds as they stand in the JSON."""
    return [asdict(speed) for speed in speeds]
