"""Demands of a hub: segments, stacks, modules, to follow an advice, or to detach."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from . import wire
from .base import current
from .clock import SystemClock
from .flight_record import can_snapshot, pack_segments, take_snapshot
from .history import MemoryHistory, is_recording
from .identity import TrainingDevice
from .transport import Outbox

if TYPE_CHECKING:
    from .advice import Advice
    from .model_state import ModelStateWatch
    from .module_memory.watched_profile import ModuleDemands
    from .session import Session

# Between two segment maps, however often they are asked for.
_PAUSE_S = 1.0
_MOST_WANTED = 8
# For the end of a step, for any demand.
LONGEST_WAIT_S = 120.0


class _Wanted(NamedTuple):
    request: int
    # How long it may wait for the end of a step; None for at once.
    until_s: float | None


class _Taken(NamedTuple):
    """A map, and the demands that it answers."""

    requests: list[int]
    segments: list[dict[str, Any]]
    wall_s: float
    is_at_step_end: bool
    # By stack, where the framework lists what lives without segments.
    stacks: list[tuple[int, int, Any]] | None = None


class Demands:
    """Serves demands in our own thread; only maps of the end of a step are made by the thread that trains.

    Between two steps what serves a step only is freed, so that two such maps can be compared. If no step ends
    in time, or none ever has, the map is made at once and says so.
    """

    def __init__(
        self,
        device: TrainingDevice,
        outbox: Outbox,
        history: MemoryHistory,
        model: ModelStateWatch,
        session: Session,
        clock: SystemClock,
    ) -> None:
        self._device = device
        self._outbox = outbox
        self._history = history
        self._model = model
        self._modules: ModuleDemands | None = None
        self._advice: Advice | None = None
        self._session = session
        self._clock = clock
        self._newest_s = float("-inf")
        self._wanted: deque[_Wanted] = deque(maxlen=_MOST_WANTED)
        self._taken: deque[_Taken] = deque()

    @property
    def needs_steps(self) -> bool:
        modules = self._modules
        advice = self._advice
        return (
            (modules is not None and modules.needs_steps)
            or (advice is not None and advice.needs_steps)
            or self._needs_map
        )

    @property
    def _needs_map(self) -> bool:
        return any(it.until_s is not None for it in tuple(self._wanted))

    def serve(self, demand: wire.Demand) -> None:
        """Do what is asked; what cannot be done is left, and a note says why."""
        if demand.kind == "detach":
            self._session.end("detached")
        elif demand.kind == "history":
            self._history.demand(demand.is_on, demand.seconds)
        elif demand.kind == "modules":
            self._open_modules().want(demand.request, min(demand.seconds or LONGEST_WAIT_S, LONGEST_WAIT_S))
        elif demand.kind == "advise":
            self._open_advice().want(demand, min(demand.seconds or LONGEST_WAIT_S, LONGEST_WAIT_S))
        else:
            wait_s = demand.seconds
            until_s = None if wait_s is None else self._clock.monotonic_s() + min(wait_s, LONGEST_WAIT_S)
            self._wanted.append(_Wanted(demand.request, until_s))

    def meet_step(self, index: int) -> None:
        """Do what waits for the end of a step; called there by the thread that trains."""
        if self._modules is not None:
            self._modules.meet_step(index)
        if self._needs_map and self._clock.monotonic_s() - self._newest_s >= _PAUSE_S:
            try:
                self._make_map(is_at_step_end=True)
            except Exception as error:  # noqa: BLE001 - an allocator may refuse what it is asked for
                current.note_failure("the demand for segments", error)
        if self._advice is not None:
            self._advice.meet_step()

    def answer(self) -> bool:
        """Make the maps that are due, pack finished ones; return whether there were any."""
        if current.session is not self._session:
            return False
        now_s = self._clock.monotonic_s()
        is_due = any(it.until_s is None or now_s >= it.until_s for it in tuple(self._wanted))
        if is_due and now_s - self._newest_s >= _PAUSE_S:
            self._make_map(is_at_step_end=False)
        has_taken = bool(self._taken)
        while self._taken:
            taken = self._taken.popleft()
            pieces = pack_segments(
                taken.segments, taken.wall_s, is_at_step_end=taken.is_at_step_end, stacks=taken.stacks
            )
            packets = [
                wire.encode_segments_part(request, part, len(pieces), piece)
                for request in taken.requests
                for part, piece in enumerate(pieces)
            ]
            self._outbox.put_parts("segments", packets)
        has_modules = self._answer_from("modules", self._modules)
        return self._answer_from("advice", self._advice) or has_modules or has_taken

    def end(self) -> None:
        """Leave to the thread that trains what only it may take down."""
        modules = self._modules
        if modules is not None and modules.needs_steps:
            current.leave(lambda _: modules.end())

    def _open_modules(self) -> ModuleDemands:
        """Loaded on the first demand: most processes never have one."""
        if self._modules is None:
            from .module_memory.watched_profile import ModuleDemands

            self._modules = ModuleDemands(self._device.torch, lambda: self._model.optimizers, self._clock)
        return self._modules

    def _open_advice(self) -> Advice:
        if self._advice is None:
            from .advice import Advice

            self._advice = Advice(self._device, self._clock)
        return self._advice

    def _answer_from(self, kind: str, answering: ModuleDemands | Advice | None) -> bool:
        """Put answers of a kind into the outbox, after earlier ones are sent; return if there were any."""
        if answering is None or self._outbox.has_parts(kind):
            return False
        packets = answering.take_packets()
        if packets:
            self._outbox.put_parts(kind, packets)
        return bool(packets)

    def _make_map(self, *, is_at_step_end: bool) -> None:
        requests: list[int] = []
        while self._wanted:
            try:
                requests.append(self._wanted.popleft().request)
            except IndexError:
                break  # the other thread has taken the last
        module = self._device.module
        backend = self._device.backend
        stacks = None if backend is None else backend.find_live_stacks(self._device.index)
        if stacks is not None:
            self._newest_s = self._clock.monotonic_s()
            self._taken.append(_Taken(requests, [], self._clock.wall_s(), is_at_step_end, stacks))
        elif can_snapshot(module, is_history_on=is_recording(self._device.torch)):
            self._newest_s = self._clock.monotonic_s()
            segments = take_snapshot(module, self._device.index)
            self._taken.append(_Taken(requests, segments, self._clock.wall_s(), is_at_step_end))
