"""A real hub on a thread of the test's own, published from by hand."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from vramscope.engine.agent.hub import Hub
from vramscope.engine.alerts.desk import AlertDesk
from vramscope.engine.clock import Clock
from vramscope.engine.cluster.gate import Listening
from vramscope.engine.model import DeviceSample, MemoryReading, Sample
from vramscope.engine.viewer.snapshot import Snapshot

GIB = 1024**3


def has_worker(snapshot: Snapshot) -> bool:
    """Return whether the worker of this snapshot's hub has caught up and reports."""
    hub = snapshot.hub
    return hub is not None and [worker.state for worker in hub.workers] == ["running"]


def make_sample(
    seq: int,
    used_gib: float = 10.0,
    *,
    total_gib: float = 80.0,
    driver_gib: float = 0.0,
    uuid: str = "GPU-a",
) -> Sample:
    """Return a sample of one device, one second after the one before; the driver keeps some to itself."""
    used, total = round(used_gib * GIB), round(total_gib * GIB)
    free = max(0, total - used - round(driver_gib * GIB))
    memory = MemoryReading(total, used, free, used, used)
    device = DeviceSample(uuid=uuid, index=0, name="Pretend GPU", age_s=0.0, memory=memory)
    return Sample(node="node", seq=seq, time_s=1000.0 + seq, interval_s=1.0, devices=(device,))


class HandProducer:
    """Publishes what a test pushes, when it pushes it."""

    node = "node"

    def __init__(self, interval_s: float = 1.0) -> None:
        self.interval_s = interval_s
        self.is_calm = False
        self._lock = threading.Lock()
        self._due: list[Sample] = []
        # What comes once calm has ended.
        self.held: list[Sample] = []

    def push(self, samples: Sequence[Sample]) -> None:
        with self._lock:
            self._due.extend(samples)

    def start(self) -> None:
        pass

    def wait_s(self) -> float:
        return 0.01

    def take(self) -> list[Sample]:
        with self._lock:
            due, self._due = self._due, []
            if not self.is_calm:
                due, self.held = due + self.held, []
        return due

    def stop(self) -> None:
        pass


class RunningHub:
    """A hub that serves a folder until the `with` block ends."""

    def __init__(
        self,
        folder: Path,
        *,
        leaves_with_viewers: bool = False,
        alerts: AlertDesk | None = None,
        listening: Listening | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.producer = HandProducer()
        self.hub = Hub(
            folder,
            self.producer,
            version="test",
            leaves_with_viewers=leaves_with_viewers,
            alerts=alerts,
            listening=listening,
            clock=clock,
        )
        self.thread = threading.Thread(target=self.hub.run, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hub.stop()
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()
