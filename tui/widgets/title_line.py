"""The title: which node, how many devices, how the agent fares, and what time the figures are of."""

from collections.abc import Iterator
from datetime import datetime

from ...engine.bus.snapshot import Snapshot
from ...engine.model import HubStatus, Sample
from ...engine.units import format_age
from .one_line import OneLine, Piece, join_pieces, measure_pieces


class TitleLine(OneLine):
    """Names what is shown; trouble with the flow of figures comes before the agent's own figures."""

    _snapshot: Snapshot | None = None
    _frames_skipped = 0
    _paused_since_s: float | None = None

    def show(self, snapshot: Snapshot, *, frames_skipped: int, paused_since_s: float | None) -> None:
        """Show a snapshot's title.

        Args:
            snapshot: The newest snapshot.
            frames_skipped: Snapshots that a newer one replaced before they were drawn.
            paused_since_s: Time of the sample at which the figures were frozen, or None.
        """
        self._snapshot = snapshot
        self._frames_skipped, self._paused_since_s = frames_skipped, paused_since_s
        self._arrange()

    def on_resize(self) -> None:
        """Choose anew what fits."""
        self._arrange()

    def _arrange(self) -> None:
        if self._snapshot is None:
            return
        groups = list(_describe(self._snapshot, self._frames_skipped))
        right = _describe_time(self._snapshot.sample, self._paused_since_s)
        room = self.size.width - measure_pieces(right) - 1
        brand = [Piece("vramscope", "accent"), Piece("  ")]
        while len(groups) > 1 and measure_pieces([*brand, *join_pieces(groups)]) > room:
            groups.pop()
        left = [*brand, *join_pieces(groups)]
        self.set_pieces(left if measure_pieces(left) <= room else join_pieces(groups), right)


def format_time(time_s: float, clock: str) -> str:
    """Return a sample's time as people read it: the time of day, or seconds of a recording."""
    if clock == "trace":
        return f"t {time_s:,.1f} s"
    return f"{datetime.fromtimestamp(time_s):%H:%M:%S}"


def _describe(snapshot: Snapshot, frames_skipped: int) -> Iterator[list[Piece]]:
    """Yield what the title says, the most important first."""
    sample, hub = snapshot.sample, snapshot.hub
    yield [Piece(sample.node if sample else "no figures yet", "strong")]
    if sample is not None and sample.clock == "trace":
        yield [Piece("recorded trace", "medium")]
    if sample is not None and sample.devices:
        yield [Piece(_count_devices(sample))]
    losses = _describe_losses(snapshot.samples_dropped, snapshot.frames_skipped + frames_skipped)
    if losses:
        yield [Piece(losses, "medium")]
    if hub is not None:
        yield from ([Piece(text, "medium")] for text in _describe_workers(hub))
        yield [Piece(_describe_agent(hub, sample), "muted")]


def _count_devices(sample: Sample) -> str:
    """Return how many devices there are; a GPU cut into instances counts once, and so do they."""
    if all(device.kind == "trace" for device in sample.devices):
        count, noun = len(sample.devices), "rank"
    else:
        count, noun = sum(device.kind != "mig" for device in sample.devices), "GPU"
    instances = sum(device.kind == "mig" for device in sample.devices)
    text = f"{count} {noun}{'' if count == 1 else 's'}"
    return f"{text}, {instances} MIG" if instances else text


def _describe_losses(dropped: int, skipped: int) -> str:
    """Return what never reached the eye, or an empty text."""
    parts = []
    if dropped:
        parts.append(f"{dropped:,} samples dropped")
    if skipped:
        parts.append(f"{skipped:,} frames skipped")
    return ", ".join(parts)


def _describe_workers(hub: HubStatus) -> Iterator[str]:
    """Yield one text for every analyzer worker that had trouble."""
    for worker in hub.workers:
        if worker.state in {"restarting", "failed"}:
            yield f"worker {worker.name} {worker.state}"
        elif worker.restarts:
            yield f"worker {worker.name} restarted {worker.restarts}×"
        if worker.samples_dropped:
            yield f"worker {worker.name} missed {worker.samples_dropped:,} samples"


def _describe_agent(hub: HubStatus, sample: Sample | None) -> str:
    """Return how long the agent has run and what it costs."""
    parts = ["agent"]
    if sample is not None and sample.clock == "wall":
        parts.append(f"up {format_age(max(0.0, sample.time_s - hub.started_s))}")
    if hub.cpu_percent is not None:
        parts.append(f"{hub.cpu_percent:.1f} % CPU")
    return f"{parts[0]} {', '.join(parts[1:])}" if len(parts) > 1 else f"agent {hub.pid}"


def _describe_time(sample: Sample | None, paused_since_s: float | None) -> list[Piece]:
    if sample is None:
        return []
    if paused_since_s is not None:
        return [Piece(f"paused since {format_time(paused_since_s, sample.clock)}", "medium")]
    return [Piece(format_time(sample.time_s, sample.clock), "strong")]
