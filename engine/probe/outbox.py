"""What waits to be sent: bounded everywhere, the oldest goes first, and every lost reading is counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Callable

from . import wire

MOST_READINGS = 300
"""Half a minute at ten a second."""
MOST_STEPS = 600
_MOST_ERRORS = 8
_PARTS_AT_ONCE = 4
"""Parts of an answer that go out in one flush, so that readings are never far behind."""


class Outbox:
    """Messages on their way to the hub. Steps may be put in by the thread that trains, all else by ours."""

    def __init__(self) -> None:
        self.dropped = 0
        """Readings that were lost since the start."""
        self.counts: tuple[int | None, int | None] = (None, None)
        """Allocations and frees since the start of the process, as of the newest reading."""
        self.phase: str | None = None
        self.memory_history = "off"
        self._hello: dict[str, Any] | None = None
        self._is_hello_due = False
        self._model_state: dict[str, int | None] | None = None
        self._is_model_state_due = False
        self._readings: deque[wire.ReadingRow] = deque()
        self._steps: deque[wire.StepRow | wire.SizedStepRow] = deque(maxlen=MOST_STEPS)
        self._phases: dict[str, wire.PhaseRow] = {}
        """The newest row of each name, of which there are few."""
        self._phases_due: dict[str, wire.PhaseRow] = {}
        self._errors: deque[bytes] = deque(maxlen=_MOST_ERRORS)
        self._parts: dict[str, deque[bytes]] = {}
        self._pending: bytes | None = None
        """A packet that was made and found no room; the next one to go."""

    @property
    def has_hello(self) -> bool:
        """Whether it is known who reports."""
        return self._hello is not None

    def say_hello(self, about: dict[str, Any]) -> None:
        """Announce who reports, where that differs from what was announced."""
        if about != self._hello:
            self._hello = about
            self._is_hello_due = True

    def begin_connection(self) -> None:
        """Let the hello go first on a new connection, and model state and phases, where known, go again."""
        self._is_hello_due = self._hello is not None
        self._phases_due = dict(self._phases)
        self._is_model_state_due = self._model_state is not None
        self._parts.clear()

    def put_reading(self, row: wire.ReadingRow) -> None:
        """Take one reading; where there is no room, the oldest is lost and counted."""
        if len(self._readings) >= MOST_READINGS:
            self._readings.popleft()
            self.dropped += 1
        self._readings.append(row)

    def put_step(self, row: wire.StepRow | wire.SizedStepRow) -> None:
        """Take one step that ended."""
        self._steps.append(row)

    def put_phase(self, row: wire.PhaseRow) -> None:
        """Take what is known of a named part; only the newest of each name is sent."""
        self._phases[row[0]] = self._phases_due[row[0]] = row

    def put_model_state(self, state: dict[str, int | None]) -> None:
        """Take the bytes of the model; only the newest are ever sent, and only where they changed."""
        if state != self._model_state:
            self._model_state = state
            self._is_model_state_due = True

    def put_out_of_memory(self, packet: bytes) -> None:
        """Take the packet about an out-of-memory error."""
        self._errors.append(packet)

    def put_parts(self, kind: str, packets: list[bytes]) -> None:
        """Take the parts of an answer; they replace those of an earlier one of the kind."""
        self._parts[kind] = deque(packets)

    def has_parts(self, kind: str) -> bool:
        """Tell whether parts of an answer of a kind wait to be sent."""
        return bool(self._parts.get(kind))

    def flush(self, send: Callable[[bytes], bool]) -> bool:
        """Send what there is until there is no room; tell whether everything went out."""
        if self._is_hello_due and self._hello is not None:
            if not send(wire.encode_hello(self._hello)):
                return False
            self._is_hello_due = False
        for packet in self._packets():
            if not send(packet):
                self._pending = packet
                return False
        return True

    def _packets(self) -> Iterator[bytes]:
        """Yield packets; one that was yielded is no longer waiting."""
        if self._pending is not None:
            packet = self._pending
            self._pending = None
            yield packet
        while self._errors:
            yield self._errors.popleft()
        if self._is_model_state_due and self._model_state is not None:
            self._is_model_state_due = False
            yield wire.encode_model_state(self._model_state)
        while self._steps:
            yield wire.encode_steps(_take(self._steps))
        if self._phases_due:
            phases = self._phases_due
            self._phases_due = {}
            yield wire.encode_phases(list(phases.values()))
        while self._readings:
            rows = _take(self._readings)
            yield wire.encode_readings(rows, self.dropped, self.phase, self.memory_history, self.counts)
        for parts in tuple(self._parts.values()):
            for _ in range(min(_PARTS_AT_ONCE, len(parts))):
                yield parts.popleft()


def _take(waiting: deque[Any]) -> list[Any]:
    """Remove and return the oldest rows that one packet may carry; another thread may add meanwhile."""
    return [waiting.popleft() for _ in range(min(len(waiting), wire.MOST_ROWS))]
