"""What happens ten times a second: read the allocator, and twice a second send what was read."""

from __future__ import annotations

import threading
from typing import Callable

from . import phases
from .announcement import Announcement
from .backends import Reading
from .clock import SystemClock
from .history import MemoryHistory, is_recording
from .outbox import Outbox
from .process import ResidentMemory
from .recent import RecentReadings
from .steps import StepWatch
from .training_device import TrainingDevice
from .transport import Connection
from .wire import Demand, ReadingRow, decode_demand, encode_goodbye

WATCH_S = 1.0
"""Between two looks of a process that does not report yet."""
SAMPLE_S = 0.1
_SEND_EVERY = 5
_LONGEST_WAIT_S = 0.05
"""For the sampler to be done, when another thread has something to send."""


class Sampler:
    """Reads, keeps and sends. Everything here runs in our own thread but for `send_now` and `close`."""

    def __init__(
        self,
        device: TrainingDevice,
        announcement: Announcement,
        connection: Connection,
        clock: SystemClock,
        steps: StepWatch,
        history: MemoryHistory,
    ) -> None:
        self.outbox = Outbox()
        self.recent = RecentReadings()
        self.resident = ResidentMemory()
        self.announcement = announcement
        self.connection = connection
        self.serve: Callable[[Demand], None] = lambda _: None
        """Takes what the hub demands."""
        self._device = device
        self._clock = clock
        self._steps = steps
        self._history = history
        self._exchanging = threading.Lock()
        self._ticks = 0
        self._due_s: float | None = None
        self._slow: tuple[int | None, int | None] = (None, None)
        """Bytes pinned and resident; read as often as is sent."""

    def tick(self) -> float:
        """Take one reading, send where that is due, and return the seconds until the next."""
        is_sending = self._ticks % _SEND_EVERY == 0
        self._ticks += 1
        if is_sending:
            self._slow = self._read_slow()
        self._take_reading()
        if is_sending:
            self._exchange()
        return self._pause_s()

    def send_now(self) -> None:
        """Send what waits, from another thread; leave it to the sampler where that is at it."""
        if self._exchanging.acquire(timeout=_LONGEST_WAIT_S):
            try:
                if not self.outbox.has_hello:
                    self._announce()
                self._send()
            finally:
                self._exchanging.release()

    def close(self, reason: str, *, has_reported: bool) -> None:
        """Send what waits and a goodbye, as far as the hub takes it at once, and hang up."""
        if not self._exchanging.acquire(timeout=_LONGEST_WAIT_S):
            return
        try:
            if has_reported:
                if not self.outbox.has_hello:
                    self._announce()
                self._send()
                self.connection.send(encode_goodbye(reason))
            self.connection.close()
        finally:
            self._exchanging.release()
        self.resident.close()

    def _take_reading(self) -> None:
        reading = self._device.read()
        wall_s = self._clock.wall_s()
        self._steps.note_sample(reading)
        self.recent.add(wall_s, reading, self._steps.index)
        self.outbox.put_reading(_make_row(wall_s, reading, self._slow))

    def _read_slow(self) -> tuple[int | None, int | None]:
        backend = self._device.backend
        pinned = backend.read_pinned() if backend is not None else None
        return pinned, self.resident.read_bytes()

    def _exchange(self) -> None:
        """Send, listen and serve."""
        packets: list[bytes] = []
        with self._exchanging:
            if self.announcement.is_due(self._clock.monotonic_s()):
                self._device.look_again()
                self._announce()
            self._send()
            packets = self.connection.receive()
        for packet in packets:
            demand = decode_demand(packet)
            if demand is not None:
                self.serve(demand)

    def _announce(self) -> None:
        mode = self._history.mode
        if mode != "on":
            self._history.mode = "user" if is_recording(self._device.torch) else "off"
        self.outbox.say_hello(self.announcement.compose((self._history.note, self.connection.refusal)))

    def _send(self) -> None:
        self.outbox.phase = phases.innermost()
        self.outbox.memory_history = self._history.mode
        if self.connection.open():
            self.outbox.begin_connection()
        if self.connection.is_open:
            self.outbox.flush(self.connection.send)

    def _pause_s(self) -> float:
        """Return the time to the next tick on a steady grid; ticks that were missed are left out."""
        now_s = self._clock.monotonic_s()
        due_s = (now_s if self._due_s is None else self._due_s) + SAMPLE_S
        self._due_s = due_s if due_s > now_s else now_s + SAMPLE_S
        return self._due_s - now_s


def _make_row(wall_s: float, reading: Reading, slow: tuple[int | None, int | None]) -> ReadingRow:
    """Return a row as it stands in a packet; peak and count of allocations are not among its figures."""
    allocated, requested, active, reserved, split, retries, ooms, _, _ = reading
    return (round(wall_s, 3), allocated, requested, active, reserved, split, retries, ooms, *slow)
