"""Live samples of this node: devices of every source, the host, and the training processes that report."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from ..clock import Clock, SystemClock
from ..errors import SourceUnavailableError
from ..model import DeviceEvent, DeviceSample, HostSample, RankSample, Sample, ServerSample
from ..paths import ROOT_VARIABLE, locate_root
from ..sources.source import ReportingSource, Source
from ..text import make_printable
from .sampler import SourceSampler

if TYPE_CHECKING:
    from ..ranks.roster import Roster
    from ..sources.owners.watch import OwnersWatch
    from ..sources.preallocation import PreallocationWatch
    from ..sources.serving.watch import ServingWatch
    from .events import RecentEvents


class SampleProducer(Protocol):
    """Yields samples when they are due; the caller does the waiting."""

    node: str
    # Length of one published tick in seconds.
    interval_s: float
    # Set while nobody watches and nothing is urgent: samples may come a few at once, and what can wait may be
    # read less often.
    is_calm: bool

    def start(self) -> None:
        """The first sample may be due at once."""
        ...

    def wait_s(self) -> float:
        """Seconds until the next sample is due; 0 if one is."""
        ...

    def take(self) -> list[Sample]:
        """Return the samples that are due now, oldest first; may be empty. Never blocks on a driver."""
        ...

    def stop(self) -> None:
        """Never waits for a driver call that hangs."""
        ...


# A first sample is published even if a driver call has not returned by then.
FIRST_SAMPLE_WITHIN_S = 0.7
# Between two checks for a hung driver call if none is under way; a call under way is checked at its deadline.
WATCH_INTERVAL_S = 1.0
# How long samples wait in calm: built one after another they cost half of what each costs alone.
CALM_S = 5.0


class HostSource(Protocol):
    def read(self) -> HostSample:
        """Return the host as it is now; never blocks."""
        ...

    def watch_stalls(self) -> None:
        """Also read from now on how much the node waits for memory."""
        ...


class LiveProducer:
    """Publishes one sample a tick from live devices; a hung driver call never delays it."""

    def __init__(
        self,
        sources: Sequence[Source],
        host: HostSource | None,
        *,
        node: str,
        interval_s: float = 1.0,
        memory_interval_s: float = 0.1,
        notes: Sequence[str] = (),
        roster: "Roster | None" = None,
        servers: "ServingWatch | None" = None,
        events: "RecentEvents | None" = None,
        owners: "OwnersWatch | None" = None,
        preallocation: "PreallocationWatch | None" = None,
        clock: Clock | None = None,
    ) -> None:
        self.interval_s = interval_s
        # Ticks that ran more than half an interval late.
        self.ticks_late = 0
        self.node = node
        self._host = host
        # When it was read last; samples that are built at once share what was read.
        self._host_read_s: float | None = None
        self._host_sample: HostSample | None = None
        self._notes = tuple(notes)
        self._roster = roster
        self._servers = servers
        self._events = events
        self._owners = owners
        self._preallocation = preallocation
        self._clock = clock or SystemClock()
        memory_interval_s = min(memory_interval_s, interval_s)
        self._samplers = [
            SourceSampler(
                source,
                memory_interval_s=memory_interval_s,
                details_interval_s=max(1.0, interval_s),
                clock=self._clock,
            )
            for source in sources
        ]
        self._reporting = [source for source in sources if isinstance(source, ReportingSource)]
        self._is_calm = False
        # How long the next samples may have waited, since calm has ended.
        self._held_s = 0.0
        self._stale_after_s = max(1.5, 1.5 * interval_s)
        self._started_s = 0.0
        self._due_s: float | None = None
        self._seq = 0

    @property
    def failures(self) -> list[SourceUnavailableError]:
        """Why sources have nothing to measure."""
        return [sampler.failure for sampler in self._samplers if sampler.failure is not None]

    @property
    def has_held_calls(self) -> bool:
        """A driver call still has not returned; the process must then end with `os._exit`."""
        return any(sampler.has_held_calls for sampler in self._samplers)

    @property
    def is_calm(self) -> bool:
        return self._is_calm

    @is_calm.setter
    def is_calm(self, is_calm: bool) -> None:
        if is_calm == self._is_calm:
            return
        self._held_s = max(self._held_s, self._hold_s)
        self._is_calm = is_calm
        for sampler in self._samplers:
            sampler.is_calm = is_calm

    @property
    def _hold_s(self) -> float:
        """How long the first of some samples waits for the last of them."""
        if not self._is_calm:
            return 0.0
        longest_s = min([CALM_S, *(sampler.most_rounds_s for sampler in self._samplers)])
        return max(0, int(longest_s / self.interval_s) - 1) * self.interval_s

    def start(self) -> None:
        self._started_s = self._clock.monotonic_s()
        for sampler in self._samplers:
            sampler.start()

    def wait_s(self) -> float:
        """Seconds until `take` should be called again, for a sample or to watch the driver."""
        if self._due_s is None:
            return 0.0 if self._is_first_due() else 0.005
        now_s = self._clock.monotonic_s()
        hold_s = self._hold_s
        due_s = self._due_s + hold_s
        check_s = hold_s + self.interval_s if hold_s else WATCH_INTERVAL_S
        waits_s = [sampler.watch_wait_s(now_s, check_s) for sampler in self._samplers]
        if self._roster is not None and not self._is_calm:
            waits_s.append(self._roster.wait_s)
        return min([max(0.0, due_s - now_s), *waits_s])

    def take(self) -> list[Sample]:
        for sampler in self._samplers:
            sampler.watch()
        now_s = self._clock.monotonic_s()
        if self._due_s is None:
            if not self._is_first_due():
                return []
            self._due_s = now_s
        hold_s = self._hold_s
        if now_s < self._due_s + hold_s:
            if self._roster is not None:
                self._roster.drain_if_due()
            return []
        if now_s - self._due_s > max(hold_s, self._held_s) + 0.5 * self.interval_s:
            self.ticks_late += 1
            self._due_s = now_s
        self._held_s = 0.0
        samples = []
        self._due_s += self.interval_s
        while self._due_s <= now_s:
            samples.append(self._build(self._due_s - self.interval_s, now_s))
            self._due_s += self.interval_s
        return [*samples, self._build(now_s, now_s)]

    def stop(self) -> None:
        """End all reading; calls that hang are left behind."""
        for sampler in self._samplers:
            sampler.stop()
        if self._roster is not None:
            self._roster.close()
        if self._servers is not None:
            self._servers.close()
        if self._events is not None:
            self._events.close()
        if self._owners is not None:
            self._owners.close()

    def _is_first_due(self) -> bool:
        waited_s = self._clock.monotonic_s() - self._started_s
        return waited_s > FIRST_SAMPLE_WITHIN_S or all(s.first_round.is_set() for s in self._samplers)

    def _build(self, tick_s: float, now_s: float) -> Sample:
        """Build the sample of a tick; what reports by itself belongs to the newest."""
        is_newest = tick_s >= now_s
        devices = self._collect_devices(tick_s)
        if self._host is not None and any(device.kind == "unified" for device in devices):
            self._host.watch_stalls()
        if self._host is not None and self._host_read_s != now_s:
            self._host_read_s = now_s
            self._host_sample = self._host.read()
        host = self._host_sample
        notes = self._notes
        if self._owners is not None:
            devices, new_notes = self._owners.collect(devices)
            notes += new_notes
        if self._preallocation is not None:
            devices, new_notes = self._preallocation.collect(devices)
            notes += new_notes
        ranks: tuple[RankSample, ...] = ()
        if self._roster is not None and is_newest:
            devices, ranks, new_notes = self._roster.collect(devices, host)
            notes += new_notes
        servers: tuple[ServerSample, ...] = ()
        if self._servers is not None and is_newest:
            servers, new_notes = self._servers.collect(devices)
            notes += new_notes
        notes += tuple(note for s in self._samplers for note in s.notes(has_others=bool(devices)))
        self._seq += 1
        return Sample(
            node=self.node,
            seq=self._seq,
            time_s=self._clock.wall_s() - (now_s - tick_s),
            interval_s=self.interval_s,
            devices=devices,
            host=host,
            ranks=ranks,
            notes=notes,
            servers=servers,
            events=self._collect_events(devices) if is_newest else (),
        )

    def _collect_events(self, devices: tuple[DeviceSample, ...]) -> tuple[DeviceEvent, ...]:
        if self._events is None or not devices:
            return ()
        reported = [event for source in self._reporting for event in source.take_events()]
        return self._events.collect(devices, reported, self._clock.wall_s())

    def _collect_devices(self, tick_s: float) -> tuple[DeviceSample, ...]:
        """Collect the devices of all sources, numbered on where two sources have devices.

        Each source numbers its own from 0, and a number must name one device of a node.
        """
        devices: list[DeviceSample] = []
        for sampler in self._samplers:
            first = 1 + max((device.index for device in devices), default=-1)
            found = sampler.collect(self._stale_after_s, tick_s)
            devices += [replace(it, index=first + it.index) for it in found] if first else found
        return tuple(devices)


# Longest chosen name; the rest is cut.
MOST_NAME_CHARS = 200


def node_name() -> str:
    """`VRAMSCOPE_NODE`, else the first label of the host name."""
    chosen = make_printable(os.environ.get("VRAMSCOPE_NODE", ""), MOST_NAME_CHARS).strip()
    return chosen or make_printable(socket.gethostname().partition(".")[0]) or "localhost"


def open_node(
    *,
    interval_s: float = 1.0,
    memory_interval_s: float = 0.1,
    has_plugins: bool = True,
    roster: "Roster | None" = None,
    serving: Sequence[str] | None = None,
    root: Path | None = None,
) -> LiveProducer:
    """Return a producer of this node's live samples, not yet started.

    Args:
        serving: Servers of models to read besides those that are found, as in the settings; None to look for
            no server.
        root: Stands for `/`: the folder in which /sys, /proc and /dev are. Default: as `locate_root` says.
    """
    from ..sources.drm.cards import list_cards
    from ..sources.host import HostReader
    from ..sources.kernel_log import KernelLog
    from ..sources.nvml import NvmlSource
    from ..sources.owners.watch import OwnersWatch
    from ..sources.preallocation import PreallocationWatch
    from .events import RecentEvents

    root = locate_root() if root is None else root
    sources: list[Source] = [NvmlSource(root)]
    if list_cards(root):
        from ..sources.drm.source import DrmSource

        sources.append(DrmSource(root))
    notes: list[str] = []
    if root != Path("/"):
        notes.append(f"devices and host are read below {make_printable(str(root))} ({ROOT_VARIABLE})")
    if has_plugins:
        from ..plugins import make_sources

        plugins = make_sources()
        sources += plugins.made
        notes += plugins.notes
    home = os.environ.get("HOME")
    servers = None
    if serving is not None:
        from ..sources.serving.watch import open_watch

        servers = open_watch(serving, root)
    return LiveProducer(
        sources,
        HostReader(root),
        node=node_name(),
        interval_s=interval_s,
        memory_interval_s=memory_interval_s,
        notes=notes,
        roster=roster,
        servers=servers,
        events=RecentEvents(KernelLog(root)),
        owners=OwnersWatch(root, home=Path(home) if home and root == Path("/") else None),
        preallocation=PreallocationWatch(root / "proc"),
    )
