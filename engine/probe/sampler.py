"""What our own thread does: read the allocator several times a second, and send what was read."""

from __future__ import annotations

import threading
from typing import Callable

from . import phases
from .announcement import Announcement
from .base import current
from .clock import SystemClock
from .digest import Digest
from .history import MemoryHistory
from .model_state import ModelStateWatch
from .outbox import Outbox
from .pace import Pace
from .process import ResidentMemory
from .recorder import is_recording
from .training_device import TrainingDevice
from .transport import Connection
from .wire import Demand, decode_demand, encode_goodbye

WATCH_S = 1.0
"""Between two looks of a process that does not report yet."""
SEND_S = 0.8
"""Between two packets of readings: less than the second of a hub, which finds fresh ones at every tick."""
_EARLY_S = 0.05
"""A reading so little before the next packet is due sends it, as the clock is never met to the bit."""
_LONGEST_WAIT_S = 0.05
"""For the sampler to be done, when another thread has something to send."""


class Sampler:
    """Reads, keeps and sends; all in our own thread but for `work_now`, `send_now` and `close`."""

    def __init__(
        self,
        device: TrainingDevice,
        announcement: Announcement,
        connection: Connection,
        clock: SystemClock,
        history: MemoryHistory,
        model: ModelStateWatch,
        pace: Pace,
    ) -> None:
        self.outbox = Outbox()
        self.digest = Digest(self.outbox)
        self.resident = ResidentMemory()
        self.announcement = announcement
        self.connection = connection
        self.serve: Callable[[Demand], None] = lambda _: None
        """Takes what the hub demands."""
        self.answer: Callable[[], bool] = lambda: False
        """Puts what was demanded and is there by now into the outbox, and tells whether there was any."""
        self._device = device
        self._clock = clock
        self._history = history
        self._model = model
        self._exchanging = threading.Lock()
        self._pace = pace
        self._send_due_s = float("-inf")
        self._slow: tuple[int | None, int | None] = (None, None)
        """Bytes pinned and resident; read as often as is sent."""

    def tick(self) -> float:
        """Take one reading, work and send where that is due, and return the seconds until the next."""
        clock = self._clock
        now_s = clock.monotonic_s()
        self.digest.note_sample((now_s, clock.wall_s(), self._device.read()))
        if now_s >= self._send_due_s - _EARLY_S:
            due_s = self._send_due_s + SEND_S
            self._send_due_s = due_s if due_s > now_s else now_s + SEND_S
            self._slow = self._read_slow()
            self._exchange(now_s)
        self._answer()
        # Of the reading's own moment: the grid stands, so that what is late now is not later the next time.
        return self._pace.find_next(now_s) - now_s

    def send_now(self) -> None:
        """Send what waits, from another thread; leave it to the sampler where that is at it."""
        if self._exchanging.acquire(timeout=_LONGEST_WAIT_S):
            try:
                if not self.outbox.has_hello:
                    self._announce()
                self._send()
            finally:
                self._exchanging.release()

    def work_now(self) -> None:
        """Work through the notes from another thread, so that what is kept is up to date."""
        if self._exchanging.acquire(timeout=_LONGEST_WAIT_S):
            try:
                self._work()
            finally:
                self._exchanging.release()

    def close(self, reason: str, *, has_reported: bool) -> None:
        """Send what waits and a goodbye, as far as the hub takes it at once, and hang up."""
        if not self._exchanging.acquire(timeout=_LONGEST_WAIT_S):
            return
        try:
            self._work()
            if has_reported:
                if not self.outbox.has_hello:
                    self._announce()
                self._send()
                self.connection.send(encode_goodbye(reason))
            self.connection.close()
        finally:
            self._exchanging.release()
        self.resident.close()

    def _read_slow(self) -> tuple[int | None, int | None]:
        backend = self._device.backend
        pinned = backend.read_pinned() if backend is not None else None
        return pinned, self.resident.read_bytes()

    def _exchange(self, now_s: float) -> None:
        """Send, listen and serve."""
        with self._exchanging:
            self._work()
            ends_read, has_risen = self.digest.take_course()
            self._pace.judge(now_s, ends_read, has_peak_risen=has_risen)
            if self.announcement.is_due(now_s):
                self._device.look_again()
                self._announce()
            self._history.end_overdue(self._device.torch)
            self._send()
            packets = self.connection.receive()
        for packet in packets:
            self._serve(packet)

    def _answer(self) -> None:
        """Send what was demanded as soon as it is there: somebody waits for it."""
        try:
            if self.answer():
                with self._exchanging:
                    self._send()
        except Exception as error:  # noqa: BLE001 - an allocator may refuse what it is asked for
            current.note_failure("the demand for segments", error)

    def _serve(self, packet: bytes) -> None:
        """Do what a hub asks; what fails is a note, and the readings go on."""
        demand = decode_demand(packet)
        if demand is None:
            return
        try:
            self.serve(demand)
        except Exception as error:  # noqa: BLE001 - an allocator may refuse what it is asked for
            current.note_failure(f"the demand for {demand.kind}", error)

    def _work(self) -> None:
        """Work through the notes; look closer where they give grounds."""
        announced = self.announcement
        digest = self.digest
        digest.work(self._slow, announced.capacity_bytes or announced.total_bytes)
        if digest.suspicion.has_grounds:
            digest.suspicion.has_grounds = False
            self._history.suspect(digest.suspicion.allocations_per_step)

    def _announce(self) -> None:
        mode = self._history.mode
        if mode != "on":
            self._history.mode = "user" if is_recording(self._device.torch) else "off"
        others = self._device.describe_others()
        passing = (self._history.note, self._model.note, others, self.connection.refusal)
        self.outbox.say_hello(self.announcement.compose(passing))

    def _send(self) -> None:
        self.outbox.phase = phases.innermost()
        self.outbox.memory_history = self._history.mode
        if self.connection.open():
            self.outbox.begin_connection()
        if self.connection.is_open:
            self.outbox.flush(self.connection.send)
