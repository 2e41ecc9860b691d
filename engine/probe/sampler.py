"""The work of our own thread: read the allocator several times a second, and send the readings."""

from __future__ import annotations

import os
import platform
import threading
from collections import deque
from contextlib import suppress
from typing import Any, Callable

from . import phases
from .backends import Reading, allocator_settings
from .base import current
from .base.coordinates import Coordinates, find_coordinates
from .base.foreign import Module
from .clock import SystemClock
from .flight_record import RecentReadings
from .history import MemoryHistory, Suspicion, is_recording
from .identity import (
    ResidentMemory,
    TrainingDevice,
    find_capacity,
    find_simulation,
    identify_device,
    read_command,
    read_started_s,
)
from .model_state import ModelStateWatch
from .peak_file import PeakFile
from .phase_memory import Call, PhaseMark, PhaseWatch
from .steps import Sizes, StepEnd, StepWatch
from .transport import Connection, Outbox
from .wire import DEMANDS, JAX_DEMANDS, Demand, ReadingRow, decode_demand, encode_goodbye

# Between two readings of our own thread, if steps are long.
SAMPLE_S = 0.1
_SHARED_SAMPLE_S = 0.2
_SPREAD_S = 0.1
# The fractional parts of its multiples fill an interval evenly (Weyl's theorem).
_GOLDEN = 0.6180339887498949
_CLOSE_S = 0.02
_APART_S = 0.15
_MANY_A_SECOND = 2.5
_CLOSE_FOR_S = 3.0
_REST_S = 30.0


class Pace:
    """Shares the readings between the ends of steps and the time between them.

    A reading is most of what the probe costs, because the caches hold the program's data when it is made. So
    if steps are short, about every second end is read and our own thread reads half as often, at moments
    spread over the step. With the first steps, and after the allocator's peak has risen, every end is read
    for three seconds, so that steps know their peaks exactly: at most once in half a minute, because a leak
    raises it for ever.
    """

    def __init__(self, now_s: float) -> None:
        # The thread that trains reads at the end of a step if it has not read for this long.
        self.between_ends_s = _CLOSE_S
        self._sample_s = SAMPLE_S
        self._judged_s = now_s
        self._close_until_s = float("inf")
        self._rest_until_s = float("-inf")
        self._due_s = float("-inf")
        self._place = 0.0

    def judge(self, now_s: float, ends_read: int, *, has_peak_risen: bool) -> None:
        """Decide how often to read until the next call."""
        is_first = self._close_until_s == float("inf") and ends_read > 0
        if is_first or (has_peak_risen and now_s >= self._rest_until_s):
            self._close_until_s = now_s + _CLOSE_FOR_S
            self._rest_until_s = now_s + _REST_S
        is_close = now_s < self._close_until_s
        is_shared = not is_close and ends_read > _MANY_A_SECOND * (now_s - self._judged_s)
        self.between_ends_s = _CLOSE_S if is_close else _APART_S
        self._sample_s = _SHARED_SAMPLE_S if is_shared else SAMPLE_S
        self._judged_s = now_s

    def find_next(self, now_s: float) -> float:
        """Return when our own thread reads next, on a steady grid; missed readings are left out."""
        due_s = self._due_s + self._sample_s
        self._due_s = due_s if due_s > now_s else now_s + self._sample_s
        if self._sample_s == SAMPLE_S:
            return self._due_s
        # Not in step with the steps, or every reading would be of the same moment of them.
        self._place = (self._place + _GOLDEN) % 1.0
        return self._due_s + _SPREAD_S * self._place


_EVERY_S = 5.0
_OFTEN_S = 60.0
# The layout of ranks and the device settle in the first minute; later little changes.
_SELDOM_S = 30.0


class Announcement:
    """Facts about the process and its device."""

    def __init__(self, device: TrainingDevice, job: str | None) -> None:
        self.job = job
        # Notes of other parts of the probe that stay true.
        self.notes: list[str] = []
        self.total_bytes: int | None = None
        self.capacity_bytes: int | None = None
        self.coordinates: Coordinates | None = None
        self._device = device
        self._argv = read_command()
        self._fixed = {
            "pid": os.getpid(),
            "started_s": read_started_s(),
            "command": " ".join(self._argv),
            "python": platform.python_version(),
        }
        self._first_s: float | None = None
        self._next_s = float("-inf")
        # What `compose` returned last.
        self.composed: dict[str, Any] = {}

    def is_due(self, now_s: float) -> bool:
        """Every 5 s in the first minute, every 30 s later."""
        if now_s < self._next_s:
            return False
        self._first_s = now_s if self._first_s is None else self._first_s
        self._next_s = now_s + (_EVERY_S if now_s - self._first_s < _OFTEN_S else _SELDOM_S)
        return True

    def compose(self, passing_notes: tuple[str | None, ...] = ()) -> dict[str, Any]:
        device = self._device
        backend = device.backend
        identity = identify_device(backend, device.index) if backend is not None else None
        self.total_bytes = identity.get("total_bytes") if identity else None
        self.capacity_bytes = find_capacity(backend, device.index, self.total_bytes) if backend else None
        self.coordinates = find_coordinates(device.meshes)
        simulated = find_simulation(device.module) or {}
        notes = [*self.notes, *passing_notes, backend.note() if backend else None, *current.failures]
        self.composed = {
            **self._fixed,
            "job": simulated.get("job") or self.job,
            **self._name_framework(),
            "backend": backend.name if backend is not None else None,
            "is_simulated": bool(simulated),
            "device": identity,
            "coordinates": self.coordinates,
            "capacity_bytes": self.capacity_bytes,
            "context_bytes": simulated.get("context_bytes"),
            "allocator_settings": allocator_settings() or None,
            "demands": JAX_DEMANDS if self._is_of_jax else DEMANDS,
            "notes": [str(note) for note in (*notes, *(simulated.get("notes") or ())) if note],
        }
        return self.composed

    @property
    def _is_of_jax(self) -> bool:
        return getattr(self._device.torch, "__name__", "torch") == "jax"

    def _name_framework(self) -> dict[str, str | None]:
        return {"jax" if self._is_of_jax else "torch": _version_of(self._device.torch)}

    def describe_for_record(self) -> dict[str, Any]:
        hello = self.compose()
        return {
            "pid": hello["pid"],
            "started_s": hello["started_s"],
            "argv": self._argv,
            "python": hello["python"],
            "torch": hello.get("torch"),
            "backend": hello["backend"],
            "is_simulated": hello["is_simulated"],
            "rank": hello["coordinates"],
        }


def _version_of(module: Module) -> str | None:
    version = getattr(module, "__version__", None)
    return None if version is None else str(version)


# Between two digests, marks of phases included; if there are more, the oldest are lost.
MOST_STEP_ENDS = 2000

Slow = tuple["int | None", "int | None"]
# Monotonic and wall time, and the reading.
Note = tuple[float, float, Reading]
# The same, then the sizes of the step, and whether it was the largest so far: the fields of a `StepEnd`.
EndNote = tuple[float, float, Reading, "Sizes | None", bool]


class Digest:
    """Collects notes from two threads cheaply, and works through them about once a second.

    A thread that wakes up for a moment finds the caches of its core full of something else, and most of what
    it costs is fetching its own code and data. So a note is appended and no more, and the work on all notes
    is done in one go.
    """

    def __init__(self, outbox: Outbox, peaks: PeakFile | None = None) -> None:
        self.recent = RecentReadings()
        self._peaks = peaks or PeakFile(None)
        self.steps = StepWatch()
        self.phases = PhaseWatch()
        self.suspicion = Suspicion()
        # Called while the notes are processed, to pick the phase that is read next.
        self.pick_phase: Callable[[], None] = lambda: None
        self._outbox = outbox
        self._samples: deque[Note] = deque()
        # One queue for ends of steps and marks of phases, because their order counts.
        self._ends: deque[EndNote | PhaseMark] = deque(maxlen=MOST_STEP_ENDS)
        # Called in our own thread with a reading between two ends of steps.
        self.note_sample: Callable[[Note], None] = self._samples.append
        # Called in the thread that trains with the reading at the end of a step.
        self.note_end: Callable[[EndNote], None] = self._ends.append
        # Called in the program's thread with the reading at the start or end of a named part.
        self.note_phase: Callable[[PhaseMark], None] = self._ends.append

    def work(self, slow: Slow, capacity: int | None) -> None:
        """Turn notes into rows to send and to keep; by one thread at a time."""
        samples = self._samples
        ends = self._ends
        reading = None
        while samples:
            sampled_s, wall_s, reading = samples.popleft()
            while ends and ends[0][0] <= sampled_s:
                self._process(ends.popleft())
            self.steps.note_sample(reading)
            self.phases.note_reading(reading)
            self._peaks.note(reading)
            self.recent.add(wall_s, reading, self.steps.index)
            self._outbox.put_reading(_make_row(wall_s, reading, slow))
        if reading is not None:
            self._outbox.counts = reading.allocations, reading.frees
            # What it looks at only ever counts up: the newest is enough.
            self.suspicion.judge(reading, capacity)
        while ends:
            self._process(ends.popleft())
        self.pick_phase()

    def take_course(self) -> tuple[int, bool]:
        """Return how many ends were read since the last call, and whether the peak rose within a step."""
        steps = self.steps
        course = (steps.ends_read, steps.has_peak_risen)
        steps.ends_read = 0
        steps.has_peak_risen = False
        return course

    def _process(self, note: EndNote | PhaseMark) -> None:
        reading = note[2]
        about = note[3]
        if isinstance(about, Call):
            self.steps.note_sample(reading)
            row = self.phases.take((note[0], note[1], reading, about, note[4]))
            if row is not None:
                self._outbox.put_phase(row)
        else:
            self.phases.note_reading(reading)
            self._peaks.note(reading)
            step = self.steps.end(StepEnd(note[0], note[1], reading, about, note[4]))
            index, ended_s, duration_s, floor, peak, is_exact = step
            self._outbox.put_step(step if about is None else (*step, *about))
            began_s = None if duration_s is None else ended_s - duration_s
            self.recent.steps.append((index, began_s, duration_s, floor, peak, is_exact))
            self.suspicion.note_floor(floor)


def _make_row(wall_s: float, reading: Reading, slow: Slow) -> ReadingRow:
    """Return a row of a packet, which has neither peak nor counts of allocations."""
    allocated, requested, active, reserved, split, retries, ooms, *_ = reading
    return (round(wall_s, 3), allocated, requested, active, reserved, split, retries, ooms, *slow)


# Between two checks of a process that does not report yet.
WATCH_S = 1.0
# Between two packets of readings: less than the second of a hub, which finds fresh ones at every tick.
SEND_S = 0.8
# A reading so little before the next packet is due sends it, as the clock is never met to the bit.
_EARLY_S = 0.05
# For the sampler to finish, when another thread has something to send.
_LONGEST_WAIT_S = 0.05


class Sampler:
    """Reads, keeps and sends; all in our own thread except `work_now`, `send_now` and `close`."""

    def __init__(
        self,
        device: TrainingDevice,
        announcement: Announcement,
        connection: Connection,
        clock: SystemClock,
        history: MemoryHistory,
        model: ModelStateWatch,
        pace: Pace,
        peaks: PeakFile,
    ) -> None:
        self.outbox = Outbox()
        self.peaks = peaks
        self.digest = Digest(self.outbox, peaks)
        self.resident = ResidentMemory()
        self.announcement = announcement
        self.connection = connection
        # Accepts what the hub demands.
        self.serve: Callable[[Demand], None] = lambda _: None
        # Puts the finished answers into the outbox; returns whether there were any.
        self.answer: Callable[[], bool] = lambda: False
        self._device = device
        self._clock = clock
        self._history = history
        self._model = model
        self._exchanging = threading.Lock()
        self._pace = pace
        self._send_due_s = float("-inf")
        # Bytes pinned and resident; read only as often as a packet is sent.
        self._slow: tuple[int | None, int | None] = (None, None)

    def tick(self) -> float:
        """Read once, work and send if that is due, and return the seconds until the next reading."""
        clock = self._clock
        now_s = clock.monotonic_s()
        self.digest.note_sample((now_s, clock.wall_s(), self._device.read()))
        if now_s >= self._send_due_s - _EARLY_S:
            due_s = self._send_due_s + SEND_S
            self._send_due_s = due_s if due_s > now_s else now_s + SEND_S
            backend = self._device.backend
            pinned = backend.read_pinned() if backend is not None else None
            self._slow = pinned, self.resident.read_bytes()
            self._exchange(now_s)
        self._answer()
        # From the reading's own moment: the grid is fixed, so a late reading does not delay the next one.
        return self._pace.find_next(now_s) - now_s

    def send_now(self) -> None:
        """Send what waits, from another thread; leave it to the sampler if that is sending."""
        if self._exchanging.acquire(timeout=_LONGEST_WAIT_S):
            try:
                if not self.outbox.has_hello:
                    self._announce()
                self._send()
            finally:
                self._exchanging.release()

    def work_now(self) -> None:
        """Work through the notes from another thread, so that the rows are up to date."""
        if self._exchanging.acquire(timeout=_LONGEST_WAIT_S):
            try:
                self._work()
            finally:
                self._exchanging.release()

    def close(self, reason: str, *, has_reported: bool, has_used: bool) -> None:
        """Send what waits and a goodbye, as far as the hub takes it at once, and disconnect.

        Args:
            has_reported: The hub knows this process, or shall get to know it.
            has_used: This process has used the device, so that its peaks are of interest.
        """
        if not self._exchanging.acquire(timeout=_LONGEST_WAIT_S):
            return
        try:
            self._work()
            if has_used:
                self._write_peaks()
            if has_reported:
                if not self.outbox.has_hello:
                    self._announce()
                self._send()
                self.connection.send(encode_goodbye(reason))
            self.connection.close()
        finally:
            self._exchanging.release()
        self.resident.close()

    def _exchange(self, now_s: float) -> None:
        with self._exchanging:
            self._work()
            if self.peaks.is_due:
                self._write_peaks()
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
        """Send what was demanded as soon as it is ready, because a viewer waits for it."""
        try:
            if self.answer():
                with self._exchanging:
                    self._send()
        except Exception as error:  # noqa: BLE001 - an allocator may refuse what it is asked for
            current.note_failure("the demand for segments", error)

    def _serve(self, packet: bytes) -> None:
        """Serve a demand; a failure is a note, and the readings go on."""
        demand = decode_demand(packet)
        if demand is None:
            return
        try:
            self.serve(demand)
        except Exception as error:  # noqa: BLE001 - an allocator may refuse what it is asked for
            current.note_failure(f"the demand for {demand.kind}", error)

    def _work(self) -> None:
        """Work through the notes; look closer if they give reasons."""
        announced = self.announcement
        digest = self.digest
        digest.work(self._slow, announced.capacity_bytes or announced.total_bytes)
        if digest.suspicion.has_grounds:
            digest.suspicion.has_grounds = False
            self._history.suspect(digest.suspicion.allocations_per_step)

    def _write_peaks(self) -> None:
        """Write the peaks of the allocator, or of the readings where the driver has failed meanwhile."""
        backend = self._device.backend
        if backend is not None and self.peaks.is_wanted:
            with suppress(Exception):
                self.peaks.note_statistics(backend.read_statistics(self._device.index))
            describe = (find_simulation(self._device.module) or {}).get("describe_uses")
            self.peaks.write(
                self.announcement.composed or self.announcement.compose(),
                None if describe is None else describe(),
            )

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
