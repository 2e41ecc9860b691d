"""What the allocator recorded lately, read event by event, and the functions that watch for it."""

from __future__ import annotations

import _thread
import functools
import inspect
import sys
import threading
import time
from collections import deque
from itertools import repeat
from typing import NamedTuple

from .backends import Reading
from .base import current
from .base.foreign import Foreign, Module
from .clock import SystemClock

# Assumed cost of one recorded allocation: twice the 2 µs that PyTorch states for a Python stack.
SECONDS_PER_ALLOCATION = 4e-6
SHARE = 0.01
# The recording may take `SHARE` of the time, averaged over such a period.
PERIOD_S = 60.0
MOST_STEPS = 100
LONGEST_S = 60.0
LONGEST_DEMAND_S = 600.0
# For this long a step that ends may switch off what is due; then our own thread does.
_GRACE_S = 1.0
_FLOORS = 32
# So many rises among so many floors, without a fall, make a suspicion.
_RISES = 12
# Steps between two checks whether the floor climbs.
_LOOK_EVERY = 8
_SMALL_HEADROOM = 0.05


class MemoryHistory:
    """Switches the recording, in the thread that trains and between two steps.

    Only if no step ends when it is time (a long evaluation, a hang), our own thread switches it off.

    Recording is `state` with Python stacks and one trace entry: the blocks carry their stacks, the ring of
    traces that fills host memory is not kept. If the program records itself, or begins to, nothing is
    touched.
    """

    def __init__(self, clock: SystemClock) -> None:
        # `off`, `on` (by us) or `user`.
        self.mode = "off"
        # Why a demand was not met, in one sentence.
        self.note: str | None = None
        self._clock = clock
        self._wanted_until_s: float | None = None
        self._is_end_wanted = False
        self._ends_s = 0.0
        self._steps_left = 0
        self._steps_wanted: int | None = None
        self._next_suspicion_s = float("-inf")

    @property
    def needs_steps(self) -> bool:
        """The end of every step matters, because something is to be switched."""
        return self.mode == "on" or self._wanted_until_s is not None or self._is_end_wanted

    def demand(self, is_on: bool, seconds: float | None) -> None:
        """Note a demand of a hub; it is answered at the end of the next step, and prolongs our recording.

        Args:
            seconds: How long at most; None for a minute.
        """
        limit_s = min(LONGEST_S if seconds is None else seconds, LONGEST_DEMAND_S)
        self._steps_wanted = None
        self._wanted_until_s = self._clock.monotonic_s() + limit_s if is_on else None
        self._is_end_wanted = not is_on

    def suspect(self, allocations_per_step: int | None) -> None:
        """Record as many steps as the share of a period allows for, none if that is unknown, then rest."""
        now_s = self._clock.monotonic_s()
        steps = count_affordable_steps(allocations_per_step)
        if self.mode == "off" and now_s >= self._next_suspicion_s and steps:
            self._next_suspicion_s = now_s + PERIOD_S
            self._steps_wanted = steps
            self._wanted_until_s = now_s + LONGEST_S

    def meet_step(self, torch: Module) -> None:
        """Switch on or off what is due; called at the end of a step by the thread that trains."""
        self._yield_to_program(torch)
        if self.mode == "on":
            if self._wanted_until_s is not None:
                self._ends_s = max(self._ends_s, self._wanted_until_s)
                self._steps_left = MOST_STEPS * 100
            self._steps_left -= 1
            is_over = self._clock.monotonic_s() >= self._ends_s or self._steps_left <= 0
            if self._is_end_wanted or is_over:
                self._switch_off(torch)
        elif self._wanted_until_s is not None:
            self._switch_on(torch, self._wanted_until_s, self._steps_wanted)
        self._is_end_wanted = False
        self._wanted_until_s = None

    def end_overdue(self, torch: Module) -> None:
        """Switch off what no end of a step has; called by our own thread, each time it sends."""
        self._yield_to_program(torch)
        if self.mode == "on" and self._clock.monotonic_s() >= self._ends_s + _GRACE_S:
            self._switch_off(torch)

    def _yield_to_program(self, torch: Module) -> None:
        """Leave the recording to the program if it has used the switch since ours began."""
        if self.mode == "on" and is_taken_over():
            end_recording(torch)
            self.mode = "user" if is_recording(torch) else "off"

    def _switch_on(self, torch: Module, ends_s: float, steps: int | None) -> None:
        if find_recorder(torch) is None or not reports_recording(torch):
            self.note = "this build of PyTorch cannot record the stacks of live blocks"
            return
        if is_recording(torch):
            self.mode = "user"
            self.note = None
            return
        # Before the mode is `on`, because our own thread looks at both.
        self._ends_s = ends_s
        self._steps_left = MOST_STEPS * 100 if steps is None else steps
        try:
            begin_recording(torch)
        except RuntimeError as error:
            self.note = f"the allocator refused to record the stacks of live blocks: {error}"[:300]
            return
        self.mode = "on"
        self.note = None

    def _switch_off(self, torch: Module) -> None:
        self.mode = "off"
        end_recording(torch)


class Suspicion:
    """Reasons to look closer: retries, a floor that climbs, or little headroom."""

    def __init__(self) -> None:
        # Whether any were found since it was last set to False.
        self.has_grounds = False
        self.allocations_per_step: int | None = None
        self._counted: tuple[int, int] | None = None
        self._steps = 0
        self._retries: int | None = None
        self._floors: deque[int] = deque(maxlen=_FLOORS)

    def judge(self, reading: Reading, capacity: int | None) -> None:
        """Judge a sample. `capacity`: bytes that the allocator may reserve, or the device's total."""
        retried = self._retries is not None and (reading.retries or 0) > self._retries
        self._retries = reading.retries
        self._count_allocations(reading.allocations)
        if retried or _is_near(reading.peak_bytes, capacity):
            self.has_grounds = True

    def note_floor(self, floor: int | None) -> None:
        """Judge the floor of a step that ended."""
        self._steps += 1
        if floor is not None:
            self._floors.append(floor)
        if self._steps % _LOOK_EVERY == 0 and self._climbs():
            self.has_grounds = True

    def _count_allocations(self, allocations: int | None) -> None:
        """Derive the allocations of a step from the counts at two samples with steps between."""
        if allocations is None:
            return
        if self._counted is not None and self._steps > self._counted[1]:
            made = allocations - self._counted[0]
            steps = self._steps - self._counted[1]
            self.allocations_per_step = max(0, -(-made // steps))
        elif self._counted is not None:
            return
        self._counted = (allocations, self._steps)

    def _climbs(self) -> bool:
        floors = list(self._floors)
        moves = [after - before for before, after in zip(floors, floors[1:])]
        return sum(move > 0 for move in moves) >= _RISES and min(moves) >= 0


def count_affordable_steps(allocations_per_step: int | None) -> int:
    """Return how many steps a period may record within 1 % of it; none if allocations were not measured."""
    if allocations_per_step is None:
        return 0
    cost_s = SECONDS_PER_ALLOCATION * max(1, allocations_per_step)
    return min(MOST_STEPS, int(SHARE * PERIOD_S / cost_s))


def _is_near(peak_bytes: int | None, capacity: int | None) -> bool:
    return bool(peak_bytes and capacity and capacity - peak_bytes < _SMALL_HEADROOM * capacity)


_ENTRIES = (
    ("cuda", "memory", "_record_memory_history"),
    # A program that imported the function by its name comes by here.
    ("_C", "_cuda_record_memory_history"),
    ("_C", "_cuda_record_memory_history_legacy"),
)


class _Watched(NamedTuple):
    owner: Module
    name: str
    original: Foreign
    watcher: Foreign


class _Recording:
    """Our recording, and whether the program has used the switch since it began."""

    def __init__(self) -> None:
        # Calls by the program that did not raise.
        self.calls = 0
        self._watched: list[_Watched] = []

    def watch(self, torch: Module) -> None:
        """Put a watcher before each entry of the switch; skip one that cannot be replaced."""
        for *path, name in _ENTRIES:
            owner = functools.reduce(lambda it, part: getattr(it, part, None), path, torch)
            original = getattr(owner, name, None)
            if original is None:
                continue
            watcher = self._make_watcher(original)
            try:
                setattr(owner, name, watcher)
            except (AttributeError, TypeError):
                continue
            self._watched.append(_Watched(owner, name, original, watcher))

    def restore(self) -> None:
        """Remove the watchers, but for one that the program has wrapped: that only passes calls on."""
        for owner, name, original, watcher in self._watched:
            if getattr(owner, name, None) is watcher:
                setattr(owner, name, original)

    def _make_watcher(self, original: Foreign) -> Foreign:
        @functools.wraps(original)
        def watcher(*arguments: Foreign, **named: Foreign) -> Foreign:
            # Counted before, so that no end of ours falls between the call and the count.
            self.calls += 1
            try:
                return original(*arguments, **named)
            except BaseException:
                self.calls -= 1
                raise

        return watcher


# Our recording, or empty. `pop` makes sure that of two threads that end it one does.
_ours: list[_Recording] = []


def begin_recording(torch: Module) -> None:
    """Record the stacks of live blocks, and notice from here on when the program uses the switch."""
    find_recorder(torch)(enabled="state", context="alloc", stacks="python", max_entries=1)
    recording = _Recording()
    recording.watch(torch)
    _ours.append(recording)


def end_recording(torch: Module) -> None:
    """Switch our recording off, unless the program has used the switch since: what runs then is its own.

    May be called by any thread, and if no recording of ours runs.
    """
    try:
        recording = _ours.pop()
    except IndexError:
        return
    recording.restore()
    record = find_recorder(torch)
    if record is not None and not recording.calls:
        record(enabled=None)


def is_taken_over() -> bool:
    """Return whether the program has used the switch since our recording began."""
    return any(recording.calls for recording in tuple(_ours))


def find_recorder(torch: Module) -> Foreign:
    """Return the function that switches the recording, or None if it is missing or of the first kind.

    The first kind (PyTorch 2.0) has other arguments and could lock up the process.
    """
    record = getattr(getattr(getattr(torch, "cuda", None), "memory", None), "_record_memory_history", None)
    try:
        names = set(inspect.signature(record).parameters) if record is not None else set()
    except (TypeError, ValueError):
        return None
    return record if {"enabled", "context", "stacks", "max_entries"} <= names else None


def reports_recording(torch: Module) -> bool:
    """Return whether this PyTorch reports when history is recorded."""
    return getattr(getattr(torch, "_C", None), "_cuda_isHistoryEnabled", None) is not None


def is_recording(torch: Module) -> bool:
    """Return whether history is recorded, by us or the program; a plugged-in allocator cannot record."""
    ask = getattr(getattr(torch, "_C", None), "_cuda_isHistoryEnabled", None)
    try:
        return ask is not None and bool(ask())
    except RuntimeError:
        return False


# It stands on a private name of PyTorch (`torch._C._cuda_attach_out_of_memory_observer`), which builds for
# the CPU lack; it has not been run on a GPU yet. On a simulated device the simulation calls the same entry
# itself.

# Modules torch, and whether the observer is attached to it.
_judged: list[tuple[Module, bool]] = []
_LOOK_EVERY_S = 0.01
_MOST_LOOKS = 500
_REFUSAL = (
    "out-of-memory errors leave no record: this PyTorch is too old; its allocator calls observers while "
    "it holds its own lock"
)


def attach_observer(torch: Module) -> bool:
    """Attach the one observer of this process; return whether it is attached.

    Only after the runtime was initialised: before that the call crashes the process. There is no way to
    detach it, so it is a function that does nothing without a session. If the allocator holds its lock as it
    calls (PyTorch 2.0, known by its recorder), another thread that allocates with the GIL held would lock up
    the process with ours: there is no observer then, and a note says so.
    """
    for known, stands in _judged:
        if known is torch:
            return stands
    attach = getattr(getattr(torch, "_C", None), "_cuda_attach_out_of_memory_observer", None)
    if attach is None or not torch.cuda.is_initialized():
        return False
    if hasattr(torch.cuda, "_vramscope_simulated"):
        # The simulation reports its errors itself; the allocator of a build for CUDA is not in use then.
        _judged.append((torch, False))
        return False
    refusal = _REFUSAL if find_recorder(torch) is None else _try_to_attach(attach)
    _judged.append((torch, refusal is None))
    if refusal is not None:
        current.failures.append(refusal)
    return refusal is None


def is_observer_settled(torch: Module) -> bool:
    """Nothing is left to attach: the observer is attached, was refused, or this build knows none."""
    has_none = getattr(getattr(torch, "_C", None), "_cuda_attach_out_of_memory_observer", None) is None
    return has_none or any(known is torch for known, _ in _judged)


def _try_to_attach(attach: Foreign) -> str | None:
    """Attach, and return why that was refused: a plugged-in allocator accepts no observer."""
    try:
        attach(observe_out_of_memory)
    except RuntimeError as error:
        return f"out-of-memory errors leave no record: the allocator accepts no observer ({error})"[:300]
    return None


def observe_out_of_memory(device: int, size_bytes: int, total_bytes: int, free_bytes: int) -> None:
    """Write the record of an error that the allocator is about to raise.

    An exception would be thrown into the allocator, so nothing leaves this function. A Ctrl-C meanwhile is
    meant for the program, which gets it as soon as the observer is left.

    Args:
        size_bytes: Bytes that the allocator asked the device for.
        total_bytes: Bytes that the process may use of the device.
    """
    session = current.session
    if session is None and not current.oom_takers:
        return
    message = f"CUDA out of memory: {size_bytes} bytes requested, {free_bytes} free"
    try:
        current.call_takers(size_bytes, message, free_bytes, device, total_bytes)
        if session is not None:
            session.record_out_of_memory(size_bytes, message, free_bytes, device, total_bytes)
    except KeyboardInterrupt as error:
        current.note_failure("the record of an out-of-memory error", error)
        _interrupt_afterwards()
    except BaseException as error:  # noqa: BLE001 - an exception here would end in C++
        current.note_failure("the record of an out-of-memory error", error)


def _interrupt_afterwards() -> None:
    """Make another thread interrupt the main one: an interrupt from here would be raised right here."""
    try:
        _thread.start_new_thread(_interrupt_once_left, ())
    except RuntimeError as error:
        current.note_failure("giving a Ctrl-C back to the program", error)


def _interrupt_once_left() -> None:
    for _ in repeat(None, _MOST_LOOKS):
        time.sleep(_LOOK_EVERY_S)
        if not _is_observing():
            break
    _thread.interrupt_main()


def _is_observing() -> bool:
    """Return whether the main thread is inside the observer."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code is not observe_out_of_memory.__code__:
        frame = frame.f_back
    return frame is not None
