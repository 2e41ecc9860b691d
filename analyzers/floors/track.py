"""The floors of one subject over its whole life, and whether they grow."""

from collections import deque
from collections.abc import Sequence

from .beat import Beat
from .blocks import KEPT, Block, BlockPyramid, turn_over
from .growth import PHI_LEAST, WINDOWS, Growth, judge_growth
from .phase import RECENT, is_locked
from .rate import Line, fit_curve

WINDOW = WINDOWS[0]

BASES = {"step": 2, "sample": 4, "device": 8, "host": 8}
"""Beats in a block of the finest scale."""
LEAST_S = {"step": 0.0, "sample": 60.0, "device": 1200.0, "host": 600.0}
"""Least seconds of evidence: a sample is taken at some moment of a step, so growth may be a slow step."""
FALLEN_SHARE = 0.5
"""Share of its last floor below which a subject has begun anew."""
LIMITS_KEPT = 32
CLOCK_BACK_S = 60.0
"""Seconds by which a clock must go back to have been set: what comes so late is of a later time, anew."""
AMPLITUDE_LEVEL = 2
"""Scale at which what steps take on top is read."""
UNPHASED_S = 1200.0
UNPHASED_SHARE = 1.0
"""Evidence, in seconds or as a share of the headroom, that no drift of samples over a step explains."""
LEAST_POINTS, MOST_POINTS = 4, 24
"""Blocks on which a rate rests at most."""


class FloorTrack:
    """Beats of one subject, in blocks of every scale."""

    def __init__(self) -> None:
        self.last: Beat | None = None
        self.limit_bytes: int | None = None
        """Most that floors and what is on top can reach, as the least of recent readings says."""
        self.has_restarted = False
        """Whether the newest beat began a life anew."""
        self._limits: deque[int] = deque(maxlen=LIMITS_KEPT)
        self._amplitude_bytes: int | None = None
        """Until a block is completed, what steps took lately stays what it is."""
        self._begin(None)

    def observe(self, beat: Beat, limit_bytes: int | None) -> int:
        """Take one beat; return how many scales, from the finest on, completed a block by it.

        Beats that are not newer than the last one are left out.
        """
        self.has_restarted = False
        if self.is_late(beat):
            return 0
        if self.last is not None and beat.time_s < self.last.time_s:
            self._begin(beat)
            self.last, self.has_restarted = beat, True
            return 0
        if limit_bytes is not None:
            self._limits.append(limit_bytes)
            self.limit_bytes = min(self._limits)
        if self.last is None or self.last.kind != beat.kind:
            self._begin(beat)
        self.last = beat
        self.beats += 1
        if self._recent is not None:
            self._recent.append(beat.low_bytes)
        self.steps += beat.steps
        completed = self.pyramid.add(beat)
        if completed:
            self._amplitude_bytes = None
        if completed and self._is_new_life():
            self._begin(beat)
            self.has_restarted = True
            return 0
        return completed

    def is_late(self, beat: Beat) -> bool:
        """Return whether a beat is not newer than the last; a much older one comes of a clock set back."""
        return self.last is not None and self.last.time_s - CLOCK_BACK_S <= beat.time_s <= self.last.time_s

    def judge(self, level: int) -> Growth | None:
        """Return how floors grow at one scale, which has just completed a block; None where they do not."""
        blocks = self.pyramid.latest(level, KEPT)
        for count in WINDOWS:
            if len(blocks) < count:
                return None
            growth = self._judge_window(blocks, count, self._records.get(level, 0))
            if growth is not None:
                return growth
        return None

    def note_record(self, level: int) -> None:
        """Remember how high floors were at one scale, before the block is forgotten."""
        blocks = self.pyramid.levels[level]
        if len(blocks) == KEPT and blocks[0].start_s >= self._news_since_s:
            self._records[level] = max(self._records.get(level, 0), blocks[0].low)

    def forget_records(self, time_s: float) -> None:
        """Take growth from this moment on for news, even where floors were higher before."""
        self._records.clear()
        self._news_since_s = time_s

    def judge_peaks(self, level: int, lost_bytes: int, *, is_lenient: bool) -> Growth | None:
        """Return how peaks grow at one scale, which has just completed a block; None where they do not.

        Args:
            level: The scale.
            lost_bytes: What they cannot use of the limit.
            is_lenient: Whether less clear growth will do, see `judge_growth`.
        """
        blocks = self.pyramid.latest(level, KEPT)
        found = blocks[-WINDOWS[0] :]
        if len(found) < WINDOWS[0] or self.limit_bytes is None:
            return None
        headroom = self.limit_bytes - lost_bytes - found[-1].high
        if found[-1].high - found[0].high <= PHI_LEAST * max(0, headroom):
            return None
        record = max([block.high for block in blocks[: -WINDOWS[0]]], default=0)
        window = [turn_over(block) for block in found]
        return judge_growth(window, headroom, record, is_lenient=is_lenient)

    def _judge_window(self, blocks: Sequence[Block], count: int, record: int) -> Growth | None:
        window = blocks[-count:]
        grown = window[-1].low - window[0].low
        if grown <= 0 or window[-1].end_s - window[0].start_s < self._least_s:
            return None
        past = [block.low for block in blocks[:-count] if block.start_s >= self._news_since_s]
        record = max([record, *past])
        headroom = self.headroom_bytes
        if grown < PHI_LEAST * headroom:
            return None
        growth = judge_growth(window, headroom, record)
        return None if growth is None or self._may_be_phase(growth) else growth

    def _may_be_phase(self, growth: Growth) -> bool:
        """Return whether samples may have met a sawtooth of steps at slowly drifting moments.

        Sampled at nearly its own period, or a fraction of it, a sawtooth looks like slow growth (aliasing).
        So it may be where each sample is near the one before, or near that of a few samples ago; growth of
        reserved bytes along with it, or long evidence, tells the difference.
        """
        if self._recent is None or growth.window_s >= UNPHASED_S or growth.share >= UNPHASED_SHARE:
            return False
        reserved = [block.reserved for block in growth.blocks]
        if reserved[0] and reserved[-1] - reserved[0] >= growth.grown_bytes / 2:
            return False
        return is_locked(tuple(self._recent))

    def fit_line(self, since_s: float, finest: int, *, is_peak: bool = False) -> Line | None:
        """Return a robust line through floors, or peaks, since a moment; None where too little is known.

        Args:
            since_s: From when on.
            finest: Finest scale whose blocks count; finer ones are blurred where samples are few.
            is_peak: Whether peaks are meant.
        """
        found = [block for block in self.pyramid.mosaic(finest) if block.mid_s >= since_s]
        blocks = [turn_over(block) for block in found] if is_peak else found
        sign = -1 if is_peak else 1
        points = [(block.low_s, float(block.low - sign * abs(block.blur))) for block in blocks]
        if len(points) < LEAST_POINTS:
            return None
        return fit_curve(points[:: -(-len(points) // MOST_POINTS)])

    @property
    def headroom_bytes(self) -> float:
        """What is left above the newest floor and what steps take on top; of an unknown limit, the floor."""
        floor = self.floor_bytes or 0
        if self.limit_bytes is None:
            return float(floor)
        room = self.limit_bytes - floor - self.amplitude_bytes
        return float(room - self._stranded_bytes(floor + self.amplitude_bytes))

    def _stranded_bytes(self, peak: int) -> int:
        """Return what is free beside live blocks and of no use to steps that reach so high."""
        if self.last is None or not self.last.split_bytes:
            return 0
        return min(self.last.split_bytes, max(0, self.last.reserved_bytes - peak))

    @property
    def floor_bytes(self) -> int | None:
        """The least of the newest blocks."""
        blocks = self.pyramid.latest(self._floor_level, 4) or self.pyramid.latest(0, 4)
        return min([block.low for block in blocks]) if blocks else None

    @property
    def amplitude_bytes(self) -> int:
        """Most that steps took above their floor lately.

        In the block within which the optimizer makes its state the floor rises once and for all: there the
        next block tells it.
        """
        if self._amplitude_bytes is None:
            self._amplitude_bytes = self._find_amplitude()
        return self._amplitude_bytes

    def _find_amplitude(self) -> int:
        blocks = self.pyramid.latest(self._floor_level, KEPT) or self.pyramid.latest(0, KEPT)
        nexts = [*blocks[1:], *blocks[-1:]]
        return max(
            [at.high - max(at.low, next_.low) for at, next_ in zip(blocks, nexts, strict=True)], default=0
        )

    @property
    def steps_per_s(self) -> float | None:
        """Training steps a second lately; None where steps are not known."""
        blocks = self.pyramid.latest(AMPLITUDE_LEVEL, WINDOW)
        if len(blocks) < 2 or blocks[0].last_step is None or blocks[-1].last_step is None:
            return None
        span_s, steps = blocks[-1].end_s - blocks[0].end_s, blocks[-1].last_step - blocks[0].last_step
        return steps / span_s if steps > 0 and span_s > 0 else None

    def _begin(self, beat: Beat | None) -> None:
        kind = "sample" if beat is None else beat.kind
        self.pyramid = BlockPyramid(BASES[kind])
        self._amplitude_bytes = None
        self._least_s = LEAST_S[kind]
        self._floor_level = 0 if kind == "step" else AMPLITUDE_LEVEL
        self.since_s = 0.0 if beat is None else beat.time_s
        self.beats = self.steps = 0
        self._records: dict[int, int] = {}
        self._news_since_s = self.since_s
        self._recent: deque[int] | None = deque(maxlen=RECENT) if kind == "sample" else None

    def _is_new_life(self) -> bool:
        blocks = self.pyramid.latest(0, WINDOW)
        before = min([block.low for block in blocks[:-1]], default=0)
        return blocks[-1].high < FALLEN_SHARE * before
