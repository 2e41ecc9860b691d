"""The picture that one end has of a node: drawn from what its hub says, with the history beside it."""

from collections.abc import Callable

import msgspec

from ..alerts.state import AlertState, FindingDecision
from ..clock import Clock
from ..errors import WireError
from ..history import History
from ..model import AdviceAction, Finding, HubStatus, Sample
from ..ranks.demands import ADVICE_WITHIN_S, MODULES_WITHIN_S
from ..ranks.segments import PackedSegments
from ..wire.findings import FindingStore
from ..wire.messages import Advised, Done, ModulesAnswer, Refusal
from .conversation import Assessed, Event, HubConversation, Joined
from .questions import Questions
from .snapshot import Snapshot


class NodePicture:
    """One node as this end knows it; use from one thread (`history` may be read from any).

    Args:
        conversation: What is said with its hub.
        clock: Where time is read.
        history: History to fill; a fresh one by default.
        node: What the node is called in snapshots, where there are several.
    """

    def __init__(
        self, conversation: HubConversation, clock: Clock, *, history: History | None = None, node: str = ""
    ) -> None:
        self.history = history or History()
        self.newest = Snapshot(node=node)
        """The newest picture."""
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
            step_end_within_s: How long the process may wait for the end of a step to take the map there, in
                seconds; None to take it at once.
        """
        self._questions.ask("segments", pid, self._clock.monotonic_s(), seconds=step_end_within_s)

    def ask_modules(self, pid: int, *, step_end_within_s: float = MODULES_WITHIN_S) -> None:
        """Ask for a profile by module of a training process, as it stands at the end of its next step.

        The process begins one where none runs, and follows its modules for a few steps: who looks on asks
        again. A later snapshot has it in `modules`, or the reason why not.

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

        A later snapshot has in `advice` what it made of that, or the reason why it was not asked.

        Args:
            pid: Process id as in `RankSample.pid`.
            action: What to do.
            reason: Why, in one sentence; the callback of the program gets it.
            step_end_within_s: How long the process may wait for the end of a step, in seconds.

        Returns:
            The number of the advice, as in `RankAdvice.number`.
        """
        return self._questions.advise(pid, action, reason, step_end_within_s, self._clock.monotonic_s())

    def record_history(self, pid: int, *, is_on: bool = True, seconds: float | None = None) -> None:
        """Let a training process record its allocations with their stacks, or stop.

        Args:
            pid: Process id as in `RankSample.pid`.
            is_on: Whether to record.
            seconds: How long at most.
        """
        self._questions.ask("history", pid, self._clock.monotonic_s(), is_on=is_on, seconds=seconds)

    def decide(self, decision: FindingDecision) -> None:
        """Acknowledge a finding, mute its kind on its device, or take that back; returns at once.

        Every viewer's next snapshot says so in `alerts`; why it could not be done is in `decision_refused`.
        """
        self._questions.decide(decision, self._clock.monotonic_s())

    def apply(self, events: list[Event]) -> bool:
        """Draw what was heard into the picture; return whether there was anything."""
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
        """Let go of what is remembered, which takes 0.5 MiB a device: nobody looks at this node."""
        self.history.take_over(History(keeps_ranks=self.history.keeps_ranks))

    def expire_questions(self) -> bool:
        """Give up on what nobody answers; return whether that is news."""
        if not self._questions.expire(self._clock.monotonic_s()):
            return False
        self.newest = msgspec.structs.replace(
            self.newest,
            segments_refused=self._questions.refused,
            modules=self._questions.modules,
            advice=self._questions.advice,
            decision_refused=self._questions.decision_refused,
        )
        return True

    def tell_lost(self, reason: str, silent_s: float | None) -> None:
        """Say in the picture that the connection is lost.

        Args:
            reason: Why, in one sentence.
            silent_s: Seconds since the hub was last heard; None where it never was.
        """
        self.newest = msgspec.structs.replace(
            self.newest,
            connection="lost",
            reason=reason,
            silent_s=None if silent_s is None else round(silent_s, 1),
        )

    def _follow(self, sample: Sample, snapshot: Snapshot) -> Snapshot:
        if self._conversation.detail == "full" and not self._keep(lambda: self.history.add(sample)):
            return snapshot
        return msgspec.structs.replace(snapshot, sample=sample)

    def _keep(self, keep: Callable[[], None]) -> bool:
        """Return whether something was remembered; a hub that tells nonsense has no past, and it is said."""
        try:
            keep()
        except (WireError, ValueError, OverflowError) as error:
            self._conversation.refused = f"the agent there tells figures that are none: {error}"
            self.forget_history()  # which may have been left half written
            return False
        return True

    def _join(self, event: Joined, snapshot: Snapshot) -> Snapshot:
        welcome = event.welcome
        if self._conversation.detail == "full":
            self._keep(lambda: self.history.extend(welcome.history))
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
