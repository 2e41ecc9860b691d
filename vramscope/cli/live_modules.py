"""`vramscope modules --pid` and `--job`: memory by module of processes that train now."""

import time
from typing import NamedTuple

from vramscope.engine.errors import HubUnreachableError, UsageError
from vramscope.engine.model import RankSample
from vramscope.engine.model.module_memory import ModuleMemory
from vramscope.engine.viewer.client import Client
from vramscope.engine.viewer.snapshot import RankModules
from vramscope.exporters.modules.text import COST, has_step, name_process

from .frame.diagnostics import complain

FIRST_SAMPLE_WITHIN_S = 5.0


class Wanted(NamedTuple):
    """Whose modules are asked for: a process, or all of a job."""

    pid: int | None
    job: str | None

    @property
    def name(self) -> str:
        """As the flags have it."""
        return f"process {self.pid}" if self.job is None else f"job {self.job}"

    def matches(self, rank: RankSample) -> bool:
        """Tell whether a process is asked for."""
        return rank.pid == self.pid if self.job is None else rank.job == self.job


def ask_profiles(client: Client, wanted: Wanted, timeout_s: float) -> list[tuple[str, ModuleMemory]]:
    """Return a profile of each process once it has followed a step, with the name of the process.

    Args:
        client: Of the agent that they report to.
        wanted: Whose.
        timeout_s: How long a process may take to end its steps.

    Raises:
        UsageError: Nobody of that name reports, or a process cannot be followed.
        HubUnreachableError: A process does not answer in time.
    """
    ranks = _find_ranks(client, wanted)
    names = ", ".join(name_process(rank) for rank in ranks)
    complain(f"asked {names}; this {COST}; it ends by itself", program="vramscope modules")
    asking = _Asking(client, [rank.pid for rank in ranks], timeout_s)
    found = asking.wait()
    for pid, reason in asking.refused.items():
        complain(f"process {pid}: {reason}" if str(pid) not in reason else reason)
    if not found:
        raise UsageError(next(iter(asking.refused.values())))
    return [(name_process(rank), found[rank.pid]) for rank in ranks if rank.pid in found]


class _Asking:
    """Questions to some processes, asked again until each has followed a step."""

    def __init__(self, client: Client, pids: list[int], timeout_s: float) -> None:
        self.refused: dict[int, str] = {}
        self._client = client
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        self._found: dict[int, ModuleMemory] = {}
        self._seen: dict[int, int] = dict.fromkeys(pids, 0)
        for pid in pids:
            client.ask_modules(pid, step_end_within_s=timeout_s)

    def wait(self) -> dict[int, ModuleMemory]:
        """Return the profiles by process; why one has none is in `refused`."""
        while self._open:
            left_s = self._deadline_s - time.monotonic()
            if left_s <= 0:
                pids = ", ".join(map(str, sorted(self._open)))
                raise HubUnreachableError(
                    f"no step of process {pids} was followed within {self._timeout_s:g} s: give a longer "
                    "--timeout where steps are longer, or look whether the job still makes any"
                )
            for answer in self._client.snapshot(timeout_s=min(left_s, 0.5)).modules:
                if answer.pid in self._open and answer.number != self._seen[answer.pid]:
                    self._take(answer)
        return self._found

    @property
    def _open(self) -> set[int]:
        return set(self._seen) - set(self._found) - set(self.refused)

    def _take(self, answer: RankModules) -> None:
        self._seen[answer.pid] = answer.number
        if answer.refusal is not None:
            self.refused[answer.pid] = answer.refusal
        elif answer.memory is not None and has_step(answer.memory):
            self._found[answer.pid] = answer.memory
        else:
            self._client.ask_modules(answer.pid, step_end_within_s=self._timeout_s)


def _find_ranks(client: Client, wanted: Wanted) -> list[RankSample]:
    """Return the processes that are asked for and still run.

    Raises:
        UsageError: There is none.
    """
    deadline_s = time.monotonic() + FIRST_SAMPLE_WITHIN_S
    sample = client.snapshot(timeout_s=0.2).sample
    while sample is None and time.monotonic() < deadline_s:
        sample = client.snapshot(timeout_s=0.2).sample
    reporting = [] if sample is None else [rank for rank in sample.ranks if rank.state != "ended"]
    found = [rank for rank in reporting if wanted.matches(rank)]
    if found:
        return found
    others = ", ".join(f"{rank.pid} ({name_process(rank)})" for rank in reporting[:8])
    told = f"those that do: {others}" if others else "none does; see `vramscope run` and `vramscope attach`"
    raise UsageError(f"{wanted.name} reports nothing to this agent; {told}")
