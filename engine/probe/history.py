"""PyTorch's record of where live blocks were allocated: on for a few steps, and off again."""

from __future__ import annotations

from collections import deque

from .backends import Reading
from .base.foreign import Module
from .clock import SystemClock
from .recorder import begin_recording, can_tell, end_recording, find_recorder, is_recording, is_taken_over

SECONDS_PER_ALLOCATION = 4e-6
"""Assumed cost of one recorded allocation: twice the 2 µs that PyTorch states for a Python stack."""
SHARE = 0.01
PERIOD_S = 60.0
"""The recording may take so much of this time, averaged over such a period."""
MOST_STEPS = 100
LONGEST_S = 60.0
LONGEST_DEMAND_S = 600.0
_GRACE_S = 1.0
"""In which a step that ends may switch off what is due; after it our own thread does."""
_FLOORS = 32
_RISES = 12
"""Rises among so many floors, without a fall, that make a suspicion."""
_LOOK_EVERY = 8
"""Steps between two looks whether the floor climbs."""
_SMALL_HEADROOM = 0.05


class MemoryHistory:
    """Switches the recording, in the thread that trains and between two steps.

    Only where no step ends when it is time (a long evaluation, a hang), our own thread switches it off.
    Recording is `state` with Python stacks and one trace entry: the blocks carry their stacks, the ring of
    traces that fills host memory is not kept. Where the program records itself, or begins to,
    nothing is touched.
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
        """Take what a hub asks; it is met at the end of the next step, and makes a recording of ours longer.

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
        self._give_way(torch)
        if self.mode == "on":
            self._prolong()
            self._steps_left -= 1
            is_over = self._clock.monotonic_s() >= self._ends_s or self._steps_left <= 0
            if self._is_end_wanted or is_over:
                self._switch_off(torch)
        elif self._wanted_until_s is not None:
            self._switch_on(torch, self._wanted_until_s, self._steps_wanted)
        self._is_end_wanted = False
        self._wanted_until_s = None

    def end_overdue(self, torch: Module) -> None:
        """Switch off what no end of a step has; called by our own thread, each time it sends.

        Args:
            torch: The module.
        """
        self._give_way(torch)
        if self.mode == "on" and self._clock.monotonic_s() >= self._ends_s + _GRACE_S:
            self._switch_off(torch)

    def _prolong(self) -> None:
        if self._wanted_until_s is not None:
            self._ends_s = max(self._ends_s, self._wanted_until_s)
            self._steps_left = MOST_STEPS * 100

    def _give_way(self, torch: Module) -> None:
        """Leave the recording to the program where that has used the switch since ours began."""
        if self.mode == "on" and is_taken_over():
            end_recording(torch)
            self.mode = "user" if is_recording(torch) else "off"

    def _switch_on(self, torch: Module, ends_s: float, steps: int | None) -> None:
        if find_recorder(torch) is None or not can_tell(torch):
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
    """Return how many steps may be recorded in a period: their cost stays within its share of 1 %.

    Args:
        allocations_per_step: None where it was not measured; then nothing is affordable.
    """
    if allocations_per_step is None:
        return 0
    cost_s = SECONDS_PER_ALLOCATION * max(1, allocations_per_step)
    return min(MOST_STEPS, int(SHARE * PERIOD_S / cost_s))


def _is_near(peak_bytes: int | None, capacity: int | None) -> bool:
    return bool(peak_bytes and capacity and capacity - peak_bytes < _SMALL_HEADROOM * capacity)
