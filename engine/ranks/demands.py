"""What viewers ask of training processes, until each is answered, refused or late."""

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

# Making a map may block its allocator: who asks again sooner gets the last one.
SEGMENTS_INTERVAL_S = 5.0
# For a process that is in a long call.
ANSWER_WITHIN_S = 10.0

_HELD_UP = "it is stopped, or in a long call that holds Python's lock (GIL)"
_CAUSES = {
    "detach": _HELD_UP,
    "segments": f"{_HELD_UP}, or the program records its allocations, which blocks the allocator",
    "modules": _HELD_UP,
    "advise": _HELD_UP,
}
# How long a process may take to end a step, if the asker does not say.
MODULES_WITHIN_S = 60.0
# The same for an advice.
ADVICE_WITHIN_S = 60.0
# Demands that only the end of a step can meet, and that a process may refuse.
_OF_STEP_END: dict[DemandKind, float] = {"modules": MODULES_WITHIN_S, "advise": ADVICE_WITHIN_S}
MAX_OUTCOME_CHARACTERS = 300
# Who wait for one answer of one process.
MAX_ASKERS = 256

# The peer of the control socket and the number of its request.
Asker = tuple[bytes, int]


class Wish(NamedTuple):
    """A question or request of a viewer to one process."""

    kind: DemandKind
    asker: Asker
    is_on: bool = True
    seconds: float | None = None
    action: AdviceAction | None = None
    reason: str | None = None

    @property
    def is_of_step_end(self) -> bool:
        """A map of the end of a step; a process may need long for it."""
        return self.kind == "segments" and self.seconds is not None


class Answer(NamedTuple):
    """Outcome of a wish: done, or the reason why not in one sentence."""

    asker: Asker
    refusal: str | None = None
    # A profile by module, for those who asked.
    modules: "PackedModules | None" = None
    # Outcome of an advice.
    advice: "AdviceOutcome | None" = None


class PackedModules(msgspec.Struct, frozen=True):
    """The profile by module of one process as its probe packed it."""

    pid: int
    # The zlib-compressed text of a `module_memory.jsonl`.
    data: bytes


class AdviceOutcome(NamedTuple):
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
    """One demand that a probe has not answered yet, and all who wait for it."""

    def __init__(self, request: int, within_s: float, expires_s: float) -> None:
        self.request = request
        self.within_s = within_s
        self.expires_s = expires_s
        self.askers: list[Asker] = []
        self.assembly = PartAssembly()


def _explain_unsent(connection: Connection, kind: DemandKind, pid: int) -> str | None:
    """Return why a demand could not be sent; None where what it asks for has happened."""
    if not connection.is_gone:
        return f"process {pid} cannot answer now: ask again in a moment"
    return None if kind == "detach" else f"process {pid} has ended or was detached"


class Demands:
    """Demands to the probes of one node: each open at most once a process, of maps and advice each sort."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._requests = itertools.count(1)
        self._open: dict[_Key, _Open] = {}
        self._last: dict[Connection, tuple[float, PackedSegments]] = {}
        self._answers: list[Answer] = []
        self._maps: list[PackedSegments] = []

    @property
    def is_waiting(self) -> bool:
        return bool(self._open)

    @property
    def has_answers(self) -> bool:
        """`take_answers` or `take_maps` has something."""
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
                    wish.asker, f"{MAX_ASKERS} others are already waiting for process {pid}: ask again later"
                )
            return
        request = next(self._requests)
        demand = Demand(
            PROBE_PROTOCOL, kind, request, wish.is_on, wish.seconds, action=wish.action, reason=wish.reason
        )
        if not connection.send(demand):
            self._answers.append(Answer(wish.asker, _explain_unsent(connection, kind, pid)))
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
        """Add a part of an answer; drop it if it is no longer waited for."""
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
        """Pass on a process's own reason why a demand is not met."""
        for kind in _OF_STEP_END:
            key = self._find_open(connection, kind, refused.request)
            if key is not None:
                self._conclude(key, f"process {pid} {refused.reason}")

    def take_advice(self, connection: Connection, taken: AdviceTaken, pid: int) -> str | None:
        """Pass on a process's answer to an advice, and return it as a sentence; None if nobody waits."""
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
        """Answer all who wait for a process that has ended, or was detached."""
        self._last.pop(connection, None)
        for key in self._keys_of(connection, "detach"):
            self._conclude(key, None)
        for key in self._keys_of(connection, "segments", "modules", "advise"):
            self._conclude(key, f"process {pid} has ended or was detached")

    def expire(self, now_s: float) -> None:
        """Give up on demands that have waited too long; drop maps that a new wish would not get."""
        self._last = {c: last for c, last in self._last.items() if now_s - last[0] < SEGMENTS_INTERVAL_S}
        for key, waiting in tuple(self._open.items()):
            if now_s > waiting.expires_s:
                within = f"{waiting.within_s:.0f} s"
                self._conclude(key, f"the process has not answered within {within}: {_CAUSES[key.kind]}")

    def take_answers(self) -> list[Answer]:
        """Return the outcomes since the last call."""
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
