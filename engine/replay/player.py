"""A replay: jumps, plays and says what is found; does one thing after the other and never waits."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from ..bus.findings import FindingStore
from ..bus.snapshot import SegmentsRefused, Snapshot
from ..clock import Clock
from ..errors import UsageError
from ..history import History
from ..model import Analyzer, Finding, Sample
from ..recording import Told
from .marks import Marks, find_step
from .moment import parse_moment
from .playhead import Playhead
from .state import ReplayState, ReplayWord
from .tape import Tape, find_newest
from .verdicts import FoundVerdicts, RecordedVerdicts, Verdicts

NEAR_TICKS = 300
"""A moment that is no further ahead is played up to, without a new beginning."""
ASK_EVERY = 32
"""Samples between two looks at whether something newer was asked for."""
TAKE_LIMIT = 64
"""Most samples that are played between two pictures."""
NO_MAP = "a recording holds no segment maps"
NO_DECISION = "Not kept: a replay has no agent that could keep what you decide about a finding."

Verb = Literal["pause", "step", "speed", "skip", "go", "mark", "loop", "segments", "decide"]


class ReplayCommand(msgspec.Struct, frozen=True):
    """What a person asks of a replay."""

    verb: Verb
    count: float = 0
    """Frames, doublings of the speed, seconds, marks, or a process id."""
    text: str = ""
    """A moment, for `go`."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a replay begins."""

    speed: float = 1.0
    is_as_recorded: bool = False
    """Show the findings that are recorded, and find none again."""
    is_paused: bool = False


class ReplayPlayer:
    """Plays a tape; use from one thread.

    After a jump graphs and verdicts are made of a window of ticks before the moment, fed to fresh analyzers
    as to a worker that was started again, with the recorded findings that were open before it. So what is
    found at a moment does not depend on how it was jumped to.

    Args:
        tape: What is played.
        make_analyzers: Returns fresh analyzers.
        history: What screens draw from; filled here.
        clock: Whose monotonic seconds drive the playing.
        options: How it begins.
    """

    def __init__(
        self,
        tape: Tape,
        *,
        make_analyzers: Callable[[], Sequence[Analyzer]],
        history: History,
        clock: Clock,
        options: ReplayOptions | None = None,
    ) -> None:
        self._options = options or ReplayOptions()
        self._tape, self._make_analyzers, self._history, self._clock = tape, make_analyzers, history, clock
        self._head = Playhead(self._options.speed)
        self._head.is_paused = self._options.is_paused
        self._is_looping = False
        self._told: list[Told] = tape.told()
        self._marks = Marks(tape.marks())
        self._word: ReplayWord | None = None
        self._refused: dict[int, SegmentsRefused] = {}
        self._upcoming: Iterator[Sample] = iter(())
        self._next: Sample | None = None
        (self._shown,) = find_newest(tape, tape.start_s, 1)
        self._target: Sample | None = self._shown
        self._verdicts = self._make_verdicts(-math.inf)
        self._head.note_shown(clock.monotonic_s(), is_jump=True)

    @property
    def wait_s(self) -> float:
        """Seconds until something is to be done; 0 when something is."""
        if self._target is not None:
            return 0.0
        if self._head.is_paused or (self._next is None and not self._is_looping):
            return math.inf
        gap_s = self._tape.interval_s if self._next is None else self._next.time_s - self._shown.time_s
        return self._head.wait_s(self._clock.monotonic_s(), gap_s)

    @property
    def is_catching_up(self) -> bool:
        """Whether graphs and verdicts of the moment are still to be worked out."""
        return self._target is not None

    @property
    def state(self) -> ReplayState:
        """Where the replay is."""
        return ReplayState(
            self._tape.start_s,
            self._tape.end_s,
            self._shown.time_s,
            self._tape.clock,
            self._head.speed,
            self._head.is_paused,
            self._is_looping,
            self.is_catching_up,
            self._options.is_as_recorded,
            self._marks.all,
            self._word,
        )

    @property
    def snapshot(self) -> Snapshot:
        """What screens draw."""
        is_known = self._target is None
        return Snapshot(
            "live",
            sample=self._shown,
            findings=self._verdicts.findings() if is_known else (),
            assessments=self._verdicts.assessments() if is_known else (),
            segments_refused=tuple(self._refused.values()),
            replay=self.state,
        )

    def apply(self, command: ReplayCommand) -> None:
        """Do what was asked; what takes long is left to `catch_up`."""
        now_s = self._clock.monotonic_s()
        match command.verb:
            case "pause":
                self._toggle_pause(now_s)
            case "speed":
                self._head.shift_speed(int(command.count), now_s)
            case "loop":
                self._is_looping = not self._is_looping
            case "step":
                self._step(int(command.count))
            case "skip":
                self.seek(self._shown.time_s + command.count)
            case "go":
                self._go(command.text)
            case "mark":
                self._go_to_mark(int(command.count))
            case "segments":
                pid = int(command.count)
                self._refused = {pid: SegmentsRefused(pid, NO_MAP)}
            case "decide":
                self._say(NO_DECISION)

    def advance(self) -> bool:
        """Play the samples that are due, at most `TAKE_LIMIT`; return whether there were any."""
        if self._target is not None:
            return False
        if self._next is None and self.wait_s <= 0:
            self.seek(self._tape.start_s)
            return True
        taken = 0
        while self._next is not None and taken < TAKE_LIMIT and self.wait_s <= 0:
            self._show(self._next)
            self._head.note_shown(self._clock.monotonic_s())
            taken += 1
        return taken > 0

    def seek(self, time_s: float) -> None:
        """Show the newest sample that is not after a moment; before all of them, the first."""
        ahead_s = time_s - self._shown.time_s
        if self._target is None and 0 <= ahead_s <= NEAR_TICKS * self._tape.interval_s:
            self._play_on_to(time_s)
            return
        found = find_newest(self._tape, max(time_s, self._tape.start_s), 1)
        if found:
            self._jump(found[0])

    def catch_up(self, is_called: Callable[[], bool]) -> bool:
        """Work out graphs and verdicts of the moment that was jumped to; return whether that is done.

        Args:
            is_called: Whether something newer was asked for; what was begun is then left.
        """
        target = self._target
        if target is None:
            return True
        start_s = target.time_s - self._tape.window_s
        history, verdicts = History(), self._make_verdicts(start_s)
        seq = 0
        for seq, sample in enumerate(self._tape.samples(start_s, target.time_s)):
            if seq % ASK_EVERY == 0 and is_called():
                return False
            played = msgspec.structs.replace(sample, seq=seq)
            history.add(played)
            self._marks.note(verdicts.observe(played))
        self._history.take_over(history)
        self._verdicts, self._shown, self._target = verdicts, msgspec.structs.replace(target, seq=seq), None
        self._upcoming = self._tape.samples(math.nextafter(target.time_s, math.inf))
        self._next = next(self._upcoming, None)
        return True

    def close(self) -> None:
        """Close the file."""
        self._tape.close()

    def _make_verdicts(self, start_s: float) -> Verdicts:
        if self._options.is_as_recorded:
            return RecordedVerdicts(self._told)
        return FoundVerdicts(self._make_analyzers(), _list_open(self._told, start_s))

    def _show(self, sample: Sample) -> None:
        """Play one sample further."""
        played = msgspec.structs.replace(sample, seq=self._shown.seq + 1)
        self._history.add(played)
        self._marks.note(self._verdicts.observe(played))
        self._shown = played
        self._next = next(self._upcoming, None)

    def _play_on_to(self, time_s: float) -> None:
        while self._next is not None and self._next.time_s <= time_s:
            self._show(self._next)
        self._head.note_shown(self._clock.monotonic_s(), is_jump=True)

    def _jump(self, sample: Sample) -> None:
        self._shown = self._target = sample
        self._head.note_shown(self._clock.monotonic_s(), is_jump=True)

    def _step(self, frames: int) -> None:
        """Go frames on or back, and stop there."""
        self._head.is_paused = True
        if frames < 0:
            self._jump(find_newest(self._tape, self._shown.time_s, 1 - frames)[0])
        elif self._target is None:
            for _ in range(frames):
                if self._next is not None:
                    self._show(self._next)
        else:
            later = self._tape.samples(math.nextafter(self._shown.time_s, math.inf))
            for _, sample in zip(range(frames), later, strict=False):
                self._jump(sample)

    def _toggle_pause(self, now_s: float) -> None:
        """Stop or go on; at the end, play from the start."""
        if self._next is None and self._target is None:
            self._head.is_paused = True
            self.seek(self._tape.start_s)
        self._head.toggle_pause(now_s)

    def _go(self, text: str) -> None:
        try:
            self.seek(parse_moment(text, self.state))
        except UsageError as error:
            self._say(f"{error}.")

    def _go_to_mark(self, direction: int) -> None:
        at_s, has_marks = self._shown.time_s, bool(self._marks.all)
        mark = self._marks.next(at_s, direction) if has_marks else find_step(self._tape, at_s, direction)
        if mark is None:
            what = "finding or out-of-memory error" if has_marks else "finding, out-of-memory error or step"
            self._say(f"No {what} {'after' if direction > 0 else 'before'} this moment.")
            return
        kind = {"oom": "out of memory", "finding": "finding", "step": "step"}[mark.kind]
        self._say(f"{kind}: {mark.text}")
        self._jump_onto(mark.time_s)

    def _jump_onto(self, time_s: float) -> None:
        """Show the first sample from a moment on: what is told at the moment is told of that one."""
        sample = next(self._tape.samples(time_s), None)
        if sample is not None:
            self._jump(sample)

    def _say(self, text: str) -> None:
        self._word = ReplayWord((self._word.number if self._word else 0) + 1, text)


def _list_open(told: Sequence[Told], until_s: float) -> tuple[Finding, ...]:
    """Return the findings that were open at a moment, as they were told then."""
    store = FindingStore()
    for it in told:
        if it.time_s >= until_s:
            break
        store.merge(it.findings)
    return tuple(finding for finding in store.all() if finding.is_open)
