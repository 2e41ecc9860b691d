"""A replay: nodes on one clock that jump and play together; does one thing after the other, never waits."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import msgspec

from ..clock import Clock
from ..errors import UsageError
from ..history import History
from ..model import Analyzer
from ..sampling.trace_player import IDLE_S
from ..viewer.snapshot import ReplayPart, ReplayState, ReplayWord, Snapshot
from .moment_text import parse_moment
from .node_player import Marks, NodePlayer, find_step
from .tapes import Tape, find_newest

# A moment that is no further ahead is played up to; a further one is jumped to.
NEAR_TICKS = 300
# Most samples that are played between two pictures.
TAKE_LIMIT = 64
MOST_CHECKPOINTS = 8
# Kept states of a node, and devices of all of them together: about 0.2 MiB each.
CHECKPOINT_DEVICES = 256
NO_MAP = "a recording holds no segment maps"
NO_DECISION = "Not saved: a replay has no agent to save decisions about findings."

# `turn` goes to another of several runs: it is for `PlaylistFeed`, a player has one run.
Verb = Literal[
    "pause", "step", "speed", "skip", "seek", "go", "mark", "loop", "segments", "decide", "node", "turn"
]


class ReplayCommand(msgspec.Struct, frozen=True):
    verb: Verb
    # Frames, doublings of the speed, seconds, a time in seconds, marks, runs, or a process id.
    count: float = 0
    # A moment, for `go`; the focused node, for `node`.
    text: str = ""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    speed: float = 1.0
    # Show the recorded findings, and find none.
    is_as_recorded: bool = False
    is_paused: bool = False
    is_looping: bool = False
    # Which of several runs it is.
    part: ReplayPart | None = None
    # Shown first, once.
    word: ReplayWord | None = None


class ReplayPlayer:
    """Plays tapes of several nodes with one playhead; use from one thread.

    The focused node is worked out first after a jump, and steps follow its own samples.
    """

    def __init__(
        self,
        tapes: Sequence[Tape],
        *,
        make_analyzers: Callable[[], Sequence[Analyzer]],
        histories: Callable[[str], History],
        clock: Clock,
        options: ReplayOptions | None = None,
    ) -> None:
        self._options = options or ReplayOptions()
        self._clock = clock
        self._head = Playhead(self._options.speed)
        self._head.is_paused = self._options.is_paused
        self._is_looping = self._options.is_looping
        marks = chain.from_iterable(tape.marks() for tape in tapes)
        self._marks = Marks(marks)
        self._word = self._options.word
        self._nodes = [
            NodePlayer(
                tape,
                make_analyzers=make_analyzers,
                history=histories(tape.node),
                marks=self._marks,
                is_as_recorded=self._options.is_as_recorded,
                checkpoints=_share_checkpoints(tapes),
            )
            for tape in tapes
        ]
        self._start_s = min(tape.start_s for tape in tapes)
        self._end_s = max(tape.end_s for tape in tapes)
        self._seen = next(it for it in self._nodes if it.tape.start_s == self._start_s)
        self._at_s = self._start_s
        self._jump(self._find_first_device_s())

    @property
    def wait_s(self) -> float:
        """Seconds until something is due; 0 if something is."""
        if self._seen.is_catching_up:
            return 0.0
        next_s = self._next_s
        if self._head.is_paused or (next_s is None and (self.has_more_to_work_out or not self._is_looping)):
            return math.inf
        gap_s = self._seen.tape.interval_s if next_s is None else next_s - self._at_s
        return self._head.wait_s(self._clock.monotonic_s(), gap_s)

    @property
    def is_catching_up(self) -> bool:
        """Graphs and verdicts of the focused node are not worked out yet."""
        return self._seen.is_catching_up

    @property
    def has_more_to_work_out(self) -> bool:
        """Those of some node are not."""
        return any(node.is_catching_up for node in self._nodes)

    @property
    def is_at_end(self) -> bool:
        """Nothing follows the moment that is shown, and all of it is worked out."""
        return self._next_s is None and not self.has_more_to_work_out

    @property
    def state(self) -> ReplayState:
        return ReplayState(
            self._start_s,
            self._end_s,
            self._at_s,
            self._seen.tape.clock,
            self._head.speed,
            self._head.is_paused,
            self._is_looping,
            self.is_catching_up,
            self._options.is_as_recorded,
            self._marks.all,
            self._word,
            part=self._options.part,
        )

    @property
    def snapshot(self) -> Snapshot:
        return self._seen.draw(self.state)

    @property
    def snapshots(self) -> list[Snapshot]:
        """One a node, the focused one first."""
        state = self.state
        return [self._seen.draw(state), *(it.draw(state) for it in self._nodes if it is not self._seen)]

    def apply(self, command: ReplayCommand) -> None:
        """Run a command; what takes long is left to `catch_up`."""
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
                self.seek(self._at_s + command.count)
            case "seek":
                self.seek(command.count)
            case "go":
                self._seek_text(command.text)
            case "mark":
                self._seek_mark(int(command.count))
            case "segments":
                self._seen.refuse_segments(int(command.count), NO_MAP)
            case "decide":
                self.say(NO_DECISION)
            case "node":
                self._focus(command.text)

    def advance(self) -> bool:
        """Play the samples that are due, at most `TAKE_LIMIT`; return whether there were any."""
        if self.is_catching_up:
            return False
        if self._next_s is None and self.wait_s <= 0:
            self.seek(self._start_s)
            return True
        taken = 0
        while (next_s := self._next_s) is not None and taken < TAKE_LIMIT and self.wait_s <= 0:
            self._play_to(next_s)
            self._head.note_shown(self._clock.monotonic_s())
            taken += 1
        return taken > 0

    def seek(self, time_s: float) -> None:
        """Show the newest samples that are not after a moment; before all of them, the first."""
        time_s = min(max(time_s, self._start_s), self._end_s)
        ahead_s = time_s - self._at_s
        if not self.is_catching_up and 0 <= ahead_s <= NEAR_TICKS * self._seen.tape.interval_s:
            while (next_s := self._next_s) is not None and next_s <= time_s:
                self._play_to(next_s)
            self._head.note_shown(self._clock.monotonic_s(), is_jump=True)
        else:
            self._jump(time_s)

    def catch_up(self, is_called: Callable[[], bool]) -> bool:
        """Work out graphs and verdicts of the moment that was jumped to; return whether that is done.

        Args:
            is_called: Whether a newer command came; what was begun is then left.
        """
        return self._seen.catch_up(is_called) and self._follow(self._seen)

    def catch_up_others(self, is_called: Callable[[], bool]) -> bool:
        """The same for another node."""
        node = next((it for it in self._nodes if it.is_catching_up), self._seen)
        if node.is_waiting:
            node.jump(self._at_s)
        return node.catch_up(is_called) and self._follow(node)

    def say(self, text: str, *, node: str | None = None) -> None:
        """Show a message once. `node`: the node to show with it; None leaves the one that is shown."""
        self._word = ReplayWord((self._word.number if self._word else 0) + 1, text, node)

    def close(self) -> None:
        for node in self._nodes:
            node.tape.close()

    @property
    def _next_s(self) -> float | None:
        """Time of the next sample of any node, or None."""
        return min((it.next.time_s for it in self._nodes if it.next is not None), default=None)

    def _play_to(self, time_s: float) -> None:
        for node in self._nodes:
            node.play_to(time_s)
        self._at_s = time_s

    def _follow(self, node: NodePlayer) -> bool:
        """Play a node on to where the others are by now."""
        node.play_to(self._at_s)
        return True

    def _jump(self, time_s: float) -> None:
        """Show a moment; a single node moves to the time of its newest sample before it."""
        self._seen.jump(time_s)
        others = [node for node in self._nodes if node is not self._seen]
        for node in others:
            node.wait()
        shown = self._seen.shown
        self._at_s = time_s if others or shown is None else shown.time_s
        self._head.note_shown(self._clock.monotonic_s(), is_jump=True)

    def _step(self, frames: int) -> None:
        """Go some samples of the focused node on or back, and pause there."""
        self._head.is_paused = True
        tape = self._seen.tape
        if frames < 0:
            before = find_newest(tape, math.nextafter(self._at_s, -math.inf), -frames)
            self._jump(before[0].time_s if before else self._start_s)
            return
        later = tape.samples(math.nextafter(self._at_s, math.inf))
        found = [sample.time_s for _, sample in zip(range(frames), later, strict=False)]
        if found:
            self.seek(found[-1])

    def _toggle_pause(self, now_s: float) -> None:
        """Pause or go on; at the end, play from the start."""
        if self.is_at_end:
            self._head.is_paused = True
            self.seek(self._start_s)
        self._head.toggle_pause(now_s)

    def _seek_text(self, text: str) -> None:
        try:
            self.seek(parse_moment(text, self.state))
        except UsageError as error:
            self.say(f"{error}.")

    def _seek_mark(self, direction: int) -> None:
        at_s = self._at_s
        has_marks = bool(self._marks.all)
        tape = self._seen.tape
        found = self._marks.next(at_s, direction, tape.node)
        mark = found if has_marks else find_step(tape, at_s, direction)
        if mark is None:
            what = "finding or out-of-memory error" if has_marks else "finding, out-of-memory error or step"
            self.say(f"No {what} {'after' if direction > 0 else 'before'} this moment.")
            return
        kind = {"oom": "out of memory: ", "finding": "finding: ", "step": ""}[mark.kind]
        self._focus(mark.node)
        self.say(f"{kind}{mark.text}", node=self._seen.node)
        # Findings of this moment belong to the first sample from then on.
        sample = next(self._seen.tape.samples(mark.time_s), None)
        if sample is not None:
            self._jump(sample.time_s)

    def _find_first_device_s(self) -> float:
        """Return when a device was first recorded: the first samples may come before the driver answers."""
        samples = zip(range(NEAR_TICKS), self._seen.tape.samples(self._start_s), strict=False)
        return next((sample.time_s for _, sample in samples if sample.devices), self._start_s)

    def _focus(self, name: str) -> None:
        self._seen = next((node for node in self._nodes if node.node == name), self._seen)
        if self._seen.is_waiting:
            self._seen.jump(self._at_s)


def _share_checkpoints(tapes: Sequence[Tape]) -> int:
    """Return how many states of each node are kept, so that they are bounded together."""
    devices = sum(len(first.devices) for tape in tapes for first in find_newest(tape, tape.start_s, 1))
    return min(MOST_CHECKPOINTS, CHECKPOINT_DEVICES // max(1, devices))


# Steps of `+` and `-`: 0.25 to 64 times as fast as recorded.
SPEEDS = tuple(2.0**power for power in range(-2, 7))
# A stretch without samples takes no longer than this, whatever the speed.
LONGEST_WAIT_S = 2.0
# A replay that is further behind goes on from where it is.
MOST_LATE_S = 1.0


class Playhead:
    """Sets the pace. `speed`: seconds of the recording per second of the clock."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self.is_paused = False
        self._shown_s: float | None = None

    def note_shown(self, now_s: float, *, is_jump: bool = False) -> None:
        """Note that a sample is shown; one due a moment ago keeps the next one punctual, a jump does not."""
        due_s = self._due_s
        is_punctual = due_s is not None and not is_jump and now_s - due_s < MOST_LATE_S
        self._shown_s = due_s if is_punctual else now_s
        self._due_s = None

    def wait_s(self, now_s: float, gap_s: float) -> float:
        """Seconds until the sample is due that comes `gap_s` after the one that is shown."""
        if self.is_paused or self._shown_s is None:
            return IDLE_S
        self._due_s = self._shown_s + min(gap_s / self.speed, LONGEST_WAIT_S)
        return max(0.0, self._due_s - now_s)

    def toggle_pause(self, now_s: float) -> None:
        self.is_paused = not self.is_paused
        self.note_shown(now_s, is_jump=True)

    def shift_speed(self, places: int, now_s: float) -> None:
        """Move `places` further in `SPEEDS`; from any other speed, to the next one on that side first."""
        beyond = [it for it in SPEEDS if (it > self.speed if places > 0 else it < self.speed)]
        if beyond:
            ordered = beyond if places > 0 else beyond[::-1]
            self.speed = ordered[min(abs(places), len(ordered)) - 1]
        self.note_shown(now_s, is_jump=True)

    _due_s: float | None = None
