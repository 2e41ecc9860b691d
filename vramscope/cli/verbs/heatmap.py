"""`vramscope heatmap`: a sweep over TP and PP as a figure and as text."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from ..frame.emit import complain
from ..frame.flags import (
    FigureTarget,
    add_figure_flag,
    add_figure_size_flags,
    add_fit_flag,
    add_format_flags,
    add_old_flag,
    build_look_flags,
    choose_fit_code,
    pick,
    refuse,
)
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import read_settings
from .sweep import add_sweep_flags, choose_capacity

if TYPE_CHECKING:
    from ..sweeps import HeatMapJob

DESCRIPTION = (
    "Draw the peak memory of a sweep over TP and PP: what fits, what fails, and the error of the theory."
)
EXAMPLES = """\
vramscope heatmap --memory-dir traces/485B \\
    --log-dir log/CONFIG_SWEEP_WS8192_485_20250726_012803 --figure heat/
vramscope heatmap --memory-dir traces/485B --log-dir log --json | jq .best
vramscope heatmap --memory-dir traces/485B --figure heat.png --style original
vramscope heatmap --batch sweep.toml"""
NOTES = """\
Peaks come from the memory traces of runs, failures from their logs. --figure DIR/ writes the figure (PNG,
PDF, SVG), its cells (CSV), an offline page (HTML) and a text version; --figure FILE writes only the figure.

GB in JSON keys means 2^30 bytes; the text and the figures say GiB."""
EXIT_CODES: dict[int | str, str] = {
    0: "done",
    2: "wrong flags, a folder that cannot be read, or logs of other runs than the traces",
    3: "no run fits --capacity, and --fail-on unfit is given",
    4: "a package of an extra is not installed",
}
STYLES = ("usenix", "original")
_IN_BATCH = (
    "memory_dir",
    "log_dir",
    "capacity",
    "max_memory",
    "iteration",
    "figure",
    "output",
    "figsize",
    "dpi",
    "style",
)


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers,
        [build_look_flags(), *common],
        "heatmap",
        DESCRIPTION,
        examples=EXAMPLES,
        notes=NOTES,
        exit_codes=EXIT_CODES,
        usage="vramscope heatmap (--memory-dir DIR | --batch FILE.toml) [flags]",
    )
    sweep = parser.add_argument_group("sweep")
    sweep.add_argument("--memory-dir", metavar="DIR", type=Path, help="folder of the memory traces")
    sweep.add_argument(
        "--log-dir", metavar="DIR", type=Path, help="folder of the sweep's logs, or of several sweeps"
    )
    add_sweep_flags(sweep)
    output = parser.add_argument_group("output")
    add_figure_flag(output, "draw the heat map")
    add_old_flag(output, "--output", use="--figure DIR/", dest="output", type=Path)
    parser.set_defaults(max_memory=None, output=None)
    add_figure_size_flags(output, size="one column of a paper", dots="the PNG (default 600)")
    output.add_argument("--style", choices=STYLES, help="look of the figure (default usenix)")
    output.add_argument(
        "--batch", metavar="FILE.toml", type=Path, help="draw all figures that this file describes"
    )
    add_fit_flag(output)
    add_format_flags(output, text="text is the default", json="print one JSON object")


def run(arguments: Namespace) -> int:
    from vramscope.analyzers.planning.sweep.model import does_anything_fit

    from ..sweeps import draw_heat_map, read_batch

    is_json = getattr(arguments, "json", False)
    if arguments.batch is None:
        job = _read_flags(arguments, is_json=is_json)
    else:
        refuse(pick(arguments, _IN_BATCH), "does not go with --batch: set it in the file")
        job = read_batch(arguments.batch)
    grid = draw_heat_map(job, read_settings(arguments), is_json=is_json)
    return choose_fit_code(arguments, does_fit=does_anything_fit(grid))


def _read_flags(arguments: Namespace, *, is_json: bool) -> "HeatMapJob":
    from vramscope.exporters.figures.page import DPI
    from vramscope.exporters.sweep.look import SweepLook

    from ..sweeps import HeatMapJob, Variant

    if arguments.memory_dir is None:
        raise UsageError("--memory-dir is missing: name the folder of the memory traces")
    max_memory_gib = choose_capacity(arguments)
    size_in = None if arguments.figsize is None else tuple(arguments.figsize)
    look = SweepLook(arguments.style or "usenix", size_in, int(arguments.dpi or DPI))
    if arguments.figure is None and arguments.output is None and not is_json:
        complain("no figure is written: add --figure FILE or --figure DIR/", program="vramscope heatmap")
    variants = [] if arguments.output is None else [Variant(arguments.output, look)]
    figure: FigureTarget | None = arguments.figure
    if figure is not None:
        figure.check()
        variants.append(
            Variant(figure.path / "heatmap" if figure.is_folder else figure.path, look, figure.file)
        )
    return HeatMapJob(
        arguments.memory_dir, arguments.log_dir, max_memory_gib, tuple(variants), arguments.iteration
    )
