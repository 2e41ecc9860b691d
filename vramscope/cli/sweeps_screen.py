"""`vramscope sweep` in a terminal: screens, and from there into the replay of a layout and back."""

from pathlib import Path

from vramscope.analyzers.planning.sweep.index import SweepIndex
from vramscope.engine.errors import InputFileError
from vramscope.engine.settings import Settings
from vramscope.engine.units import GIB
from vramscope.tui.sweep.index_screen import Progress, show_sweeps
from vramscope.tui.sweep.screen import SweepView

from .sweep_replay import SweepReplayOptions, replay_cells
from .sweeps import SweepJob, find_wanted


def walk_through_sweeps(job: SweepJob, settings: Settings, *, config: Path | None) -> int:
    """Show sweeps until the user quits; return the exit code.

    Args:
        job: Folders, capacity and filter.
        settings: What the user set.
        config: Settings file that was named on the command line.

    Raises:
        UsageError: The filter is none, or nothing can be drawn here.
        InputFileError: A folder cannot be read, or there is no sweep in any.
    """
    found: list[SweepIndex] = []

    def read(progress: Progress) -> SweepIndex:
        if not found:
            found.append(find_wanted(job, progress).chosen)
        return found[0]

    begin: SweepView | None = None
    notice = ""
    while True:
        code, asked = show_sweeps(read, settings=settings, begin=begin, notice=notice)
        if asked is None:
            return code
        options = SweepReplayOptions(capacity_bytes=round(job.max_memory_gib * GIB))
        begin = asked.view
        notice = ""
        try:
            at = replay_cells(asked.cells, asked.at, settings=settings, config=config, options=options)
        except InputFileError as error:
            notice = str(error)
        else:
            begin = begin._replace(place=asked.cells[at].place)
