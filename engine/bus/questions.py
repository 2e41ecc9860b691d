"""A viewer's questions to training processes and to the hub: what was asked, and what became of it."""

from typing import Literal, NamedTuple

from ..alerts.state import FindingDecision
from ..errors import WireError
from ..model import SegmentMap
from ..ranks.segments import PackedSegments, unpack_segments
from .messages import Done, Refusal
from .snapshot import DecisionRefused, SegmentsRefused
from .stream import HubStream, RankVerb

MAX_MAPS = 4
"""Segment maps that a viewer keeps; one may take some MiB."""
HUB_ANSWERS_WITHIN_S = 15.0
"""Longer than a hub waits for the process. An agent of an older version never answers."""
NO_ANSWER = "the agent has not answered: it is of an older version, or gone"


class _Question(NamedTuple):
    verb: RankVerb | Literal["decide"]
    pid: int | None
    asked_s: float


class Questions:
    """Open questions of one viewer, and the newest answers."""

    def __init__(self, stream: HubStream) -> None:
        self.maps: tuple[SegmentMap, ...] = ()
        """Newest first, one a process."""
        self.decision_refused: DecisionRefused | None = None
        """The newest decision about a finding, where it was refused."""
        self.refused: tuple[SegmentsRefused, ...] = ()
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
        self._open[number] = _Question(verb, pid, now_s)
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

    def take_map(self, packed: PackedSegments) -> None:
        """Take a segment map, whoever asked for it."""
        try:
            found = unpack_segments(packed)
        except WireError as error:
            self._refuse(packed.pid, str(error))
            return
        self.maps = (found, *(known for known in self.maps if known.pid != found.pid))[:MAX_MAPS]
        self.refused = tuple(refused for refused in self.refused if refused.pid != found.pid)

    def expire(self, now_s: float) -> bool:
        """Give up on questions that nobody answers; return whether that is news."""
        late = [n for n, question in self._open.items() if now_s - question.asked_s > HUB_ANSWERS_WITHIN_S]
        for number in late:
            self._conclude(number, NO_ANSWER)
        return bool(late)

    def _conclude(self, number: int, refusal: str | None) -> None:
        question = self._open.pop(number, None)
        if question is None:
            return
        if question.verb == "decide":
            self.decision_refused = None if refusal is None else DecisionRefused(number, refusal)
        elif question.verb != "segments":
            self._results[number] = refusal
        elif refusal is not None and question.pid is not None:
            self._refuse(question.pid, refusal)

    def _refuse(self, pid: int, reason: str) -> None:
        others = (refused for refused in self.refused if refused.pid != pid)
        self.refused = (SegmentsRefused(pid, reason), *others)[:MAX_MAPS]
