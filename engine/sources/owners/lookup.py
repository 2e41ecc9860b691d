"""Looks up names on the thread of the watch: in links and files, at the kubelet and at Docker.

Only nodes with pods, containers or jobs load this.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ...clock import Clock
from ...errors import SourceUnavailableError
from ...text import make_printable
from ..processes import read_variables
from .containers import (
    ID_CHARS,
    POD_LINKS,
    find_container_names,
    read_pod_folders,
    read_pod_links,
)
from .kubelet import CHECKPOINT, Allocation, ask_kubelet, read_checkpoint
from .names import Job, Names, PodName, Wanted, join_by_devices, join_by_ids, list_allocations

# While nothing comes: a pod may be given a device and not use it.
INTERVAL_S = 60.0
# A kubelet that did not answer is asked again after this, doubled each time up to the second value.
RETRY_S = 60.0
MOST_RETRY_S = 960.0
MOST_JOB_CHARS = 128

_HEX_ID = re.compile(rf"[0-9a-f]{{{ID_CHARS}}}")


class NameLookup:
    """What one node knows of names.

    Args:
        kubelet: Its folder; None if this node has none.
        home: Folder of this user, for its own containers.
    """

    def __init__(
        self,
        root: Path,
        kubelet: Path | None,
        home: Path | None,
        clock: Clock,
        ask: Callable[[Path], list[Allocation]] | None = None,
    ) -> None:
        self._root = root
        self._kubelet = kubelet
        self._home = home
        self._clock = clock
        self._ask = ask or ask_kubelet
        self._names = Names()
        self.looked_up: frozenset[str] = frozenset()
        """What was looked up so far, with or without success."""
        self._listed: list[Allocation] | None = None
        self._ask_due_s = 0.0
        self._retry_s = RETRY_S
        self._failure: str | None = None

    def look(self, wanted: Wanted) -> Iterator[Names]:
        """Yield the names that are wanted and known, before the kubelet is asked and afterwards.

        While nothing changes it is the same object.
        """
        links: dict[str, PodName] = {}
        pods: dict[str, PodName] = {}
        if wanted.pods or wanted.containers:
            links = read_pod_links(self._root)
            pods = read_pod_folders(self._root)
        unnamed = {it for it in wanted.containers - links.keys() if _HEX_ID.fullmatch(it)}
        known = self._names
        containers = {key: name for key, name in known.containers.items() if key in unnamed}
        if not unnamed <= self.looked_up:
            containers |= find_container_names(self._root, unnamed - containers.keys(), self._home)
        jobs = {job: known.jobs.get(job) or self._find_job(job, pids) for job, pids in wanted.jobs.items()}
        found = Names(
            {key: name for key, name in links.items() if key in wanted.containers},
            {uid: name for uid, name in pods.items() if uid in wanted.pods},
            containers,
            {job: it for job, it in jobs.items() if it != Job()},
            known.allocations,
            known.reason,
        )
        if self._kubelet is not None:
            if self._is_due(wanted):
                yield self._keep(found)
                self._ask_again(self._kubelet)
            named = self._join_kubelet(self._kubelet, wanted, pods)
            found = found._replace(
                pods={uid: name for uid, name in named.items() if uid in wanted.pods},
                allocations=None if self._listed is None else list_allocations(self._listed),
            )
        self.looked_up = wanted.ids
        yield self._keep(found._replace(reason=self._explain(wanted, found)))

    def _keep(self, names: Names) -> Names:
        if names != self._names:
            self._names = names
        return self._names

    def _is_due(self, wanted: Wanted) -> bool:
        has_new = not wanted.pods.keys() <= self.looked_up and self._failure is None
        return has_new or self._clock.monotonic_s() >= self._ask_due_s

    def _ask_again(self, folder: Path) -> None:
        try:
            self._listed = self._ask(folder)
            self._failure = None
            self._retry_s = RETRY_S
            self._ask_due_s = self._clock.monotonic_s() + INTERVAL_S
        except SourceUnavailableError as error:
            # What it said last may be wrong by now.
            self._listed = None
            self._failure = str(error)
            self._ask_due_s = self._clock.monotonic_s() + self._retry_s
            self._retry_s = min(2 * self._retry_s, MOST_RETRY_S)

    def _join_kubelet(self, folder: Path, wanted: Wanted, pods: Mapping[str, PodName]) -> dict[str, PodName]:
        """Return the names of pods by UID and those that the kubelet adds."""
        listed = self._listed or []
        found = dict(pods)
        kept = read_checkpoint(folder) or []
        for uid, name in join_by_ids(listed, kept).items():
            found[uid] = found[uid]._replace(container=name.container) if uid in found else name
        open_uids = {uid: devices for uid, devices in wanted.pods.items() if uid not in found}
        named = {(it.namespace, it.pod) for it in found.values()}
        others = [it for it in listed if (it.namespace, it.pod) not in named]
        return found | join_by_devices(others, open_uids)

    def _find_job(self, job: str, pids: Sequence[int]) -> Job:
        """Return name and partition of a job, from a process of it whose environment we may read.

        Of the environment nothing else is kept.
        """
        for pid in pids:
            variables = read_variables(pid, self._root / "proc")
            if job in (variables.get("SLURM_JOB_ID"), variables.get("SLURM_JOBID")):
                name, partition = (
                    make_printable(variables.get(key, ""), MOST_JOB_CHARS).strip() or None
                    for key in ("SLURM_JOB_NAME", "SLURM_JOB_PARTITION")
                )
                return Job(name, partition)
        return Job()

    def _explain(self, wanted: Wanted, found: Names) -> str | None:
        """Return why some pods have no names, in one sentence; None where all that could be known is."""
        if found.links or wanted.pods.keys() <= found.pods.keys():
            return None
        why = self._failure or "the kubelet's folder is not visible here"
        if self._listed is not None:
            why = f"the kubelet's {CHECKPOINT}, which has their UIDs, does not either"
        some = "some pods" if found.pods else "pods"
        return f"{some} are shown by their UIDs: /{POD_LINKS} does not name them, and {why}"
