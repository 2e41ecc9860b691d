"""The live producer of this node: NVIDIA devices, whatever plug-ins know, and the host."""

import os
import socket
from typing import TYPE_CHECKING

from ..sources.source import Source
from ..text import make_printable
from .live import LiveProducer

if TYPE_CHECKING:
    from ..ranks.roster import Roster

MOST_NAME_CHARS = 200
"""Of a chosen name; what is longer is cut."""


def node_name() -> str:
    """Return the name of this node: `VRAMSCOPE_NODE`, else the first label of the host name."""
    chosen = make_printable(os.environ.get("VRAMSCOPE_NODE", ""), MOST_NAME_CHARS).strip()
    return chosen or make_printable(socket.gethostname().partition(".")[0]) or "localhost"


def open_node(
    *,
    interval_s: float = 1.0,
    memory_interval_s: float = 0.1,
    has_plugins: bool = True,
    roster: "Roster | None" = None,
) -> LiveProducer:
    """Return a producer of this node's live samples, not yet started.

    Args:
        interval_s: Seconds between samples.
        memory_interval_s: Seconds between two readings of device memory within a sample.
        has_plugins: Look for sources in `vramscope.sources` too.
        roster: Training processes that report to this node's hub.
    """
    from ..sources.host import HostReader
    from ..sources.nvml import NvmlSource

    sources: list[Source] = [NvmlSource()]
    notes: list[str] = []
    if has_plugins:
        from ..plugins import make_sources

        plugins = make_sources()
        sources += plugins.made
        notes += plugins.notes
    return LiveProducer(
        sources,
        HostReader(),
        node=node_name(),
        interval_s=interval_s,
        memory_interval_s=memory_interval_s,
        notes=notes,
        roster=roster,
    )
