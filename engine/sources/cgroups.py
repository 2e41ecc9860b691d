"""Whose a process is, by its control groups: container, pod of Kubernetes, job and step of Slurm.

The paths are those of /proc/PID/cgroup, `0::/kubepods.slice/…`, which every user may read of every process.
"""

import re
from typing import NamedTuple

_ID = r"([0-9a-f]{12})[0-9a-f]{20,52}"
# Paths that Docker, containerd, CRI-O, Podman, Kubernetes, LXC, systemd-nspawn and Slurm make.
_CONTAINERS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"(?:docker|cri-containerd|containerd|crio|libpod|nerdctl)[-/:]{_ID}(?:\.scope)?"), "{}"),
    (re.compile(rf"kubepods.*[/:-]{_ID}(?:\.scope)?(?:/|$)"), "{}"),
    (re.compile(r"/lxc(?:\.payload)?[./]([^/]+)"), "lxc {}"),
    (re.compile(r"/machine\.slice/(?:systemd-nspawn@|machine-)([^/]+?)\.(?:service|scope)"), "machine {}"),
    (re.compile(r"/[^/]*slurm[^/]*(?:/[^/]+)*?/job_(\d{1,12})"), "slurm job {}"),
)
# The kubelet writes the UID of a pod with dashes, or, where systemd makes the group, with underscores; that
# of a pod from a file of the node is a hash without either.
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}"
_POD = re.compile(rf"kubepods[^:]*?[/-]pod({_UID}|[0-9a-f]{{32}})(?:\.slice)?(?:/|$)")
# `/slurm/uid_1000/job_77/step_0`, `/system.slice/slurmstepd.scope/job_812/step_batch`, with the name of the
# node in both: `/slurm_node01/…`, `/system.slice/node01_slurmstepd.scope/…`.
_SLURM = re.compile(r"/[^/]*slurm[^/]*(?:/[^/]+)*?/job_(\d{1,12})(?:/step_(\w{1,16}))?(?:/|$)")
# What /proc/PID/cgroup has at the most, in lines; a process is in a dozen hierarchies of version 1.
_MOST_LINES = 64


class Owner(NamedTuple):
    """None where the control groups name none."""

    # Short id or name.
    container: str | None = None
    # UID, with dashes.
    pod: str | None = None
    slurm_job: str | None = None
    # A number, `batch`, `extern` or `interactive`.
    slurm_step: str | None = None


def find_owner(cgroups: str) -> Owner:
    """Return whose a process is by the text of its /proc/PID/cgroup."""
    pod = job = step = None
    for line in cgroups.splitlines()[:_MOST_LINES]:
        path = line.split(":", 2)[-1]
        found = _POD.search(path)
        if found is not None and pod is None:
            pod = found.group(1).replace("_", "-")
        found = _SLURM.search(path)
        if found is not None and step is None:
            job, step = found.groups()
    return Owner(find_container(cgroups), pod, job, step)


def find_container(cgroups: str) -> str | None:
    """Return the short id or the name of a container; None if the paths in /proc/PID/cgroup name none."""
    for line in cgroups.splitlines()[:_MOST_LINES]:
        path = line.split(":", 2)[-1]
        for pattern, form in _CONTAINERS:
            found = pattern.search(path)
            if found is not None:
                return form.format(found.group(1))
    return None
