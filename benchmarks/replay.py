"""Replay: CPU until a moment is worked out, from the start, from a kept state, and of many nodes at once.

The peer of going back is the same player that keeps nothing, in turn on the same recording.
"""

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from vramscope.engine.clock import SystemClock
from vramscope.engine.history import History
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    MemoryReading,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.plugins import make_analyzers
from vramscope.engine.recording import RecordingIdentity, RecordingWriter
from vramscope.engine.replay.node_player import Marks, NodePlayer
from vramscope.engine.replay.player import ReplayCommand, ReplayOptions, ReplayPlayer
from vramscope.engine.replay.tapes import RecordingTape, open_tapes

from .measure.tables import format_number, format_table

GIB = 1 << 30
START_S = 1_700_000_000.0
DEVICES, NODES = 8, 16
LENGTH_S, SHORT_S = 7200, 1800
BACK_S = 10.0


@dataclass(frozen=True)
class ReplayCost:
    """Seconds of CPU, medians."""

    anew_s: float
    """Ten seconds back, all that is before the moment fed again."""
    kept_s: float
    """The same from a state that was kept."""
    anew_ranks_s: float
    """As `anew_s`, with a training process on each device."""
    kept_ranks_s: float
    open_nodes_s: float
    """Until the tapes of `NODES` nodes are open."""
    seen_node_s: float
    """Until the node that is looked at is worked out, half an hour into the recording of all."""


def measure_replay(runs: int) -> ReplayCost:
    """Return what moving in a replay costs.

    Args:
        runs: Jumps of each kind; the median counts.
    """
    with tempfile.TemporaryDirectory(prefix="replay-") as name:
        folder = Path(name)
        plain = _measure_back(_record(folder / "plain.vscope", "node", LENGTH_S, has_ranks=False), runs)
        ranks = _measure_back(_record(folder / "ranks.vscope", "node", LENGTH_S, has_ranks=True), runs)
        paths = [
            _record(folder / f"{at}.vscope", f"node{at}", SHORT_S, has_ranks=False) for at in range(NODES)
        ]
        return ReplayCost(*plain, *ranks, *_measure_nodes(paths))


def format_replay(cost: ReplayCost) -> str:
    """Return the table of what moving in a replay costs."""
    rows = [
        [f"{DEVICES} devices, 10 s back, from the start", format_number(cost.anew_s, 3), ""],
        ["… from a kept state", format_number(cost.kept_s, 3), _format_ratio(cost.anew_s, cost.kept_s)],
        ["with training processes, from the start", format_number(cost.anew_ranks_s, 3), ""],
        [
            "… from a kept state",
            format_number(cost.kept_ranks_s, 3),
            _format_ratio(cost.anew_ranks_s, cost.kept_ranks_s),
        ],
        [f"{NODES} nodes of {DEVICES} devices open", format_number(cost.open_nodes_s, 3), ""],
        ["… the node that is looked at, after a jump", format_number(cost.seen_node_s, 3), ""],
    ]
    return format_table("Replay: seconds of CPU (medians)", ["", "seconds", "times faster"], rows)


def _format_ratio(fresh_s: float, kept_s: float) -> str:
    return format_number(fresh_s / kept_s, 0)


def _measure_back(path: Path, runs: int) -> tuple[float, float]:
    """Return the seconds to go back by ten seconds, from the start and from what was kept, in turn."""
    tape = RecordingTape(path)
    players = [
        NodePlayer(
            tape,
            make_analyzers=lambda: make_analyzers().made,
            history=History(),
            marks=Marks(()),
            checkpoints=kept,
        )
        for kept in (0, 8)
    ]
    at_s = tape.start_s + LENGTH_S - 300
    for player in players:
        _go(player, at_s)
    times_s = [[_go(player, at_s - BACK_S * run) for player in players] for run in range(1, runs + 1)]
    tape.close()
    fresh_s, kept_s = (median(column) for column in zip(*times_s, strict=True))
    return fresh_s, kept_s


def _go(player: NodePlayer, time_s: float) -> float:
    begun_s = time.process_time()
    player.jump(time_s)
    player.catch_up(lambda: False)
    return time.process_time() - begun_s


def _measure_nodes(paths: list[Path]) -> tuple[float, float]:
    begun_s = time.process_time()
    tapes = open_tapes(paths)
    open_s = time.process_time() - begun_s
    player = ReplayPlayer(
        tapes,
        make_analyzers=lambda: make_analyzers().made,
        histories=lambda _: History(),
        clock=SystemClock(),
        options=ReplayOptions(is_paused=True),
    )
    player.catch_up(lambda: False)
    begun_s = time.process_time()
    player.apply(ReplayCommand("go", text="100%"))
    player.catch_up(lambda: False)
    player.close()
    return open_s, time.process_time() - begun_s


def _record(path: Path, node: str, length_s: int, *, has_ranks: bool) -> Path:
    with RecordingWriter(path, RecordingIdentity(node, START_S, "benchmark", interval_s=1.0)) as writer:
        for tick in range(length_s):
            writer.append(_make_sample(node, tick, has_ranks=has_ranks))
    return path


def _make_sample(node: str, tick: int, *, has_ranks: bool) -> Sample:
    places = range(DEVICES)
    ranks = tuple(_make_rank(place, tick) for place in places) if has_ranks else ()
    return Sample(
        node, tick, START_S + tick, 1.0, tuple(_make_device(it, tick) for it in places), ranks=ranks
    )


def _make_device(place: int, tick: int) -> DeviceSample:
    used = int((50 + place + 3 * math.sin(tick / 9 + place)) * GIB)
    memory = MemoryReading(80 * GIB, used, 80 * GIB - used, used - GIB, used + GIB)
    return DeviceSample(f"GPU-{place}", place, "H100", memory=memory)


def _make_rank(place: int, tick: int) -> RankSample:
    allocated = int((45 + place + 3 * math.sin(tick / 9 + place)) * GIB)
    allocator = AllocatorReading(allocated, allocated + GIB, allocated + 4 * GIB)
    step = StepReading(tick, START_S + tick - 0.5, 1.0, allocated - GIB, allocated + GIB, True)
    return RankSample(
        pid=4000 + place,
        started_s=START_S,
        device_uuid=f"GPU-{place}",
        backend="cuda",
        age_s=0.1,
        allocator=allocator,
        step=step,
        steps_within=1,
    )
