"""What viewers want of training processes: passed on to the probes, and answered once that is decided."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ..errors import WireError
from ..model import AdviceAction
from .listener import Connection
from .messages import (
    PROBE_PROTOCOL,
    AdviceTaken,
    Demand,
    DemandKind,
    DemandRefused,
    ModulesPart,
    PackedSegments,
    PartAssembly,
    SegmentsPart,
)

SEGMENTS_INTERVAL_S = 5.0
"""A map may hold up the allocator it is of: who asks again sooner gets the last one."""
ANSWER_WITHIN_S = 10.0
"""Patience with a process that is held up in a long call."""

_HELD_UP = "it is stopped, or in a long call that holds Python's lock"
_CAUSES = {
    "detach": _HELD_UP,
    "segments": f"{_HELD_UP}, or its allocator cannot be asked while the program records its allocations",
    "modules": _HELD_UP,
    "advise": _HELD_UP,
}
MODULES_WITHIN_S = 60.0
"""How long a process may take to end a step, where the asker does not say."""
ADVICE_WITHIN_S = 60.0
"""The same for an advice."""
_OF_STEP_END: dict[DemandKind, float] = {"modules": MODULES_WITHIN_S, "advise": ADVICE_WITHIN_S}
"""Demands that the end of a step alone can meet, and that a process may refuse."""
MAX_OUTCOME_CHARACTERS = 300
MAX_ASKERS = 256
"""Who wait for one answer of one process."""

Asker = tuple[bytes, int]
"""Who asked: the peer of the control socket and the number of its request."""


class Wish(NamedTuple):
    """What somebody wants of one process."""

    kind: DemandKind
    asker: Asker
    is_on: bool = True
    seconds: float | None = None
    action: AdviceAction | None = None
    reason: str | None = None

    @property
    def is_of_step_end(self) -> bool:
        """Whether a map is wanted that is taken at the end of a step; a process may be long about it."""
        return self.kind == "segments" and self.seconds is not None


class Answer(NamedTuple):
    """What becomes of a wish: done, or the reason why not in one sentence."""

    asker: Asker
    refusal: str | None = None
    modules: "PackedModules | None" = None
    """A profile by module, where one was wished for: it goes to those who asked."""
    advice: "AdviceOutcome | None" = None
    """What became of an advice."""


class PackedModules(msgspec.Struct, frozen=True):
    """The profile by module of one process as its probe packed it."""

    pid: int
    data: bytes
    """The zlib-compressed text of a `module_memory.jsonl`."""


class AdviceOutcome(NamedTuple):
    """What a process made of an advice."""

    pid: int
    is_obeyed: bool
    outcome: str
    freed_bytes: int | None


class _Key(NamedTuple):
    connection: Connection
    kind: DemandKind
    is_of_step_end: bool
    action: AdviceAction | None


class _Open:
    """One demand that a probe has not answered yet, and everybody who waits for that."""

    def __init__(self, request: int, within_s: float, expires_s: float) -> None:
        self.request = request
        self.within_s = within_s
        self.expires_s = expires_s
        self.askers: list[Asker] = []
        self.assembly = PartAssembly()


class Demands:
    """Demands to the probes of one node: each open at most once a process, of maps and advice each sort.

    Args:
        node: Name of the node, for the maps.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._requests = itertools.count(1)
        self._open: dict[_Key, _Open] = {}
        self._last: dict[Connection, tuple[float, PackedSegments]] = {}
        self._answers: list[Answer] = []
        self._maps: list[PackedSegments] = []

    @property
    def is_waiting(self) -> bool:
        """Whether a probe owes an answer."""
        return bool(self._open)

    @property
    def has_answers(self) -> bool:
        """Whether anything was decided that nobody has taken yet."""
        return bool(self._answers or self._maps)

    def refuse(self, asker: Asker, reason: str) -> None:
        """Answer a wish that no probe can be asked about."""
        self._answers.append(Answer(asker, reason))

    def ask(self, connection: Connection, pid: int, wish: Wish, now_s: float) -> None:
        """Pass a wish on; the answer comes with `take_answers`."""
        if wish.kind in _OF_STEP_END and wish.seconds is None:
            wish = wish._replace(seconds=_OF_STEP_END[wish.kind])
        kind = wish.kind
        key = _Key(connection, wish.kind, wish.is_of_step_end, wish.action)
        last = self._last.get(connection) if kind == "segments" and not wish.is_of_step_end else None
        if last is not None and now_s - last[0] < SEGMENTS_INTERVAL_S:
            if last[1] not in self._maps:
                self._maps.append(last[1])
            self._answers.append(Answer(wish.asker))
            return
        waiting = self._open.get(key)
        if waiting is not None and kind != "history":
            if len(waiting.askers) < MAX_ASKERS:
                waiting.askers.append(wish.asker)
            else:
                self.refuse(
                    wish.asker, f"{MAX_ASKERS} others wait for process {pid} already: ask again later"
                )
            return
        request = next(self._requests)
        if not connection.send(_word(wish, request)):
            self.refuse(wish.asker, f"process {pid} takes no demands at present: ask again in a moment")
        elif kind == "history":
            self._answers.append(Answer(wish.asker))
        else:
            within_s = ANSWER_WITHIN_S + (wish.seconds or 0.0)
            waiting = self._open[key] = _Open(request, within_s, now_s + within_s)
            waiting.askers.append(wish.asker)
            if kind == "modules":
                waiting.assembly = PartAssembly("a profile by module")

    def take_part(
        self,
        connection: Connection,
        part: SegmentsPart | ModulesPart,
        pid: int,
        device_uuid: str | None,
        now_s: float,
    ) -> None:
        """Take a part of an answer; one that nobody waits for any more is let go.

        Raises:
            WireError: The part does not fit those before.
        """
        is_map = isinstance(part, SegmentsPart)
        key = self._find_open(connection, "segments" if is_map else "modules", part.request)
        if key is None:
            return
        try:
            data = self._open[key].assembly.add(part)
        except WireError as error:
            self._conclude(key, f"process {pid} {error}")
            raise
        if data is None:
            return
        if not is_map:
            self._conclude(key, None, PackedModules(pid, data))
            return
        packed = PackedSegments(self._node, pid, device_uuid, data)
        if not key.is_of_step_end:
            self._last[connection] = (now_s, packed)
        self._maps.append(packed)
        self._conclude(key, None)

    def take_refusal(self, connection: Connection, refused: DemandRefused, pid: int) -> None:
        """Take a process's own word why a demand is not met."""
        for kind in _OF_STEP_END:
            key = self._find_open(connection, kind, refused.request)
            if key is not None:
                self._conclude(key, f"process {pid} {refused.reason}")

    def take_advice(self, connection: Connection, taken: AdviceTaken, pid: int) -> str | None:
        """Take what a process made of an advice, and return it as a sentence; None where nobody waits."""
        key = self._find_open(connection, "advise", taken.request)
        if key is None:
            return None
        outcome = taken.outcome[:MAX_OUTCOME_CHARACTERS]
        advice = AdviceOutcome(pid, taken.is_obeyed, outcome, taken.freed_bytes)
        self._conclude(key, None, advice=advice)
        return f"process {pid} was advised to {key.action}: it {outcome}"

    def _find_open(self, connection: Connection, kind: DemandKind, request: int) -> _Key | None:
        keys = self._keys_of(connection, kind)
        return next((key for key in keys if self._open[key].request == request), None)

    def _keys_of(self, connection: Connection, *kinds: DemandKind) -> list[_Key]:
        return [key for key in self._open if key.connection is connection and key.kind in kinds]

    def note_end(self, connection: Connection, pid: int) -> None:
        """Answer everybody who waits for a process that has ended, or was detached."""
        self._last.pop(connection, None)
        for key in self._keys_of(connection, "detach"):
            self._conclude(key, None)
        for key in self._keys_of(connection, "segments", "modules", "advise"):
            self._conclude(key, f"process {pid} has ended or was detached")

    def expire(self, now_s: float) -> None:
        """Give up on demands that have waited too long; let maps go that would be asked for anew."""
        self._last = {c: last for c, last in self._last.items() if now_s - last[0] < SEGMENTS_INTERVAL_S}
        for key, waiting in tuple(self._open.items()):
            if now_s > waiting.expires_s:
                within = f"{waiting.within_s:.0f} s"
                self._conclude(key, f"the process has not answered within {within}: {_CAUSES[key.kind]}")

    def take_answers(self) -> list[Answer]:
        """Return what was decided since the last call."""
        answers = self._answers
        self._answers = []
        return answers

    def take_maps(self) -> Iterator[PackedSegments]:
        """Yield the maps that became whole since the last call."""
        maps = self._maps
        self._maps = []
        yield from maps

    def _conclude(
        self,
        key: _Key,
        refusal: str | None,
        modules: PackedModules | None = None,
        advice: AdviceOutcome | None = None,
    ) -> None:
        waiting = self._open.pop(key, None)
        if waiting is not None:
            self._answers += [Answer(asker, refusal, modules, advice) for asker in waiting.askers]


def _word(wish: Wish, request: int) -> Demand:
    return Demand(
        PROBE_PROTOCOL, wish.kind, request, wish.is_on, wish.seconds, action=wish.action, reason=wish.reason
    )
