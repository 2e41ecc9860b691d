"""PyTorch's record of where live blocks were allocated: on for a few steps, and off again."""

from __future__ import annotations

import inspect
from collections import deque

from .backends import Reading
from .clock import SystemClock
from .foreign import Foreign, Module

SECONDS_PER_ALLOCATION = 4e-6
"""Assumed cost of one recorded allocation: twice the 2 µs that PyTorch states for a Python stack."""
SHARE = 0.01
PERIOD_S = 60.0
"""The recording may take so much of this time, averaged over such a period."""
MOST_STEPS = 100
LONGEST_S = 60.0
LONGEST_DEMAND_S = 600.0
_FLOORS = 32
_RISES = 12
"""Rises among so many floors, without a fall, that make a suspicion."""
_LOOK_EVERY = 8
"""Steps between two looks whether the floor climbs."""
_SMALL_HEADROOM = 0.05


class MemoryHistory:
    """Switches the recording, always in the thread that trains and between two steps.

    Recording is `state` with Python stacks and one trace entry: the blocks carry their stacks, the ring of
    traces that fills host memory is not kept. Where the program records itself, nothing is touched.
    """

    def __init__(self, clock: SystemClock) -> None:
        self.mode = "off"
        """`off`, `on` (by us) or `user`."""
        self.note: str | None = None
        """Why a demand was not met, in one sentence."""
        self._clock = clock
        self._wanted_until_s: float | None = None
        self._is_end_wanted = False
        self._ends_s = 0.0
        self._steps_left = 0
        self._steps_wanted: int | None = None
        self._next_suspicion_s = float("-inf")

    @property
    def needs_steps(self) -> bool:
        """Whether the end of every step matters, because something is to be switched."""
        return self.mode == "on" or self._wanted_until_s is not None or self._is_end_wanted

    def demand(self, is_on: bool, seconds: float | None) -> None:
        """Take what a hub asks; it is met at the end of the next step.

        Args:
            is_on: Whether to record.
            seconds: How long at most; None for a minute.
        """
        limit_s = min(LONGEST_S if seconds is None else seconds, LONGEST_DEMAND_S)
        self._steps_wanted = None
        self._wanted_until_s = self._clock.monotonic_s() + limit_s if is_on else None
        self._is_end_wanted = not is_on

    def suspect(self, allocations_per_step: int | None) -> None:
        """Record as many steps as the share of a period allows for, then rest for the period.

        Args:
            allocations_per_step: None where it is not known; then nothing is recorded.
        """
        now_s = self._clock.monotonic_s()
        steps = count_affordable_steps(allocations_per_step)
        if self.mode == "off" and now_s >= self._next_suspicion_s and steps:
            self._next_suspicion_s = now_s + PERIOD_S
            self._steps_wanted = steps
            self._wanted_until_s = now_s + LONGEST_S

    def meet_step(self, torch: Module) -> None:
        """Switch on or off where that is due; called at the end of a step by the thread that trains.

        Args:
            torch: The module.
        """
        if self.mode == "on":
            self._steps_left -= 1
            is_over = self._clock.monotonic_s() >= self._ends_s or self._steps_left <= 0
            if self._is_end_wanted or is_over:
                self._switch_off(torch)
        elif self._wanted_until_s is not None:
            self._switch_on(torch, self._wanted_until_s, self._steps_wanted)
        self._is_end_wanted, self._wanted_until_s = False, None

    def _switch_on(self, torch: Module, ends_s: float, steps: int | None) -> None:
        record = find_recorder(torch)
        is_enabled = getattr(getattr(torch, "_C", None), "_cuda_isHistoryEnabled", None)
        if record is None or is_enabled is None:
            self.note = "this build of PyTorch cannot record the stacks of live blocks"
            return
        if is_enabled():
            self.mode, self.note = "user", None
            return
        record(enabled="state", context="alloc", stacks="python", max_entries=1)
        self.mode, self.note = "on", None
        self._ends_s = ends_s
        self._steps_left = MOST_STEPS * 100 if steps is None else steps

    def _switch_off(self, torch: Module) -> None:
        self.mode = "off"
        record = find_recorder(torch)
        if record is not None:
            record(enabled=None)


class Suspicion:
    """Grounds to look closer: retries, a floor that climbs, or little headroom."""

    def __init__(self) -> None:
        self.has_grounds = False
        """Whether any were found since it was set to False last."""
        self.allocations_per_step: int | None = None
        self._counted: tuple[int, int] | None = None
        self._steps = 0
        self._retries: int | None = None
        self._floors: deque[int] = deque(maxlen=_FLOORS)

    def judge(self, reading: Reading, capacity: int | None) -> None:
        """Take a sample.

        Args:
            reading: What the allocator says.
            capacity: Bytes that the allocator may reserve, or the device's total.
        """
        retried = self._retries is not None and (reading.retries or 0) > self._retries
        self._retries = reading.retries
        self._count_allocations(reading.allocations)
        if retried or _is_near(reading.peak_bytes, capacity):
            self.has_grounds = True

    def note_floor(self, floor: int | None) -> None:
        """Take the floor of a step that ended."""
        self._steps += 1
        if floor is not None:
            self._floors.append(floor)
        if self._steps % _LOOK_EVERY == 0 and self._climbs():
            self.has_grounds = True

    def _count_allocations(self, allocations: int | None) -> None:
        """Work out how many allocations a step makes, from the counts at two samples with steps between."""
        if allocations is None:
            return
        if self._counted is not None and self._steps > self._counted[1]:
            made, steps = allocations - self._counted[0], self._steps - self._counted[1]
            self.allocations_per_step = max(0, -(-made // steps))
        elif self._counted is not None:
            return
        self._counted = (allocations, self._steps)

    def _climbs(self) -> bool:
        floors = list(self._floors)
        moves = [after - before for before, after in zip(floors, floors[1:])]
        return sum(move > 0 for move in moves) >= _RISES and min(moves) >= 0


def count_affordable_steps(allocations_per_step: int | None) -> int:
    """Return how many steps may be recorded in a period: their cost stays within its share of 1 %.

    Args:
        allocations_per_step: None where it was not measured; then nothing is affordable.
    """
    if allocations_per_step is None:
        return 0
    cost_s = SECONDS_PER_ALLOCATION * max(1, allocations_per_step)
    return min(MOST_STEPS, int(SHARE * PERIOD_S / cost_s))


def find_recorder(torch: Module) -> Foreign:
    """Return the function that switches the recording, or None where it is missing or of the first kind.

    The first kind (PyTorch 2.0) takes other arguments and could lock up the process.
    """
    record = getattr(getattr(getattr(torch, "cuda", None), "memory", None), "_record_memory_history", None)
    try:
        names = set(inspect.signature(record).parameters) if record is not None else set()
    except (TypeError, ValueError):
        return None
    return record if {"enabled", "context", "stacks", "max_entries"} <= names else None


def is_recording(torch: Module) -> bool:
    """Tell whether anybody records, we or the program."""
    ask = getattr(getattr(torch, "_C", None), "_cuda_isHistoryEnabled", None)
    return ask is not None and bool(ask())


def _is_near(peak_bytes: int | None, capacity: int | None) -> bool:
    return bool(peak_bytes and capacity and capacity - peak_bytes < _SMALL_HEADROOM * capacity)
