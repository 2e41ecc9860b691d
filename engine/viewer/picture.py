"""The picture that one end has of a node: from its hub's messages, with the history."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from ..alerts.state import AlertState, FindingDecision
from ..clock import Clock
from ..errors import HubUnreachableError, InputFileError, UsageError, WireError
from ..history import History
from ..model import AdviceAction, Finding, HubStatus, Sample, SegmentMap
from ..model.sample import ModuleMemory
from ..ranks.demands import ADVICE_WITHIN_S, MODULES_WITHIN_S
from ..ranks.messages import PackedSegments, inflate, unpack_segments
from ..wire.messages import Advised, Done, ModulesAnswer, Refusal
from ..wire.stores import FindingStore
from .conversation import Assessed, Event, HubConversation, Joined, RankVerb
from .snapshot import (
    DecisionRefused,
    RankAdvice,
    RankAttachment,
    RankModules,
    SegmentsRefused,
    Snapshot,
)


class NodePicture:
    """One node as this end knows it; use from one thread (`history` may be read from any).

    Args:
        history: History to fill; a fresh one by default.
        node: Name of the node in snapshots, if there are several.
    """

    def __init__(
        self, conversation: HubConversation, clock: Clock, *, history: History | None = None, node: str = ""
    ) -> None:
        self.history = history or History()
        self.newest = Snapshot(node=node)
        self._conversation = conversation
        self._clock = clock
        self._questions = Questions(conversation)
        self._findings = FindingStore()

    def ask_segments(self, pid: int, *, step_end_within_s: float | None = None) -> None:
        """Ask for the segment map of a training process; a later snapshot has it, or the reason why not.

        A process is asked at most every five seconds; who asks sooner gets the last map. A map of the end of
        a step is always a new one.

        Args:
            pid: Process id as in `RankSample.pid`.
            step_end_within_s: How long the process may wait for the end of a step to make the map there, in
                seconds; None to make it at once.
        """
        self._questions.ask("segments", pid, self._clock.monotonic_s(), seconds=step_end_within_s)

    def ask_modules(self, pid: int, *, step_end_within_s: float = MODULES_WITHIN_S) -> None:
        """Ask for a profile by module of a training process, as of the end of its next step.

        The process starts one if none runs, and follows its modules for a few steps: who goes on watching
        asks again. A later snapshot has it in `modules`, or the reason why not.

        Args:
            pid: Process id as in `RankSample.pid`.
            step_end_within_s: How long the process may wait for the end of a step, in seconds.
        """
        self._questions.ask("modules", pid, self._clock.monotonic_s(), seconds=step_end_within_s)

    def advise(
        self,
        pid: int,
        action: AdviceAction,
        *,
        reason: str = "",
        step_end_within_s: float = ADVICE_WITHIN_S,
    ) -> int:
        """Ask a training process to do something about its memory at the end of its next step.

        A later snapshot has its answer in `advice`, or the reason why it was not asked.

        Args:
            pid: Process id as in `RankSample.pid`.
            reason: Why, in one sentence; the callback of the program gets it.
            step_end_within_s: How long the process may wait for the end of a step, in seconds.

        Returns:
            The number of the advice, as in `RankAdvice.number`.
        """
        return self._questions.advise(pid, action, reason, step_end_within_s, self._clock.monotonic_s())

    def ask_attach(self, pid: int, started_s: float | None) -> None:
        """Have the agent load the probe into a process; a later snapshot has the outcome in `attachments`.

        Args:
            pid: Process id as in `ProcessReading.pid`.
            started_s: When it started, as there; another process that has its id by now is refused.
        """
        self._questions.attach(pid, started_s, self._clock.monotonic_s())

    def ask_detach(self, pid: int) -> None:
        """Remove the probe from a process; a later snapshot says in `attachments` whether it left."""
        self._questions.ask("detach", pid, self._clock.monotonic_s())

    def record_history(self, pid: int, *, is_on: bool = True, seconds: float | None = None) -> None:
        """Make a training process record its allocations with their stacks, or stop.

        Args:
            pid: Process id as in `RankSample.pid`.
        """
        self._questions.ask("history", pid, self._clock.monotonic_s(), is_on=is_on, seconds=seconds)

    def decide(self, decision: FindingDecision) -> None:
        """Acknowledge a finding, mute its kind on its device, or undo that; returns at once.

        Every viewer's next snapshot shows it in `alerts`; `decision_refused` says why it could not be done.
        """
        self._questions.decide(decision, self._clock.monotonic_s())

    def apply(self, events: list[Event]) -> bool:
        """Apply events to the picture; return whether there were any."""
        snapshot = self.newest
        for event in events:
            snapshot = self._apply_one(event, snapshot)
        if events:
            self.newest = msgspec.structs.replace(
                snapshot,
                connection="live" if snapshot.sample is not None else "connecting",
                reason=self._conversation.refused,
                silent_s=None,
                samples_dropped=self._conversation.samples_dropped,
                segment_maps=self._questions.maps,
                segments_refused=self._questions.refused,
                modules=self._questions.modules,
                advice=self._questions.advice,
                attachments=self._questions.attachments,
                decision_refused=self._questions.decision_refused,
            )
        return bool(events)

    def _apply_one(self, event: Event, snapshot: Snapshot) -> Snapshot:
        if isinstance(event, Joined):
            return self._join(event, snapshot)
        if isinstance(event, Sample):
            return self._follow(event, snapshot)
        if isinstance(event, Finding):
            self._findings.merge([event])
            snapshot = msgspec.structs.replace(snapshot, findings=self._findings.all())
        elif isinstance(event, AlertState):
            snapshot = msgspec.structs.replace(snapshot, alerts=event)
        elif isinstance(event, Assessed):
            snapshot = msgspec.structs.replace(snapshot, assessments=event.assessments)
        elif isinstance(event, HubStatus):
            snapshot = msgspec.structs.replace(snapshot, hub=event)
        else:
            self._apply_answer(event)
        return snapshot

    def _apply_answer(self, event: Event) -> None:
        if isinstance(event, PackedSegments):
            self._questions.take_map(event)
        elif isinstance(event, ModulesAnswer):
            self._questions.take_modules(event)
        elif isinstance(event, Advised):
            self._questions.take_advised(event)
        elif isinstance(event, Done | Refusal):
            self._questions.take_answer(event)

    def forget_history(self) -> None:
        """Drop the history, which takes 0.5 MiB a device: nobody looks at this node."""
        self.history.take_over(History(keeps_ranks=self.history.keeps_ranks))

    def expire_questions(self) -> bool:
        """Give up on unanswered questions; return whether that is news."""
        if not self._questions.expire(self._clock.monotonic_s()):
            return False
        self.newest = msgspec.structs.replace(
            self.newest,
            segments_refused=self._questions.refused,
            modules=self._questions.modules,
            advice=self._questions.advice,
            attachments=self._questions.attachments,
            decision_refused=self._questions.decision_refused,
        )
        return True

    def tell_lost(self, reason: str, silent_s: float | None) -> None:
        """Mark the connection as lost in the picture.

        Args:
            silent_s: Seconds since the hub's last message; None if there never was one.
        """
        self.newest = msgspec.structs.replace(
            self.newest,
            connection="lost",
            reason=reason,
            silent_s=None if silent_s is None else round(silent_s, 1),
        )

    def _follow(self, sample: Sample, snapshot: Snapshot) -> Snapshot:
        if self._conversation.detail == "full" and not self._try_history(lambda: self.history.add(sample)):
            return snapshot
        return msgspec.structs.replace(snapshot, sample=sample)

    def _try_history(self, keep: Callable[[], None]) -> bool:
        """Return whether the history accepted it; a hub with an impossible past has no history, and the
        picture says so.
        """
        try:
            keep()
        except (WireError, ValueError, OverflowError) as error:
            self._conversation.refused = f"the agent there sends invalid values: {error}"
            self.forget_history()  # which may have been left half written
            return False
        return True

    def _join(self, event: Joined, snapshot: Snapshot) -> Snapshot:
        welcome = event.welcome
        if self._conversation.detail == "full":
            self._try_history(lambda: self.history.extend(welcome.history))
        if event.is_new_hub:
            self._findings = FindingStore()
        self._findings.merge(welcome.findings)
        return msgspec.structs.replace(
            snapshot,
            sample=welcome.sample or snapshot.sample,
            findings=self._findings.all(),
            hub=welcome.hub,
            assessments=welcome.assessments,
            alerts=welcome.alerts,
        )


# Profiles by module in a viewer's memory.
MAX_MODULES = 16
# Advice with its outcome in a viewer's memory.
MAX_ADVICE = 16
# The same of attaching and detaching.
MAX_ATTACHMENTS = 32
# Longer than a hub waits for a process that it attaches to, and for those before it.
ATTACHES_WITHIN_S = 240.0
# Segment maps in a viewer's memory; one may take some MiB.
MAX_MAPS = 4
# Longer than a hub waits for the process. An agent of an older version never answers.
HUB_ANSWERS_WITHIN_S = 15.0
NO_ANSWER = "the agent has not answered: it is too old, or gone"


class _Question(NamedTuple):
    verb: RankVerb | Literal["decide", "advise", "attach"]
    pid: int | None
    asked_s: float
    # How long the process may wait for the end of a step.
    wait_s: float = 0.0
    # Action of an advice.
    action: AdviceAction | None = None


class Questions:
    """Open questions of one viewer, and the newest answers."""

    def __init__(self, stream: HubConversation) -> None:
        # Newest first, one a process.
        self.maps: tuple[SegmentMap, ...] = ()
        # The newest decision about a finding that was refused.
        self.decision_refused: DecisionRefused | None = None
        self.refused: tuple[SegmentsRefused, ...] = ()
        # Newest answer first, one a process.
        self.modules: tuple[RankModules, ...] = ()
        # Outcomes of advice, newest first.
        self.advice: tuple[RankAdvice, ...] = ()
        # Answers about attaching and detaching, newest first.
        self.attachments: tuple[RankAttachment, ...] = ()
        self._stream = stream
        self._open: dict[int, _Question] = {}
        self._results: dict[int, str | None] = {}

    def ask(
        self,
        verb: RankVerb,
        pid: int,
        now_s: float,
        *,
        is_on: bool = True,
        seconds: float | None = None,
    ) -> int:
        number = self._stream.send(verb, pid, is_on=is_on, seconds=seconds)
        waits = verb in ("segments", "modules")
        self._open[number] = _Question(verb, pid, now_s, seconds or 0.0 if waits else 0.0)
        return number

    def advise(self, pid: int, action: AdviceAction, reason: str, seconds: float, now_s: float) -> int:
        number = self._stream.advise(pid, action, reason, seconds)
        self._open[number] = _Question("advise", pid, now_s, seconds, action)
        return number

    def attach(self, pid: int, started_s: float | None, now_s: float) -> None:
        self._open[self._stream.attach(pid, started_s)] = _Question("attach", pid, now_s, ATTACHES_WITHIN_S)

    def decide(self, decision: FindingDecision, now_s: float) -> None:
        self._open[self._stream.decide(decision)] = _Question("decide", None, now_s)

    def is_answered(self, number: int) -> bool:
        return number not in self._open

    def take_refusal(self, number: int) -> str | None:
        return self._results.pop(number, None)

    def take_answer(self, answer: Done | Refusal) -> None:
        if isinstance(answer, Refusal):
            self._conclude(answer.request_id, answer.reason)
        else:
            self._conclude(answer.request_id, None, answer.outcome)

    def take_advised(self, answer: Advised) -> None:
        question = self._open.pop(answer.request_id, None)
        if question is not None:
            self._note_advice(answer.request_id, question, advised=answer)

    def _note_advice(
        self, number: int, question: _Question, advised: Advised | None = None, refusal: str | None = None
    ) -> None:
        if question.pid is not None and question.action is not None:
            newest = RankAdvice(question.pid, number, question.action, advised, refusal)
            self.advice = (newest, *self.advice)[:MAX_ADVICE]

    def take_map(self, packed: PackedSegments) -> None:
        """Note a segment map, whoever asked for it."""
        try:
            found = unpack_segments(packed)
        except WireError as error:
            self._refuse(packed.pid, str(error))
            return
        self.maps = (found, *(known for known in self.maps if known.pid != found.pid))[:MAX_MAPS]
        self.refused = tuple(refused for refused in self.refused if refused.pid != found.pid)

    def take_modules(self, answer: ModulesAnswer) -> None:
        """Note a profile by module that this viewer asked for."""
        question = self._open.pop(answer.request_id, None)
        if question is None:
            return
        try:
            memory = _unpack_modules(answer)
        except (InputFileError, WireError) as error:
            self._note_modules(answer.request_id, answer.pid, refusal=str(error))
        else:
            self._note_modules(answer.request_id, answer.pid, memory)

    def _note_modules(
        self, number: int, pid: int, memory: ModuleMemory | None = None, refusal: str | None = None
    ) -> None:
        """Note the newest answer of a process; a refusal keeps its newest profile."""
        known = next((known for known in self.modules if known.pid == pid), None)
        if memory is None and known is not None:
            memory = known.memory
        others = (known for known in self.modules if known.pid != pid)
        self.modules = (RankModules(pid, number, memory, refusal), *others)[:MAX_MODULES]

    def expire(self, now_s: float) -> bool:
        """Give up on unanswered questions; return whether that is news."""
        late = [n for n, it in self._open.items() if now_s - it.asked_s > HUB_ANSWERS_WITHIN_S + it.wait_s]
        for number in late:
            self._conclude(number, NO_ANSWER)
        return bool(late)

    def _conclude(self, number: int, refusal: str | None, outcome: str = "") -> None:
        question = self._open.pop(number, None)
        if question is None:
            return
        if question.verb in ("attach", "detach") and question.pid is not None:
            verb: Literal["attach", "detach"] = "attach" if question.verb == "attach" else "detach"
            newest = RankAttachment(question.pid, number, verb, outcome, refusal)
            self.attachments = (newest, *self.attachments)[:MAX_ATTACHMENTS]
        if question.verb == "decide":
            self.decision_refused = None if refusal is None else DecisionRefused(number, refusal)
        elif question.verb == "modules" and question.pid is not None:
            self._note_modules(number, question.pid, refusal=refusal)
        elif question.verb == "advise":
            self._note_advice(number, question, refusal=refusal)
        elif question.verb != "segments":
            self._results[number] = refusal
        elif refusal is not None and question.pid is not None:
            self._refuse(question.pid, refusal)

    def _refuse(self, pid: int, reason: str) -> None:
        others = (refused for refused in self.refused if refused.pid != pid)
        self.refused = (SegmentsRefused(pid, reason), *others)[:MAX_MAPS]


def read_advised(snapshot: Snapshot, number: int) -> Advised | None:
    """Return a process's answer to an advice, or None if it is not known yet.

    Args:
        snapshot: Of the viewer that gave it.

    Raises:
        UsageError: The process was not asked, or did not do it in time.
        HubUnreachableError: The agent does not answer.
    """
    found = next((advice for advice in snapshot.advice if advice.number == number), None)
    if found is None:
        return None
    if found.refusal is not None:
        raise HubUnreachableError(found.refusal) if found.refusal == NO_ANSWER else UsageError(found.refusal)
    return found.advised


def _unpack_modules(answer: ModulesAnswer) -> ModuleMemory:
    """Unpack the profile of a probe.

    Raises:
        InputFileError: It is no profile.
    """
    from ..files.module_memory import read_exact_text  # most viewers never ask for one

    where = f"the profile of process {answer.pid}"
    return read_exact_text(inflate(answer.data, where).decode("utf-8", "replace"), where)
