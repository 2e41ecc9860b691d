"""Profiles by module of processes that train: who is asked, what came, and what is said meanwhile."""

from collections.abc import Sequence

from ...engine.clock import Clock
from ...engine.model import RankSample
from ...engine.model.module_memory import ModuleMemory
from ...engine.units import format_age
from ...engine.viewer.feed import Feed
from ...engine.viewer.snapshot import RankModules, Snapshot
from ...exporters.modules.text import name_process, say_waiting
from .profiled import Profiled

ASK_AGAIN_S = 10.0
"""After a refusal, and where a question was lost."""
OLD_FROM_S = 5.0
"""Age from which it is told how old figures are."""
NOTHING = ModuleMemory(format="module memory", moments=())


class LiveProfiles:
    """Asks the process that is looked at again and again, which keeps its profile going.

    Args:
        feed: Passes questions on.
        clock: Where time is read.
        ranks: The processes, in the order in which they are shown.
    """

    def __init__(self, feed: Feed, clock: Clock, ranks: Sequence[RankSample]) -> None:
        self._feed = feed
        self._clock = clock
        self._ranks = {rank.pid: rank for rank in ranks}
        self._pids = [rank.pid for rank in ranks]
        self._answers: dict[int, RankModules] = {}
        self._asked_s: dict[int, float] = {}
        """Since when an answer is waited for."""
        self._answered_s: dict[int, float] = {}
        self._first_asked_s: dict[int, float] = {}

    @property
    def profiles(self) -> tuple[Profiled, ...]:
        """The profile of each process; one without moments where none has come."""
        return tuple(
            Profiled(name_process(self._ranks[pid]), self._find_memory(pid) or NOTHING) for pid in self._pids
        )

    def observe(self, snapshot: Snapshot) -> None:
        """Take what a snapshot tells of the processes."""
        for rank in () if snapshot.sample is None else snapshot.sample.ranks:
            if rank.pid in self._ranks:
                self._ranks[rank.pid] = rank
        for answer in snapshot.modules:
            known = self._answers.get(answer.pid)
            if answer.pid in self._ranks and (known is None or known.number != answer.number):
                self._answers[answer.pid] = answer
                if answer.refusal is None:
                    self._asked_s.pop(answer.pid, None)
                    self._answered_s[answer.pid] = self._clock.monotonic_s()

    def ask(self, place: int) -> None:
        """Ask a process for its next step, unless it has ended or an answer is waited for."""
        pid = self._pids[place]
        now_s = self._clock.monotonic_s()
        asked_s = self._asked_s.get(pid)
        answer = self._answers.get(pid)
        patience_s = ASK_AGAIN_S if answer is not None and answer.refusal is not None else 10 * ASK_AGAIN_S
        if self._ranks[pid].state == "ended" or (asked_s is not None and now_s - asked_s < patience_s):
            return
        self._asked_s[pid] = now_s
        self._first_asked_s.setdefault(pid, now_s)
        self._feed.ask_modules(pid)

    def say_waiting(self, place: int) -> str:
        """Return what is waited for, or why nothing comes."""
        pid = self._pids[place]
        answer = self._answers.get(pid)
        rank = self._ranks[pid]
        if answer is not None and answer.refusal is not None and rank.state != "ended":
            return f"{name_process(rank)}: {answer.refusal}; it is asked again every {ASK_AGAIN_S:.0f} s"
        return say_waiting(rank, self._clock.monotonic_s() - self._first_asked_s.get(pid, 0.0))

    def say_trouble(self, place: int) -> str:
        """Return how a sentence begins that says why figures are not the newest; nothing where they are."""
        pid = self._pids[place]
        age_s = self._clock.monotonic_s() - self._answered_s.get(pid, 0.0)
        old = f"figures of {format_age(age_s)} ago" if age_s >= OLD_FROM_S else ""
        if self._ranks[pid].state == "ended":
            return f"Ended, {old}" if old else "Ended"
        return old.capitalize()

    def _find_memory(self, pid: int) -> ModuleMemory | None:
        answer = self._answers.get(pid)
        return None if answer is None else answer.memory
