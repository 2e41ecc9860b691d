"""What `vramscope sweep` does without a screen: the table, the JSON object and the figure of an index."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vramscope.analyzers.planning.sweep.index import SweepIndex, filter_sweeps, sort_sweeps
from vramscope.analyzers.planning.sweep.model import does_anything_fit
from vramscope.engine.settings import Settings
from vramscope.sweeps.indexing import Progress, index_sweeps

from .frame.diagnostics import complain
from .frame.progress import ProgressLine

PROGRAM = "vramscope sweep"


class SweepJob(NamedTuple):
    """Which sweeps are wanted."""

    roots: Sequence[Path]
    max_memory_gib: float
    filter_text: str
    iteration: int | None = None
    """Whose peak is read; None for the highest of all iterations."""


class WantedSweeps(NamedTuple):
    """The sweeps that are wanted, of those that were found."""

    chosen: SweepIndex
    found: int


def find_wanted(job: SweepJob, on_progress: Progress = lambda done, total: None) -> WantedSweeps:
    """Return the sweeps that a job asks for, by name.

    Args:
        job: Folders, capacity and filter.
        on_progress: Told how many configurations are read, and of how many.

    Raises:
        UsageError: The filter is none.
        InputFileError: A folder cannot be read, or there is no sweep in any.
    """
    filter_sweeps((), job.filter_text)  # what is wrong with it is told before anything is read
    index = index_sweeps(job.roots, job.max_memory_gib, iteration=job.iteration, on_progress=on_progress)
    wanted = filter_sweeps(sort_sweeps(index.sweeps, "sweep"), job.filter_text)
    return WantedSweeps(SweepIndex(tuple(wanted), index.notes), len(index.sweeps))


def print_sweeps(
    job: SweepJob, settings: Settings, *, base: Path | None, file: Path | None = None, is_json: bool
) -> bool | None:
    """Read the sweeps, draw them where that is asked for, and print what they are.

    Returns whether something that ran fits in each of them; None where that is not known.

    Args:
        job: Folders, capacity and filter.
        settings: What the user set.
        base: Path of the files of the figure without an ending; None for none.
        file: One file of the figure instead, in the format that its name says.
        is_json: Print one JSON object in place of the table.

    Raises:
        UsageError: The filter is none, or lets nothing pass that could be drawn.
        InputFileError: A folder cannot be read, or there is no sweep in any.
        OutputFileError: A file cannot be written.
    """
    base = None if base is None else _prepare(base)
    with ProgressLine(PROGRAM, "layouts read") as progress:
        wanted = find_wanted(job, progress.show_count)
    files = () if base is None and file is None else _draw(wanted, base or Path(), file)
    if is_json:
        from vramscope.exporters.json_lines import write_line
        from vramscope.exporters.sweep.report import report_index

        report = report_index(
            wanted.chosen, job.max_memory_gib, found=wanted.found, files=tuple(map(str, files))
        )
        write_line(report, sys.stdout.buffer)
        return _do_fit(wanted)
    _print_table(wanted, settings)
    for note in wanted.chosen.notes:
        complain(note, program=PROGRAM)
    for path in files:
        print(path)
    return _do_fit(wanted)


def _do_fit(wanted: WantedSweeps) -> bool | None:
    fits = {does_anything_fit(sweep.grid) for sweep in wanted.chosen.sweeps}
    return False if False in fits else None if None in fits else True


def _prepare(output: Path) -> Path:
    from vramscope.exporters.sweep.page import prepare_output

    return prepare_output(output)


def _draw(wanted: WantedSweeps, base: Path, file: Path | None) -> tuple[Path, ...]:
    from vramscope.exporters.figures.page import SweepLook
    from vramscope.exporters.sweep.page import write_multiples

    return write_multiples(wanted.chosen.sweeps, base, SweepLook(), file=file)


def _print_table(wanted: WantedSweeps, settings: Settings) -> None:
    from vramscope.exporters.sweep.text import describe_index

    from .frame.printing import choose_style, emit

    style = choose_style(settings)
    text = describe_index(wanted.chosen, style.width, found=wanted.found)
    emit(text, is_ascii=style.is_ascii)
