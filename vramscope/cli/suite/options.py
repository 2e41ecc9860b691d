"""What the words of a verb of the suite ask for."""

from pathlib import Path
from typing import Literal, NamedTuple

from vramscope.engine.model import Severity
from vramscope.exporters.reports.log import MAX_SNAPSHOTS
from vramscope.memory.selection import Selection

from ..frame.figure_flag import FigureTarget

Format = Literal["json", "text"]


class WatchOptions(NamedTuple):
    """Flags that every verb of the suite has, checked."""

    verb: str
    duration_s: float | None
    """How long to watch; None until Ctrl-C, or to the end of a file."""
    interval_s: float
    """From one snapshot to the next."""
    selection: Selection = Selection()
    input: Path | None = None
    capacity_bytes: int | None = None
    output: Path | None = None
    format: Format | None = None
    figure: FigureTarget | None = None
    fail_on: Severity | None = None
    every_s: float | None = None
    archive: Path | None = None
    max_snapshots: int = MAX_SNAPSHOTS
    is_told: bool = False
    """Whether findings are said on stderr as they come."""
