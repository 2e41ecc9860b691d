"""Which container a process runs in, from its cgroup path."""

import re

_ID = r"([0-9a-f]{12})[0-9a-f]{20,52}"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"(?:docker|cri-containerd|containerd|crio|libpod|nerdctl)[-/:]{_ID}(?:\.scope)?"), "{}"),
    (re.compile(rf"kubepods.*[/:-]{_ID}(?:\.scope)?(?:/|$)"), "{}"),
    (re.compile(r"/lxc(?:\.payload)?[./]([^/]+)"), "lxc {}"),
    (re.compile(r"/machine\.slice/(?:systemd-nspawn@|machine-)([^/]+?)\.(?:service|scope)"), "machine {}"),
    (re.compile(r"/slurm(?:stepd)?[^/]*(?:/[^/]+)*?/job_(\d+)"), "slurm job {}"),
)
"""Paths that Docker, containerd, CRI-O, Podman, Kubernetes, LXC, systemd-nspawn and Slurm make."""


def find_container(cgroups: str) -> str | None:
    """Return the short id or the name of a container; None where the paths name none.

    Args:
        cgroups: Text of /proc/PID/cgroup: lines of `hierarchy:controllers:path`.
    """
    for line in cgroups.splitlines():
        path = line.split(":", 2)[-1]
        for pattern, form in _PATTERNS:
            found = pattern.search(path)
            if found is not None:
                return form.format(found.group(1))
    return None
