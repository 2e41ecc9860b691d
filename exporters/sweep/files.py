"""Writes a heat map of a sweep: PNG, PDF, SVG, CSV, an offline page, and a text that stands for it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...analyzers.planning.sweep import SweepFinding, SweepGrid
from ...analyzers.planning.sweep.index import IndexedSweep
from ...engine.errors import OutputFileError
from ...engine.files.base.input_file import show_path
from ...engine.files.base.output_file import check_writable, write_whole
from ..figures.page import SweepPage
from ..figures.page_style import SweepLook
from ..figures.saving import save_figure
from .figure import draw_sweep
from .figure_multiples import draw_multiples
from .page import render_heat_map
from .report import encode_csv
from .text import describe_figure

_ENDINGS = (".png", ".pdf", ".svg", ".csv", ".html")
TEXT_ENDING = ".alt.txt"


def choose_base(output: Path) -> Path:
    """Return the path that endings are put behind: a name that has one of them loses it."""
    return output.with_suffix("") if output.name.lower().endswith(_ENDINGS) else output


def prepare_output(output: Path) -> Path:
    """Return the base of the files to write, in a folder that is there; one level is made.

    Raises:
        OutputFileError: The folder cannot be written to.
    """
    base = choose_base(output)
    folder = base.parent
    if not folder.exists() and folder.parent.is_dir():
        try:
            folder.mkdir()
        except OSError as error:
            raise OutputFileError(f"{show_path(folder)}: cannot be made: {error.strerror}") from error
    check_writable(base.with_name(f"{base.name}.png"))
    return base


def write_heat_map(
    grid: SweepGrid,
    findings: Sequence[SweepFinding],
    base: Path,
    look: SweepLook,
    *,
    file: Path | None = None,
) -> tuple[SweepPage, tuple[Path, ...]]:
    """Draw a sweep and write its files; return the figure and the files.

    Args:
        grid: The cells.
        findings: What it says.
        base: Their path without an ending.
        look: Style, size and resolution.
        file: The one file to write instead, in the format that its name says.

    Raises:
        OutputFileError: A file cannot be written.
    """
    page = draw_sweep(grid, look)
    if file is not None:
        save_figure(page, file)
        return page, (file,)
    contents = {
        ".csv": encode_csv(grid),
        ".html": render_heat_map(grid, findings),
        TEXT_ENDING: describe_figure(grid, findings).encode(),
    }
    return page, _write(page, contents, base)


def write_multiples(
    sweeps: Sequence[IndexedSweep], base: Path, look: SweepLook, *, file: Path | None = None
) -> tuple[Path, ...]:
    """Draw several sweeps as one figure and write its files, and a text that stands for it; return them.

    Args:
        sweeps: One panel each.
        base: Path of the files without an ending.
        look: Size and resolution.
        file: The one file to write instead, in the format that its name says.

    Raises:
        UsageError: There is none, or there are too many.
        OutputFileError: A file cannot be written.
    """
    page = draw_multiples(sweeps, look)
    if file is not None:
        save_figure(page, file)
        return (file,)
    told = (f"{sweep.name}\n{describe_figure(sweep.grid, sweep.findings)}" for sweep in sweeps)
    return _write(page, {TEXT_ENDING: "\n".join(told).encode()}, base)


def _write(page: SweepPage, others: Mapping[str, bytes], base: Path) -> tuple[Path, ...]:
    """Write a figure in every format, and what goes with it."""
    contents = {".png": page.render("png"), ".pdf": page.render("pdf"), ".svg": page.render("svg"), **others}
    paths = []
    for ending, data in contents.items():
        path = base.with_name(f"{base.name}{ending}")
        write_whole(data, path)
        paths.append(path)
    return tuple(paths)
