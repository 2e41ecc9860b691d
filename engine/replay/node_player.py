"""One node of a replay: any moment of its tape with graphs and verdicts; no pace, no other nodes."""

import copy
import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec

from ..agent.analyzer_host import AnalyzerHost
from ..history import History
from ..model import Analyzer, Assessment, Finding, Sample
from ..recording import Told
from ..units import format_age
from ..viewer.snapshot import ReplayMark, ReplayOverview, ReplayState, SegmentsRefused, Snapshot
from ..wire.stores import AssessmentStore, FindingStore
from .tapes import Tape, find_newest

# Samples searched for a step.
MOST_SOUGHT = 3600
LOOK_BACK_TICKS = 64
MOST_FOUND = 10_000


class Marks:
    """The marks of recordings; for nodes without any, the findings that were found so far."""

    def __init__(self, recorded: Iterable[ReplayMark]) -> None:
        self._recorded = tuple(recorded)
        self._has_recorded = {mark.node for mark in self._recorded if mark.kind == "finding"}
        # By time, then by node.
        self.all = tuple(sorted(self._recorded, key=_place_of))
        self._found: dict[tuple[str, str], ReplayMark] = {}

    def note(self, node: str, findings: Iterable[Finding]) -> None:
        """Mark findings that opened or changed; each is one mark, as it was then."""
        if node in self._has_recorded:
            return
        before = len(self._found)
        for it in findings:
            if (node, it.id) not in self._found and before < MOST_FOUND:
                mark = ReplayMark(it.opened_s, "finding", it.title, it.severity, node)
                self._found[node, it.id] = mark
        if len(self._found) > before:
            self.all = tuple(sorted((*self._recorded, *self._found.values()), key=_place_of))

    def next(self, time_s: float, direction: int, node: str = "") -> ReplayMark | None:
        """Return the next mark after a moment, or the last one before it.

        Args:
            node: The focused node: marks of this moment at nodes after it come next.
        """
        place = time_s, node
        if direction > 0:
            return next((mark for mark in self.all if _place_of(mark) > place), None)
        return next((mark for mark in reversed(self.all) if _place_of(mark) < place), None)


def _place_of(mark: ReplayMark) -> tuple[float, str]:
    return mark.time_s, mark.node


def find_step(tape: Tape, time_s: float, direction: int) -> ReplayMark | None:
    """Return where the next step ended after a moment, or the last before it, in some thousand samples."""
    if direction > 0:
        return next(_walk_steps(islice(tape.samples(time_s), MOST_SOUGHT)), None)
    reach_s = LOOK_BACK_TICKS * tape.interval_s
    while reach_s <= 8 * MOST_SOUGHT * tape.interval_s:
        found = [mark for mark in _walk_steps(tape.samples(time_s - reach_s, time_s)) if mark.time_s < time_s]
        if found:
            return found[-1]
        reach_s *= 8
    # Where the first iteration of a trace begins: none before it could have ended.
    first = next(tape.samples(tape.start_s, tape.start_s), None) if tape.clock == "trace" else None
    steps = {} if first is None else _read_steps(first)
    if first is None or not steps or first.time_s >= time_s:
        return None
    return ReplayMark(first.time_s, "step", f"step {min(steps.values())}", node=first.node)


def _walk_steps(samples: Iterable[Sample]) -> Iterator[ReplayMark]:
    """Yield where a step was reached that no process or device had reached: the others follow it."""
    before: dict[object, int] | None = None
    for sample in samples:
        steps = _read_steps(sample)
        if before is not None:
            others = set(before.values())
            ended = [step for key, step in steps.items() if before.get(key) != step and step not in others]
            if ended:
                yield ReplayMark(sample.time_s, "step", f"step {max(ended)}", node=sample.node)
        before = steps


def _read_steps(sample: Sample) -> dict[object, int]:
    steps: dict[object, int] = {
        (rank.pid, rank.started_s): rank.step.index for rank in sample.ranks if rank.step is not None
    }
    return steps | {device.uuid: device.step for device in sample.devices if device.step is not None}


class Verdicts(Protocol):
    """Follows samples in order of time."""

    def observe(self, sample: Sample) -> list[Finding]: ...

    def findings(self) -> tuple[Finding, ...]:
        """As of the newest sample: open ones, and some that closed."""
        ...

    def assessments(self) -> tuple[Assessment, ...]:
        """How near each process is to running out of memory."""
        ...

    def copy(self) -> "Verdicts | None":
        """Return an independent copy; None if an analyzer cannot be copied."""
        ...


class FoundVerdicts:
    """Verdicts of fresh analyzers, as a worker would find them.

    Args:
        before: Findings that were open before the first sample, passed on as from a worker to its successor.
    """

    def __init__(self, analyzers: Sequence[Analyzer], before: Sequence[Finding] = ()) -> None:
        self._host = AnalyzerHost(analyzers)
        self._findings = FindingStore()
        self._assessments = AssessmentStore()
        if before:
            self._host.restore(before)
            self._findings.merge(before)

    @property
    def reason(self) -> str | None:
        """Why an analyzer was set aside."""
        return self._host.reason

    def observe(self, sample: Sample) -> list[Finding]:
        changed = self._findings.merge(self._host.observe(sample))
        self._assessments.merge(self._host.assess())
        self._assessments.observe(sample)
        return changed

    def findings(self) -> tuple[Finding, ...]:
        return self._findings.all()

    def assessments(self) -> tuple[Assessment, ...]:
        return self._assessments.all()

    def copy(self) -> "FoundVerdicts | None":
        try:
            return copy.deepcopy(self)
        except Exception:  # noqa: BLE001 - an analyzer of somebody else: the window before a moment is fed once more
            return None


class RecordedVerdicts:
    def __init__(self, told: Sequence[Told]) -> None:
        self._told = told
        self._times_s = [it.time_s for it in told]
        self._heard = 0
        self._findings = FindingStore()
        self._assessments: tuple[Assessment, ...] = ()

    def observe(self, sample: Sample) -> list[Finding]:
        """Everything recorded up to the sample's time counts."""
        changed: list[Finding] = []
        until = bisect_right(self._times_s, sample.time_s)
        for told in self._told[self._heard : until]:
            changed += self._findings.merge(told.findings)
            if told.assessments is not None:
                self._assessments = told.assessments
        self._heard = max(self._heard, until)
        return changed

    def findings(self) -> tuple[Finding, ...]:
        return self._findings.all()

    def assessments(self) -> tuple[Assessment, ...]:
        return self._assessments

    def copy(self) -> "RecordedVerdicts":
        other = copy.copy(self)
        other._findings = copy.deepcopy(self._findings)
        return other


# Samples between two checks for a newer command.
ASK_EVERY = 32
# How long before a moment states are kept: for going back in tens of seconds or sample by sample, and for
# coming back to it.
KEPT_BEFORE_TICKS = (120, 12, 0)


class Checkpoint(NamedTuple):
    """State of a node at one of its samples."""

    # Where the window begins.
    start_s: float
    # Time of the newest sample; None before the first.
    time_s: float | None
    seq: int
    history: History
    verdicts: Verdicts

    @property
    def key(self) -> tuple[float, float]:
        return self.start_s, -math.inf if self.time_s is None else self.time_s

    def copy(self) -> "Checkpoint | None":
        """Return an independent copy; None if an analyzer cannot be copied."""
        verdicts = self.verdicts.copy()
        return None if verdicts is None else self._replace(history=self.history.copy(), verdicts=verdicts)


class CatchUp:
    """Works from a checkpoint to a moment, with pauses.

    Args:
        begun: Where it begins; it is used up.
        most_kept: States that may be kept on the way.
    """

    def __init__(self, tape: Tape, target_s: float, begun: Checkpoint, *, most_kept: int) -> None:
        self._now = begun
        # States on the way, oldest first.
        self.checkpoints: list[Checkpoint] = []
        start_s = begun.start_s if begun.time_s is None else math.nextafter(begun.time_s, math.inf)
        self._samples = tape.samples(start_s, target_s)
        self._node = tape.node
        due_s = [target_s - ticks * tape.interval_s for ticks in KEPT_BEFORE_TICKS[: max(0, most_kept)]]
        self._due_s = [it for it in due_s if it > begun.key[1]]

    @property
    def reached(self) -> Checkpoint:
        return self._now

    def run(self, marks: Marks, is_called: Callable[[], bool]) -> bool:
        """Go on; return whether the moment is reached."""
        while not is_called():
            for _ in range(ASK_EVERY):
                sample = next(self._samples, None)
                while self._due_s and (sample is None or sample.time_s > self._due_s[0]):
                    self._due_s.pop(0)
                    self._keep()
                if sample is None:
                    return True
                now = self._now
                played = msgspec.structs.replace(sample, seq=now.seq + 1)
                now.history.add(played)
                marks.note(self._node, now.verdicts.observe(played))
                self._now = now._replace(time_s=sample.time_s, seq=played.seq)
        return False

    def _keep(self) -> None:
        kept = None if self._now.time_s is None else self._now.copy()
        if kept is not None:
            self.checkpoints.append(kept)


# After so many ticks without a sample a node is shown as silent, if others go on.
SILENT_TICKS = 3.5
# Windows begin at every sixth of one, so that moments near each other have the same.
STARTS_IN_WINDOW = 6


class NodePlayer:
    """Plays a tape; use from one thread.

    After a jump, graphs and verdicts are made of a window of ticks before the moment, fed to fresh analyzers
    as to a restarted worker, with the recorded findings that were open before it. The begin of the window
    depends on the moment alone, so what is found does not depend on how it was jumped to; a state worked out
    earlier for the same window is continued.

    Args:
        is_as_recorded: Show the recorded findings, and find none.
    """

    def __init__(
        self,
        tape: Tape,
        *,
        make_analyzers: Callable[[], Sequence[Analyzer]],
        history: History,
        marks: Marks,
        is_as_recorded: bool = False,
        checkpoints: int = 8,
    ) -> None:
        self.tape = tape
        self._make_analyzers = make_analyzers
        self._history = history
        self._marks = marks
        self._is_as_recorded = is_as_recorded
        self._most_kept = checkpoints
        self._told: list[Told] = tape.told()
        self._kept: OrderedDict[tuple[float, float], Checkpoint] = OrderedDict()
        self._refused: dict[int, SegmentsRefused] = {}
        # The newest sample that is not after the moment; None before the first.
        self.shown: Sample | None = None
        # The one after it; None at the end, and while the moment is being worked out.
        self.next: Sample | None = None
        self._overview: ReplayOverview | None = None
        self._has_overview = False
        # Whether no moment was chosen yet.
        self.is_waiting = False
        self._target: Sample | None = None
        self._work: CatchUp | None = None
        self._upcoming: Iterator[Sample] = iter(())
        self._verdicts = self._make_verdicts(-math.inf)

    @property
    def node(self) -> str:
        return self.tape.node

    @property
    def is_catching_up(self) -> bool:
        """Graphs and verdicts of the moment are not worked out yet."""
        return self.is_waiting or self._target is not None

    def draw(self, replay: ReplayState) -> Snapshot:
        state = msgspec.structs.replace(
            replay,
            is_catching_up=self.is_catching_up,
            comparison=self.tape.comparison,
            overview=self._overview,
        )
        if self.shown is None:
            ahead = format_age(self.tape.start_s - replay.position_s)
            return Snapshot(
                "connecting", reason=f"its recording begins {ahead} later", replay=state, node=self.node
            )
        silent_s = replay.position_s - self.shown.time_s
        is_silent = silent_s > SILENT_TICKS * self.tape.interval_s
        return Snapshot(
            "lost" if is_silent else "live",
            reason=("its recording has ended" if self.shown.is_last else None) if is_silent else None,
            silent_s=silent_s if is_silent else None,
            sample=self.shown,
            findings=() if self.is_catching_up else self._verdicts.findings(),
            assessments=() if self.is_catching_up else self._verdicts.assessments(),
            segments_refused=tuple(self._refused.values()),
            replay=state,
            node=self.node,
        )

    def refuse_segments(self, pid: int, reason: str) -> None:
        """Make the next snapshots say that there is no segment map of a process."""
        self._refused = {pid: SegmentsRefused(pid, reason)}

    def wait(self) -> None:
        """Play nothing until `jump` sets the moment to show."""
        self.is_waiting = True
        self.next = None

    def jump(self, time_s: float) -> None:
        """Show the newest sample that is not after a moment; `catch_up` works out what is found there."""
        self.is_waiting = False
        found = find_newest(self.tape, time_s, 1)
        if not found:
            # The moment is before the first sample.
            self.shown = self._target = self._work = None
            self._history.take_over(History(keeps_ranks=False))
            self._verdicts = self._make_verdicts(-math.inf)
            self._read_ahead(self.tape.start_s)
        elif self.shown is None or self._target is not None or found[0].time_s != self.shown.time_s:
            self.shown = self._target = found[0]
            self._work = None
            self.next = None
            self._upcoming = iter(())
        else:
            self._read_ahead(math.nextafter(self.shown.time_s, math.inf))

    def play_to(self, time_s: float) -> bool:
        """Play what is due up to a moment; return whether there was anything."""
        is_news = False
        while self.next is not None and self.next.time_s <= time_s:
            seq = -1 if self.shown is None else self.shown.seq
            played = msgspec.structs.replace(self.next, seq=seq + 1)
            self._history.add(played)
            self._marks.note(self.node, self._verdicts.observe(played))
            self.shown = played
            self.next = next(self._upcoming, None)
            is_news = True
        return is_news

    def catch_up(self, is_called: Callable[[], bool]) -> bool:
        """Work out graphs and verdicts of the moment that was jumped to; return whether that is done.

        Args:
            is_called: Whether to pause; the next call continues what was begun.
        """
        target = self._target
        if target is None:
            return True
        if self._work is None:
            self._work = self._begin(target)
        work = self._work
        if not work.run(self._marks, is_called):
            return False
        for checkpoint in work.checkpoints:
            self._keep(checkpoint)
        reached = work.reached
        self._history.take_over(reached.history)
        self._verdicts = reached.verdicts
        self._work = None
        self._target = None
        self.shown = msgspec.structs.replace(target, seq=reached.seq)
        self._read_ahead(math.nextafter(target.time_s, math.inf))
        if not self._has_overview:
            self._overview = self.tape.overview()
            self._has_overview = True
        return True

    def _begin(self, target: Sample) -> CatchUp:
        """Start from the newest kept state of this window that is not after the moment."""
        start_s = self._find_start(target.time_s)
        kept = [key for key in self._kept if key[0] == start_s and key[1] <= target.time_s]
        if kept:
            nearest = max(kept)
            self._kept.move_to_end(nearest)
            begun = self._kept[nearest].copy()
            if begun is not None:
                return CatchUp(self.tape, target.time_s, begun, most_kept=self._most_kept)
        fresh = Checkpoint(start_s, None, -1, History(keeps_ranks=False), self._make_verdicts(start_s))
        return CatchUp(self.tape, target.time_s, fresh, most_kept=self._most_kept)

    def _find_start(self, time_s: float) -> float:
        tape = self.tape
        step_s = tape.window_s / STARTS_IN_WINDOW
        before_s = time_s - tape.window_s - tape.start_s
        if not math.isfinite(step_s) or before_s < 0:
            return -math.inf
        return tape.start_s + math.floor(before_s / step_s) * step_s

    def _keep(self, checkpoint: Checkpoint) -> None:
        self._kept[checkpoint.key] = checkpoint
        self._kept.move_to_end(checkpoint.key)
        while len(self._kept) > self._most_kept:
            self._kept.popitem(last=False)

    def _make_verdicts(self, start_s: float) -> Verdicts:
        if self._is_as_recorded:
            return RecordedVerdicts(self._told)
        return FoundVerdicts(self._make_analyzers(), list_open(self._told, start_s))

    def _read_ahead(self, start_s: float) -> None:
        self._upcoming = self.tape.samples(start_s)
        self.next = next(self._upcoming, None)


def list_open(told: Sequence[Told], until_s: float) -> tuple[Finding, ...]:
    store = FindingStore()
    for it in told:
        if it.time_s >= until_s:
            break
        store.merge(it.findings)
    return tuple(finding for finding in store.all() if finding.is_open)
