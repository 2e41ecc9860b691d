"""Beats: from each sample of a subject the least and the most it held since the one before.

A training process with steps beats once a tick in which steps ended, with the floor and the peak of those
steps. Anything else beats with every sample, at an unknown moment of a step.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ...engine.model import RankSample
from ..findings.subjects import Subject

# `step`: bounds of whole steps; `sample`: allocated bytes at any moment; `device`: only device used; `host`:
# resident host memory.
BeatKind = Literal["step", "sample", "device", "host"]

# The history ring rounds values of processes up to this; decisions use nothing finer either.
SECTOR_BYTES = 512


class Beat(NamedTuple):
    time_s: float
    low_bytes: int
    high_bytes: int
    # Steps within it; 0 where that is unknown.
    steps: int
    # Number of the newest step.
    step: int | None
    kind: BeatKind
    # Reserved by the allocator; 0 where that is unknown.
    reserved_bytes: int = 0
    # Free in segments with live blocks (`inactive_split_bytes`); 0 where that is unknown.
    split_bytes: int = 0


def read_beat(subject: Subject) -> Beat | None:
    """Read the floor of a subject from a sample; None where it brings nothing new."""
    if subject.rank is not None and subject.rank.step is not None:
        return _read_steps(subject, subject.rank)
    allocator = subject.allocator
    if allocator.allocated_bytes is not None:
        low = round_sector(allocator.allocated_bytes)
        high = round_sector(allocator.allocated_max_bytes or 0)
        reserved = allocator.reserved_bytes or 0
        return Beat(subject.sample.time_s, low, max(low, high), 0, subject.step, "sample", reserved)
    return _read_device(subject)


def round_sector(value: int) -> int:
    return -(-value // SECTOR_BYTES) * SECTOR_BYTES


def _read_steps(subject: Subject, rank: RankSample) -> Beat | None:
    if not rank.steps_within or rank.floor_min_bytes is None:
        return None
    low = round_sector(rank.floor_min_bytes)
    high = rank.peak_max_bytes
    if high is None:
        high = subject.allocator.allocated_max_bytes
    most = low if high is None else max(low, round_sector(high))
    reserved = round_sector(subject.allocator.reserved_bytes or 0)
    split = round_sector(subject.allocator.inactive_split_bytes or 0)
    return Beat(subject.sample.time_s, low, most, rank.steps_within, subject.step, "step", reserved, split)


def _read_device(subject: Subject) -> Beat | None:
    if subject.device is None or subject.device.memory.used_bytes is None:
        return None
    memory = subject.device.memory
    used = subject.device.memory.used_bytes
    high = memory.used_max_bytes
    return Beat(subject.sample.time_s, used, used if high is None else max(used, high), 0, None, "device")


# Blocks of beats at doubling scales: least and most of each, for a whole life, in bounded memory.

# Newest blocks that each scale keeps.

KEPT = 16
MAX_LEVELS = 16


class Block(NamedTuple):
    """Consecutive beats as one."""

    start_s: float
    end_s: float
    # Least of the lows.
    low: int
    # When it was read: at the beginning of a block where floors grow.
    low_s: float
    # The least but one: its distance from the least measures how blurred that is.
    low_next: int
    # Most of the highs.
    high: int
    high_s: float
    high_next: int
    # Most reserved bytes; 0 where they are not known.
    reserved: int
    # Steps within, as far as they are known.
    steps: int
    # Number of the newest step.
    last_step: int | None
    # Mean of the lows.
    mean: float

    @property
    def mid_s(self) -> float:
        return (self.start_s + self.end_s) / 2

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def blur(self) -> int:
        """How far the least may be above the true floor.

        Of many readings at random moments of a sawtooth, the least exceeds the floor on average by as much
        as the next one exceeds the least: the spacings of the extreme order statistics of a uniform sample
        are alike (David and Nagaraja, Order Statistics, 3rd edition, section 2.5).
        """
        return self.low_next - self.low


def turn_over(block: Block) -> Block:
    """Return a block whose most takes the place of the least: peaks are judged as floors are."""
    start_s, end_s, _, _, _, high, high_s, high_next, reserved, steps, last_step, mean = block
    low_next = high + (high - high_next)
    return Block(
        start_s, end_s, high, high_s, low_next, high, high_s, high_next, reserved, steps, last_step, mean
    )


def join(first: Block, second: Block) -> Block:
    """Join two consecutive blocks of as many beats each."""
    low, other_low = (first, second) if first.low <= second.low else (second, first)
    high, other_high = (first, second) if first.high >= second.high else (second, first)
    return Block(
        first.start_s,
        second.end_s,
        low.low,
        low.low_s,
        min(low.low_next, other_low.low),
        high.high,
        high.high_s,
        max(high.high_next, other_high.high),
        max(first.reserved, second.reserved),
        first.steps + second.steps,
        second.last_step if second.last_step is not None else first.last_step,
        (first.mean + second.mean) / 2,
    )


class BlockPyramid:
    """Blocks of `base`, twice `base`, four times `base` … beats; the newest of each scale are kept."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._beats: list[Beat] = []
        self._start_s: float | None = None
        self._pending: list[Block | None] = []
        self.levels: list[deque[Block]] = []

    def add(self, beat: Beat) -> int:
        """Add a beat; return how many scales, from the finest on, completed a block by it."""
        self._beats.append(beat)
        if len(self._beats) < self._base:
            return 0
        block = self._close_beats()
        return self._carry(block)

    def latest(self, level: int, count: int) -> Sequence[Block]:
        """Return the newest blocks of one scale, oldest first; fewer where there are not so many."""
        if level >= len(self.levels):
            return ()
        blocks = self.levels[level]
        return tuple(blocks)[-count:]

    def mosaic(self, finest: int = 0) -> list[Block]:
        """Return blocks that cover the life once, oldest first: coarse where long ago, `finest`
        where recent.
        """
        return [block for blocks in self.mosaic_by_scale(finest) for block in blocks]

    def mosaic_by_scale(self, finest: int = 0) -> list[list[Block]]:
        """Return the blocks of `mosaic` by their scale, the coarsest first."""
        found: list[list[Block]] = []
        before_s = math.inf
        for kept in self.levels[finest:]:
            blocks = [block for block in kept if block.end_s <= before_s]
            if blocks:
                found.insert(0, blocks)
                before_s = blocks[0].start_s
        return found

    def _close_beats(self) -> Block:
        beats = self._beats
        self._beats = []
        lows = sorted([(beat.low_bytes, beat.time_s) for beat in beats])
        highs = sorted([(beat.high_bytes, beat.time_s) for beat in beats])
        start_s = beats[0].time_s if self._start_s is None else self._start_s
        self._start_s = beats[-1].time_s
        return Block(
            start_s,
            beats[-1].time_s,
            *lows[0],
            lows[min(1, len(lows) - 1)][0],
            *highs[-1],
            highs[max(-2, -len(highs))][0],
            max([beat.reserved_bytes for beat in beats]),
            sum([beat.steps for beat in beats]),
            beats[-1].step,
            sum([low for low, _ in lows]) / len(lows),
        )

    def _carry(self, block: Block) -> int:
        level = 0
        while True:
            if level == len(self.levels):
                self.levels.append(deque(maxlen=KEPT))
                self._pending.append(None)
            self.levels[level].append(block)
            waiting = self._pending[level]
            if waiting is None or level + 1 == MAX_LEVELS:
                self._pending[level] = block
                return level + 1
            self._pending[level] = None
            block = join(waiting, block)
            level += 1
