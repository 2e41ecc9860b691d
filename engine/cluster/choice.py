"""What is followed where much could be: which nodes, by their names, and which of their devices."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from ..errors import UsageError

MOST_PATTERNS = 256
MOST_SHOWN = 8
_PORT = re.compile(r":\d+$", re.ASCII)


class Choice(NamedTuple):
    """Nodes and devices that are followed; nothing named means all."""

    nodes: tuple[str, ...] = ()
    """Patterns with `*` and `?`, of which a name must match one."""
    devices: tuple[str, ...] = ()
    """As in `DeviceSelection.words`."""

    def wants_node(self, name: str) -> bool:
        """Return whether a node is followed, by its name: with what stands around the host, or without."""
        if not self.nodes:
            return True
        whole = name.casefold()
        host = _PORT.sub("", whole)
        return any(
            fnmatchcase(form, pattern)
            for form in (whole, host, re.split("[/@]", host)[-1])
            for pattern in self.nodes
        )


ALL = Choice()
"""Everything is followed."""


def parse_node_patterns(text: str) -> tuple[str, ...]:
    """Return the patterns of a list with commas.

    Raises:
        UsageError: One is empty, or there are too many.
    """
    patterns = tuple(word.strip().casefold() for word in text.split(","))
    if not all(pattern and pattern.isprintable() for pattern in patterns):
        raise UsageError(f"--nodes {text!r}: expected names of nodes with * and ?, as 'gpu1*,n7'")
    if len(patterns) > MOST_PATTERNS:
        raise UsageError(f"--nodes names {len(patterns)} patterns: expected at most {MOST_PATTERNS}")
    return patterns


def explain_no_node(choice: Choice, names: Sequence[str]) -> str:
    """Return in one sentence that none of these nodes is followed."""
    known = ", ".join([*names[:MOST_SHOWN], *(["…"] if len(names) > MOST_SHOWN else [])])
    return f"no node matches --nodes {','.join(choice.nodes)}: there are {known}"
