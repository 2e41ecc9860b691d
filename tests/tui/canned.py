"""Canned nodes, a feed that hands them over, and a clock that stands still."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from vramscope.engine.alerts.state import FindingDecision
from vramscope.engine.history import History
from vramscope.engine.model import (
    DeviceSample,
    Finding,
    HostSample,
    HubStatus,
    MemoryReading,
    ProcessReading,
    Sample,
    WorkerStatus,
    make_finding_id,
)
from vramscope.engine.settings import Settings
from vramscope.engine.units import GIB, MIB
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.terminal.abilities import TerminalAbilities

NOON_S = 1_760_011_200.0
"""9 October 2025, 12:00:00 UTC."""
NODE = "node03"


class StillClock:
    """A clock that moves only when told."""

    def __init__(self) -> None:
        self.now_s = NOON_S

    def wall_s(self) -> float:
        return self.now_s

    def monotonic_s(self) -> float:
        return self.now_s


class FakeFeed:
    """Hands over what a test gives it, on the test's own thread."""

    def __init__(self, *snapshots: Snapshot, history: History | None = None) -> None:
        self.history = history or History()
        self.snapshots = list(snapshots)
        self.is_stopped = False
        self.asked: list[int] = []
        """Processes whose segment map was asked for."""
        self.modules_asked: list[int] = []
        """Processes whose modules were asked for."""
        self.decisions: list[FindingDecision] = []
        """What was decided about findings."""
        self._on_snapshot: Callable[[Snapshot], None] | None = None

    def start(self, on_snapshot: Callable[[Snapshot], None]) -> None:
        self._on_snapshot = on_snapshot
        for snapshot in self.snapshots:
            self.hand_over(snapshot)

    def hand_over(self, snapshot: Snapshot) -> None:
        if snapshot.sample is not None:
            self.history.add(snapshot.sample)
        assert self._on_snapshot is not None
        self._on_snapshot(snapshot)

    def ask_segments(self, pid: int) -> None:
        self.asked.append(pid)

    def ask_modules(self, pid: int) -> None:
        self.modules_asked.append(pid)

    def decide(self, decision: FindingDecision) -> None:
        self.decisions.append(decision)

    def stop(self) -> None:
        self.is_stopped = True


def make_process(pid: int, used_mib: int, user: str = "user1", command: str | None = None) -> ProcessReading:
    return ProcessReading(
        pid=pid, user=user, command=command or f"python train.py --rank {pid % 8}", used_bytes=used_mib * MIB
    )


def make_device(index: int, used_gib: float = 61.2, *, processes: int = 1) -> DeviceSample:
    used = int(used_gib * GIB)
    return DeviceSample(
        uuid=f"GPU-{index:04d}",
        index=index,
        name="NVIDIA H100 80GB HBM3",
        age_s=0.1,
        memory=MemoryReading(
            total_bytes=int(79.6 * GIB),
            used_bytes=used,
            free_bytes=int(79.6 * GIB) - used,
            used_min_bytes=used - GIB,
            used_max_bytes=used + GIB,
        ),
        utilization_percent=98.0,
        temperature_c=64.0,
        power_w=612.0,
        processes=tuple(
            make_process(4000 + 10 * index + n, int(used_gib * 1024 / max(1, processes)) - 500 * n)
            for n in range(processes)
        ),
    )


def make_sample(devices: tuple[DeviceSample, ...], seq: int = 1, notes: tuple[str, ...] = ()) -> Sample:
    return Sample(
        node=NODE,
        seq=seq,
        time_s=NOON_S + seq,
        interval_s=1.0,
        devices=devices,
        host=HostSample(
            total_bytes=1008 * GIB,
            used_bytes=412 * GIB,
            available_bytes=596 * GIB,
            swap_total_bytes=8 * GIB,
            swap_used_bytes=0,
            cpu_percent=23.0,
        ),
        notes=notes,
    )


def make_devices(count: int) -> tuple[DeviceSample, ...]:
    """Return devices between a third and nearly full."""
    return tuple(
        make_device(index, 28.0 + (index * 37) % 50, processes=1 + index % 2) for index in range(count)
    )


def make_hub(**changes: object) -> HubStatus:
    worker = WorkerStatus("analyzers", 77, "running", analyzers=("pressure",))
    hub = HubStatus(
        "hub1", 4242, "0.1.0", NOON_S - 43_200, 1.0, cpu_percent=0.2, rss_bytes=30 * MIB, workers=(worker,)
    )
    fields = {name: getattr(hub, name) for name in hub.__struct_fields__}
    return HubStatus(**{**fields, **changes})


def make_finding(index: int, *, opened_s: float = NOON_S - 100, closed_s: float | None = None) -> Finding:
    uuid = f"GPU-{index:04d}"
    return Finding(
        id=make_finding_id("pressure", NODE, uuid, opened_s),
        kind="pressure",
        node=NODE,
        device_uuid=uuid,
        device=str(index),
        severity="high",
        title=f"GPU {index} has 1.5 of 79.6 GiB left (2 %)",
        opened_s=opened_s,
        updated_s=NOON_S,
        closed_s=closed_s,
    )


def make_snapshot(count: int = 8, *, seq: int = 1, **changes: object) -> Snapshot:
    fields: dict[str, object] = {
        "connection": "live",
        "sample": make_sample(make_devices(count), seq),
        "hub": make_hub(),
        **changes,
    }
    return Snapshot(**fields)  # type: ignore[arg-type]  # a test's own field names


def make_past(count: int, ticks: int = 300) -> list[Sample]:
    """Return what came before: a sawtooth a device, so that the graphs have something to show."""
    past = []
    for seq in range(-ticks, 1):
        devices = []
        for device in make_devices(count):
            full = device.memory.used_bytes or 0
            used = int(full * (0.6 + 0.4 * ((seq + 7 * device.index) % 30) / 30))
            memory = MemoryReading(
                device.memory.total_bytes,
                used,
                None,
                int(used * 0.95),
                min(int(used * 1.04), int(79.6 * GIB)),
            )
            devices.append(DeviceSample(device.uuid, device.index, device.name, memory=memory))
        past.append(make_sample(tuple(devices), seq))
    return past


_histories: dict[tuple[bytes, int], History] = {}


def fill_history(snapshot: Snapshot, past: Callable[[], Iterable[Sample]], ticks: int) -> History:
    """Return a history of what came before a snapshot; the same past is added tick by tick only once."""
    key = msgspec.msgpack.encode(snapshot.sample), ticks
    if key not in _histories:
        history = _histories[key] = History()
        for sample in past():
            history.add(sample)
    return _histories[key].copy()


UNICODE_COLOR = TerminalAbilities()


def make_app(
    feed: FakeFeed,
    *,
    settings: Settings | None = None,
    abilities: TerminalAbilities = UNICODE_COLOR,
    policy: SignalPolicy | None = None,
    clock: StillClock | None = None,
    save_settings: Callable[[Mapping[str, object]], Path] | None = None,
    export_folder: Path | None = None,
) -> VramscopeApp:
    return VramscopeApp(
        feed,
        settings=settings or Settings(),
        abilities=abilities,
        clock=clock or StillClock(),
        signal_policy=policy or SignalPolicy(local_node=NODE),
        save_settings=save_settings,
        export_folder=export_folder or Path(os.devnull).parent,
        driver_class=None,
    )
