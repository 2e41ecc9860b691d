"""Runs through the allocator model: every tensor of every step, on a card that can be full.

Each step takes sixteen activations, keeps or lets go what the plan says, takes a workspace at its height, and
frees all but what is kept. The label of out of memory is the model's own: the event that finds no room after
the cache was given back, with what fragmentation does to it.
"""

from collections import deque

import numpy as np

from vramscope.analyzers.allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    PrivateDeviceMemory,
)
from vramscope.analyzers.allocator_model.blocks import Block
from vramscope.analyzers.allocator_model.heap import RuledHeap

from .counted import HEIGHT
from .job import MIB, Ints, Plan
from .life import Life

SHARES = (0.03, 0.09, 0.06, 0.06) * 4
"""Of the activations of a step; the rest is workspace, which is there at its height alone."""
WORKSPACE = 0.04
STATE_PARTS = 24
PIECE_BYTES, MOST_PIECES = MIB, 24
"""What is kept is many tensors, as a graph is, most of them small: pieces of 1 MiB where that makes few."""


class ModelledProcess:
    """One process on a card of its own; what others hold is taken from the card before it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._memory = PrivateDeviceMemory(plan.job.limit_bytes)
        self._heap = RuledHeap(self._memory, AllocatorSettings())
        self._kept: deque[tuple[Block, int]] = deque()
        self._kept_bytes = 0
        self._peak_bytes = 0

    def live(self, room_bytes: Ints | None = None) -> Life:
        """Run the plan to its end, or to the event that finds no room.

        Args:
            room_bytes: What the card has for this allocator at each step; its own limit without.
        """
        plan, rows, oom_s = self._plan, [], None
        self._take_state(1)
        for step in range(len(plan.durations_s)):
            if room_bytes is not None:
                self._memory.total_bytes = int(room_bytes[step])
            before = self._peak_bytes = self._allocated_bytes
            share = self._run_step(step)
            after = self._allocated_bytes
            rows.append((before, after, self._peak_bytes, *self._read_card()))
            if share is not None:
                oom_s = float(plan.ends_s[step] - (1 - share * HEIGHT) * plan.durations_s[step])
                break
        before, after, peak, *card = np.array(rows, dtype=np.int64).T
        ends = plan.ends_s[: len(rows)]
        return Life(plan.job, plan.start_s, ends, before, after, peak, card[0], card[1], card[2], oom_s)

    def _take_state(self, thirds: int) -> None:
        """Take parameters (a third of the state), or what the optimizer adds at its first step."""
        part = self._plan.job.state_bytes * thirds // 3 // STATE_PARTS
        for _ in range(STATE_PARTS):
            self._heap.take(part, 0)

    def _run_step(self, step: int) -> float | None:
        """Run a step; return how far on its way up it was when it found no room, or None."""
        most = int(self._plan.activation_bytes[step])
        live: list[Block] = []
        try:
            for share in SHARES:
                live.append(self._heap.take(int(most * share), 0))
            self._keep(int(self._plan.kept_bytes[step]) - self._kept_bytes)
            live.append(self._heap.take(int(most * WORKSPACE), 0))
        except AllocatorOutOfMemoryError:
            self._note_peak()
            return (len(live) + 1) / (len(SHARES) + 1)
        self._note_peak()
        while live:
            self._heap.give(live.pop())
        if step == 0:
            self._take_state(2)
        return None

    def _keep(self, more_bytes: int) -> None:
        """Hold so much more than before; where it is less, let go of the oldest first."""
        while more_bytes < 0 and self._kept:
            block, size = self._kept.popleft()
            self._heap.give(block)
            self._kept_bytes -= size
            more_bytes += size
        if more_bytes > 0:
            piece = max(PIECE_BYTES, -(-more_bytes // MOST_PIECES))
            for start in range(0, more_bytes, piece):
                size = min(piece, more_bytes - start)
                self._kept.append((self._heap.take(size, 0), size))
                self._kept_bytes += size

    def _note_peak(self) -> None:
        self._peak_bytes = max(self._peak_bytes, self._allocated_bytes)

    @property
    def _allocated_bytes(self) -> int:
        small, large = self._heap.small_tally, self._heap.large_tally
        return small.up_bytes - small.down_bytes + large.up_bytes - large.down_bytes

    def _read_card(self) -> tuple[int, int, int]:
        """Return what is reserved, what of it is stranded, and the retries so far."""
        stranded = 0
        for tally in (self._heap.small_tally, self._heap.large_tally):
            risen, fallen = tally.read_totals()[5]
            stranded += risen - fallen
        reserved = self._memory.total_bytes - self._memory.free_bytes()
        return reserved, stranded, self._heap.supply.counters.num_alloc_retries


def model_life(plan: Plan, room_bytes: Ints | None = None) -> Life:
    """Return what a plan does to memory, by the rules of the allocator.

    Args:
        plan: The steps of a process.
        room_bytes: What the card has for its allocator at each step; its own limit without.
    """
    return ModelledProcess(plan).live(room_bytes)
