"""What `vramscope heatmap` does: reads a sweep, writes its figures, says what it tells."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vramscope.analyzers.planning.sweep import SweepGrid
from vramscope.engine.settings import Settings
from vramscope.exporters.figures.page import SweepLook
from vramscope.exporters.sweep.report import report_sweep
from vramscope.exporters.sweep.text import describe_findings, describe_hidden, describe_skipped
from vramscope.sweeps.loading import LoadedSweep, load_sweep

from .frame.diagnostics import complain
from .frame.printing import choose_style, emit, is_ascii
from .frame.progress import ProgressLine

PROGRAM = "vramscope heatmap"


class Variant(NamedTuple):
    """One figure of a sweep."""

    base: Path
    """Of the files, without an ending."""
    look: SweepLook
    file: Path | None = None
    """The one file to write instead, in the format that its name says."""


class HeatMapJob(NamedTuple):
    """A sweep and the figures of it."""

    memory_dir: Path
    log_dir: Path | None
    max_memory_gib: float
    variants: tuple[Variant, ...]
    iteration: int | None = None
    """Whose peak is drawn; None for the highest of all iterations."""


def draw_heat_map(job: HeatMapJob, settings: Settings, *, is_json: bool) -> SweepGrid:
    """Read a sweep, draw its figures, print what it says and return it.

    Args:
        job: What to do.
        settings: What the user set.
        is_json: Print one JSON object in place of text.

    Raises:
        InputFileError: A folder cannot be read, or holds no sweep.
        OutputFileError: A file cannot be written.
    """
    variants = _prepare(job.variants)
    with ProgressLine(PROGRAM, "layouts read") as progress:
        loaded = load_sweep(
            job.memory_dir,
            job.log_dir,
            job.max_memory_gib,
            iteration=job.iteration,
            on_progress=progress.show_count,
        )
    files = _draw_all(loaded, variants)
    if is_json:
        from vramscope.exporters.json_lines import write_line

        write_line(
            report_sweep(loaded.grid, loaded.findings, loaded.skipped, tuple(map(str, files))),
            sys.stdout.buffer,
        )
        return loaded.grid
    _print_findings(loaded, settings)
    for line in (*loaded.grid.notes, *describe_hidden(loaded.grid), *describe_skipped(loaded.skipped)):
        complain(line, program=PROGRAM)
    for path in files:
        emit(f"{path}\n", is_ascii=is_ascii(settings))
    return loaded.grid


def _prepare(variants: Sequence[Variant]) -> list[Variant]:
    """Return the figures with the folder of each at hand, before anything is read."""
    if not variants:
        return []
    from vramscope.exporters.sweep.page import prepare_output

    return [
        variant if variant.file is not None else variant._replace(base=prepare_output(variant.base))
        for variant in variants
    ]


def _draw_all(loaded: LoadedSweep, variants: Sequence[Variant]) -> list[Path]:
    if not variants:
        return []
    from vramscope.exporters.sweep.page import write_heat_map

    files: list[Path] = []
    with ProgressLine(PROGRAM, "figures drawn", is_eager=len(variants) > 1) as progress:
        for done, variant in enumerate(variants):
            progress.show_count(done, len(variants))
            files += write_heat_map(
                loaded.grid, loaded.findings, variant.base, variant.look, file=variant.file
            )[1]
        progress.show_count(len(variants), len(variants))
    return files


def _print_findings(loaded: LoadedSweep, settings: Settings) -> None:
    style = choose_style(settings)
    emit(describe_findings(loaded.grid, loaded.findings, style.width), is_ascii=style.is_ascii)
