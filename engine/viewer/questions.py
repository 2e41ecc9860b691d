"""A viewer's questions to training processes and to the hub: what was asked, and what became of it."""

from typing import Literal, NamedTuple

from ..alerts.state import FindingDecision
from ..errors import HubUnreachableError, InputFileError, UsageError, WireError
from ..model import AdviceAction, SegmentMap
from ..model.module_memory import ModuleMemory
from ..ranks.segments import PackedSegments, inflate, unpack_segments
from ..wire.messages import Advised, Done, ModulesAnswer, Refusal
from .conversation import HubConversation, RankVerb
from .snapshot import DecisionRefused, RankAdvice, RankModules, SegmentsRefused, Snapshot

MAX_MODULES = 16
"""Profiles by module that a viewer keeps."""
MAX_ADVICE = 16
"""Advice of which a viewer keeps what became of it."""
MAX_MAPS = 4
"""Segment maps that a viewer keeps; one may take some MiB."""
HUB_ANSWERS_WITHIN_S = 15.0
"""Longer than a hub waits for the process. An agent of an older version never answers."""
NO_ANSWER = "the agent has not answered: it is of an older version, or gone"


class _Question(NamedTuple):
    verb: RankVerb | Literal["decide", "advise"]
    pid: int | None
    asked_s: float
    wait_s: float = 0.0
    """How long the process may wait for the end of a step."""
    action: AdviceAction | None = None
    """What a process was advised to do."""


class Questions:
    """Open questions of one viewer, and the newest answers."""

    def __init__(self, stream: HubConversation) -> None:
        self.maps: tuple[SegmentMap, ...] = ()
        """Newest first, one a process."""
        self.decision_refused: DecisionRefused | None = None
        """The newest decision about a finding, where it was refused."""
        self.refused: tuple[SegmentsRefused, ...] = ()
        self.modules: tuple[RankModules, ...] = ()
        """Newest answer first, one a process."""
        self.advice: tuple[RankAdvice, ...] = ()
        """What became of advice, newest first."""
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
        """Ask something of a process; return the number of the question."""
        number = self._stream.send(verb, pid, is_on=is_on, seconds=seconds)
        waits = verb in ("segments", "modules")
        self._open[number] = _Question(verb, pid, now_s, seconds or 0.0 if waits else 0.0)
        return number

    def advise(self, pid: int, action: AdviceAction, reason: str, seconds: float, now_s: float) -> int:
        """Advise a process; return the number of the question."""
        number = self._stream.advise(pid, action, reason, seconds)
        self._open[number] = _Question("advise", pid, now_s, seconds, action)
        return number

    def decide(self, decision: FindingDecision, now_s: float) -> None:
        """Tell the hub what a person decided about a finding."""
        self._open[self._stream.decide(decision)] = _Question("decide", None, now_s)

    def is_answered(self, number: int) -> bool:
        """Return whether a question has been answered, for good or ill."""
        return number not in self._open

    def take_refusal(self, number: int) -> str | None:
        """Return why a question was refused, or None where it was not."""
        return self._results.pop(number, None)

    def take_answer(self, answer: Done | Refusal) -> None:
        """Take what a hub says of a question."""
        self._conclude(answer.request_id, answer.reason if isinstance(answer, Refusal) else None)

    def take_advised(self, answer: Advised) -> None:
        """Take what a process made of an advice."""
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
        """Take a segment map, whoever asked for it."""
        try:
            found = unpack_segments(packed)
        except WireError as error:
            self._refuse(packed.pid, str(error))
            return
        self.maps = (found, *(known for known in self.maps if known.pid != found.pid))[:MAX_MAPS]
        self.refused = tuple(refused for refused in self.refused if refused.pid != found.pid)

    def take_modules(self, answer: ModulesAnswer) -> None:
        """Take the profile by module that a process was asked for."""
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
        """Keep the newest answer of a process, and its newest profile where this is none."""
        known = next((known for known in self.modules if known.pid == pid), None)
        if memory is None and known is not None:
            memory = known.memory
        others = (known for known in self.modules if known.pid != pid)
        self.modules = (RankModules(pid, number, memory, refusal), *others)[:MAX_MODULES]

    def expire(self, now_s: float) -> bool:
        """Give up on questions that nobody answers; return whether that is news."""
        late = [n for n, it in self._open.items() if now_s - it.asked_s > HUB_ANSWERS_WITHIN_S + it.wait_s]
        for number in late:
            self._conclude(number, NO_ANSWER)
        return bool(late)

    def _conclude(self, number: int, refusal: str | None) -> None:
        question = self._open.pop(number, None)
        if question is None:
            return
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
    """Return what a process made of an advice, or None where that is not known yet.

    Args:
        snapshot: Of the viewer that gave it.
        number: Of the advice.

    Raises:
        UsageError: The process was not asked, or does not do it in time.
        HubUnreachableError: The agent does not answer.
    """
    found = next((advice for advice in snapshot.advice if advice.number == number), None)
    if found is None:
        return None
    if found.refusal is not None:
        raise HubUnreachableError(found.refusal) if found.refusal == NO_ANSWER else UsageError(found.refusal)
    return found.advised


def _unpack_modules(answer: ModulesAnswer) -> ModuleMemory:
    """Return the profile that a probe packed.

    Raises:
        WireError: It was not packed so.
        InputFileError: It is no profile.
    """
    from ..files.module_memory.exact import read_exact_text  # most viewers never ask for one

    where = f"the profile of process {answer.pid}"
    return read_exact_text(inflate(answer.data, where).decode("utf-8", "replace"), where)
