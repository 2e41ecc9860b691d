"""The words of the title: node, devices, state of the agent, and the time of the values."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from ...analyzers.verdict import describe_left_out
from ...engine.model import HubStatus, RankSample, Sample
from ...engine.units import format_age, format_seconds
from ...engine.viewer.snapshot import Snapshot
from ..draw.glyphs import Glyphs
from ..draw.numbers import count_text
from ..draw.pieces import Piece, join_pieces, measure_pieces
from ..draw.spans import Role
from ..frame.known_nodes import NodePlace
from .device_view import name_degrees
from .replay_words import name_part

# Skipped updates within a minute from which the screen counts as behind.
MANY_FRAMES = 5
# Width from which the versions of driver and CUDA are in the title.
DRIVER_FROM_CELLS = 100
# Nouns for the kinds of devices that are no GPU of their own.
_NOUNS = {"trace": "rank", "mig": "MIG", "simulated": "simulated GPU", "cpu": "CPU"}
# States of a worker that must be shown, the most severe first.
WORKER_TROUBLE = {"failed": 0, "restarting": 1}


class Fact(NamedTuple):
    text: str
    # The same in fewer words; may be empty.
    short: str = ""
    role: Role = "text"


def word_title(
    snapshot: Snapshot,
    width: int,
    glyphs: Glyphs,
    *,
    frames_skipped: int = 0,
    paused_since_s: float | None = None,
    place: NodePlace | None = None,
    recording: Fact | None = None,
) -> tuple[list[Piece], list[Piece]]:
    """Return the left and the right part of the title.

    Args:
        frames_skipped: Snapshots replaced within the last minute before they were drawn.
        recording: Says that the node is recorded; None if it is not.
    """
    right = _describe_time(snapshot.sample, paused_since_s)
    facts = [
        *_describe_node(snapshot, place, glyphs),
        *([] if recording is None else [recording]),
        *_describe(snapshot, frames_skipped),
    ]
    if snapshot.sample is not None and width >= DRIVER_FROM_CELLS:
        facts += _describe_driver(snapshot.sample)
    return _fit(facts, width - measure_pieces(right) - 1), right


def _fit(facts: list[Fact], room: int) -> list[Piece]:
    """Return the facts that fit: the last ones are dropped first, and the program's name before any
    trouble.
    """
    brand = [Piece("vramscope", "accent"), Piece("  ")]
    troubled = [index for index, fact in enumerate(facts) if fact.role == "medium"]
    for count in range(len(facts), 0, -1):
        least = facts[:count]
        for forms in ([fact.text for fact in least], [fact.short or fact.text for fact in least]):
            line = join_pieces([[Piece(text, fact.role)] for text, fact in zip(forms, least, strict=True)])
            if measure_pieces([*brand, *line]) <= room:
                return [*brand, *line]
            if (count == 1 or troubled[-1:] == [count - 1]) and measure_pieces(line) <= room:
                return line
    return [Piece(facts[0].text, facts[0].role)]


def format_time(time_s: float, clock: str) -> str:
    """Format a sample's time: the time of day, or seconds of a recording."""
    if clock == "trace":
        return f"t {format_seconds(time_s)}"
    return f"{datetime.fromtimestamp(time_s):%H:%M:%S}"


def _describe_node(snapshot: Snapshot, place: NodePlace | None, glyphs: Glyphs) -> Iterator[Fact]:
    """Yield which node it is, and which other one is worse; for several runs, which one it is."""
    if snapshot.replay is not None and snapshot.replay.part is not None:
        for at, (text, short) in enumerate(name_part(snapshot.replay.part)):
            yield Fact(text, short, "text" if at else "strong")
        return
    name = snapshot.sample.node if snapshot.sample else snapshot.node or "no data yet"
    yield Fact(name if place is None else f"{name} {place.number}/{place.total}", role="strong")
    if place is not None and snapshot.node not in ("", name):
        yield Fact(snapshot.node, role="muted")  # what it was called by whoever connected to it
    if place is not None and place.lost:
        covered = f"{glyphs.risk('medium')} {place.total - place.lost} of {place.total} nodes"
        yield Fact(covered, role="medium")
    if place is not None and place.more_severe is not None:
        yield Fact(f"{glyphs.risk(place.severity)} {place.more_severe}", role=place.severity)


def _describe(snapshot: Snapshot, frames_skipped: int) -> Iterator[Fact]:
    """Yield the facts of the title, the most severe first."""
    sample = snapshot.sample
    hub = snapshot.hub
    is_lost = snapshot.connection == "lost"
    if is_lost and snapshot.replay is None:
        yield Fact("not connected" if sample is None else "agent lost", role="medium")
    if sample is not None and sample.clock == "trace":
        made = "simulated" if any(it.is_simulated for it in sample.devices) else "recorded"
        yield Fact(f"{made} trace", made if made == "simulated" else "trace", "accent")
    elif snapshot.replay is not None:
        yield Fact("recording", role="accent")
    if sample is not None and sample.devices_left_out:
        text, short = describe_left_out(sample)
        yield Fact(text, short)
    elif sample is not None and sample.devices:
        yield Fact(_count_devices(sample))
    if sample is not None and sample.ranks:
        # A server that reports as a process that trains would is no rank of a job.
        served = {pid for server in sample.servers for place in server.devices for pid in place.pids}
        ranks = [rank for rank in sample.ranks if rank.pid not in served] if served else sample.ranks
        if ranks:
            yield _describe_jobs(ranks)
    if hub is not None and not is_lost:
        yield from _describe_workers(hub)
    if snapshot.samples_dropped:
        yield Fact(f"{count_text(snapshot.samples_dropped, 'sample', 'samples')} dropped", role="medium")
    if hub is not None and not is_lost:
        yield _describe_agent(hub, sample)
    # A fast replay skips pictures on purpose.
    if frames_skipped >= MANY_FRAMES and snapshot.replay is None:
        yield Fact(
            f"screen behind: {count_text(frames_skipped, 'update', 'updates')} skipped",
            "screen behind",
            "muted",
        )


def _count_devices(sample: Sample) -> str:
    """Count devices; a GPU cut into instances counts once, and so do they."""
    ended, lost = (sum(device.state == state for device in sample.devices) for state in ("ended", "lost"))
    counts = Counter(_NOUNS.get(device.kind, "GPU") for device in sample.devices if device.state != "ended")
    if set(counts) == {"rank"}:
        return count_text(counts["rank"], "rank", "ranks")
    counts["GPU"] += counts.pop("rank", 0)
    parts = [
        count_text(counts[noun], noun, f"{noun}s") for noun in ("GPU", "simulated GPU") if counts.get(noun)
    ]
    parts += ["CPU"] if counts["CPU"] else []
    parts += [f"{number} {state}" for number, state in ((lost, "lost"), (ended, "ended")) if number]
    return ", ".join([*parts, f"{counts['MIG']} MIG"] if counts["MIG"] else parts)


def _describe_jobs(ranks: Sequence[RankSample]) -> Fact:
    """Return which job trains, with how many ranks and, where every rank is here, its degrees."""
    running = [rank for rank in ranks if rank.state != "ended"]
    names = {rank.job for rank in running or ranks}
    name = f"job {next(iter(names))}" if len(names) == 1 and None not in names else ""
    if not running:
        return Fact(f"{name or count_text(len(ranks), 'rank', 'ranks')} ended", role="muted")
    count = _count_ranks(running)
    if len(names) > 1:
        return Fact(f"{len(names)} jobs ({count})", count)
    inside = ", ".join(filter(None, (count, name_degrees(running))))
    return Fact(f"{name} ({inside})", f"{name} ({count})") if name else Fact(inside, count)


def _count_ranks(ranks: Sequence[RankSample]) -> str:
    """Return how many ranks are here, and the world size where others train elsewhere."""
    worlds = {rank.coordinates.world_size for rank in ranks if rank.coordinates is not None}
    world_size = next(iter(worlds)) if len(worlds) == 1 else None
    if world_size is not None and world_size > len(ranks):
        return f"{len(ranks)} of {count_text(world_size, 'rank', 'ranks')}"
    return count_text(len(ranks), "rank", "ranks")


def _describe_workers(hub: HubStatus) -> Iterator[Fact]:
    """Yield the trouble of the analyzer workers, the most severe first."""
    for worker in sorted(
        hub.workers, key=lambda worker: WORKER_TROUBLE.get(worker.state, len(WORKER_TROUBLE))
    ):
        if worker.state in WORKER_TROUBLE:
            yield Fact(f"worker {worker.name} {worker.state}", f"worker {worker.state}", "medium")
        elif worker.restarts:
            restarted = f"restarted {worker.restarts}×"
            yield Fact(f"worker {worker.name} {restarted}", f"worker {restarted}", "medium")
    for worker in hub.workers:
        if worker.samples_dropped:
            missed = f"missed {count_text(worker.samples_dropped, 'sample', 'samples')}"
            yield Fact(f"worker {worker.name} {missed}", f"worker {missed}", "medium")


def _describe_agent(hub: HubStatus, sample: Sample | None) -> Fact:
    """Return how long the agent has run and what it costs."""
    cost = [] if hub.cpu_percent is None else [f"{hub.cpu_percent:.1f} % CPU"]
    parts = list(cost)
    if sample is not None and sample.clock == "wall":
        parts.insert(0, f"up {format_age(max(0.0, sample.time_s - hub.started_s))}")
    short = f"agent {cost[0]}" if cost else ""
    return Fact(f"agent {', '.join(parts)}" if parts else f"agent {hub.pid}", short, "muted")


def _describe_driver(sample: Sample) -> Iterator[Fact]:
    """Yield the versions of the driver and of CUDA, where all devices with a driver have the same."""
    known = {(it.driver_version, it.cuda_version) for d in sample.devices if (it := d.hardware) is not None}
    driver, cuda = known.pop() if len(known) == 1 else (None, None)
    if driver is not None:
        yield Fact(
            f"driver {driver}" + ("" if cuda is None else f", CUDA {cuda}"), f"driver {driver}", "muted"
        )


def _describe_time(sample: Sample | None, paused_since_s: float | None) -> list[Piece]:
    if sample is None:
        return []
    if paused_since_s is not None:
        return [Piece(f"paused since {format_time(paused_since_s, sample.clock)}", "medium")]
    time = Piece(format_time(sample.time_s, sample.clock), "strong")
    return [time, Piece(" · ", "muted"), Piece("ended", "medium")] if sample.is_last else [time]
