"""How many files and connections a process that listens may have open."""

import resource

MOST_DESCRIPTORS = 65_536
"""More than one machine can open connections to one port, as Linux gives out ports by default."""


def allow_many_descriptors() -> int:
    """Raise the limit of open files as far as this user may, and return it.

    Every connection is one, also of a stranger who is refused after seconds only; with all of them taken, an
    agent could open nothing that it reads figures from. What it starts has the same limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
