"""`vramscope sweep`: every sweep over TP and PP in some folders, as a screen, a table or a figure."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError
from vramscope.engine.units import GIB

from ..frame.emit import can_draw
from ..frame.flags import (
    CAPACITY,
    Reading,
    add_figure_flag,
    add_fit_flag,
    add_format_flags,
    add_old_flag,
    between,
    build_look_flags,
    choose_fit_code,
)
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import read_settings

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

    from ..sweeps import SweepJob


DESCRIPTION = (
    "List every sweep over TP and PP in some folders: what fits, what is best, and the error of the theory."
)
EXAMPLES = """\
vramscope sweep memory_traces_scaling log
vramscope sweep . --filter 'model=485B gpus>=1024 state=oom'
vramscope sweep . --json | jq '.sweeps[] | [.name, .best.actual_gb]'
vramscope sweep . --figure sweeps.pdf"""
NOTES = """\
Traces and logs are matched by model and world size, or by their content; the output says how. A terminal gets
screens, a pipe gets a table.

GB in JSON keys means 2^30 bytes; tables and figures say GiB."""
EXIT_CODES: dict[int | str, str] = {
    0: "done",
    2: "wrong flags, or a folder that cannot be read or has no sweep",
    3: "in one of them no run fits --capacity, and --fail-on unfit is given",
    4: "a package of an extra is not installed",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parents = [build_look_flags(), *common]
    parser = add_verb(
        subparsers, parents, "sweep", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    parser.add_argument(
        "folders", metavar="DIR", type=Path, nargs="+", help="a folder of traces, of logs, or a tree of both"
    )
    sweep = parser.add_argument_group("sweep")
    add_sweep_flags(sweep)
    sweep.add_argument(
        "--filter",
        metavar="WORDS",
        default="",
        help="list only these: model=485B, gpus=8192 (or >=, <=), state=oom, words in the name",
    )
    output = parser.add_argument_group("output")
    add_format_flags(
        output,
        text="text: print a table, also in a terminal",
        json="print one JSON object",
        old=("--table",),
    )
    add_fit_flag(output)
    add_figure_flag(output, "draw all sweeps in one figure")
    add_old_flag(output, "--output", use="--figure FILE or DIR/", dest="output", type=Path)
    parser.set_defaults(output=None)


def run(arguments: Namespace) -> int:
    from ..sweeps import print_sweeps

    is_json = getattr(arguments, "json", False)
    base = arguments.output
    figure = arguments.figure
    is_drawn = base is not None or figure is not None
    is_screen = not (is_json or is_drawn) and arguments.format is None and arguments.fail_on is None
    settings = read_settings(arguments)
    job = read_job(arguments)
    if is_screen and can_draw(settings):
        from ..sweeps import walk_through_sweeps

        return walk_through_sweeps(job, settings, config=getattr(arguments, "config", None))
    if figure is not None:
        figure.check()
        base = figure.path / "sweeps" if figure.is_folder else base
    file = None if figure is None else figure.file
    fits = print_sweeps(job, settings, base=base, file=file, is_json=is_json)
    return choose_fit_code(arguments, does_fit=fits)


def read_job(arguments: Namespace) -> "SweepJob":
    from ..sweeps import SweepJob

    folders = [path.expanduser() for path in arguments.folders]
    return SweepJob(folders, choose_capacity(arguments), arguments.filter, arguments.iteration)


DEFAULT_CAPACITY_GIB = 80.0
LEAST_CAPACITY_GIB = 0.0009
MOST_CAPACITY_GIB = 1e6


def add_sweep_flags(group: "_ArgumentGroup") -> None:
    """Add the flags that verbs about sweeps share; the old `--max-memory` is in GiB."""
    group.add_argument(
        "--capacity",
        metavar="SIZE",
        type=Reading(_read_capacity),
        help=f"memory of each GPU (default {DEFAULT_CAPACITY_GIB:g}GiB)",
    )
    add_old_flag(
        group,
        "--max-memory",
        use="--capacity SIZE, for example 80GiB",
        dest="max_memory",
        type=between(LEAST_CAPACITY_GIB, MOST_CAPACITY_GIB, flag="--max-memory"),
    )
    group.add_argument(
        "--iteration",
        metavar="N",
        type=Reading(_read_iteration),
        help="use the peak of iteration N, counted from 0 (default: the highest of all iterations)",
    )


def choose_capacity(arguments: Namespace) -> float:
    """Return the memory of each card in GiB."""
    old: float | None = getattr(arguments, "max_memory", None)
    if old is not None and arguments.capacity is not None:
        raise UsageError("--max-memory does not go with --capacity: give --capacity alone")
    given: float | None = arguments.capacity if old is None else old
    return DEFAULT_CAPACITY_GIB if given is None else given


def _read_capacity(text: str) -> float:
    capacity_gib = CAPACITY(text) / GIB
    if not LEAST_CAPACITY_GIB <= capacity_gib <= MOST_CAPACITY_GIB:
        raise UsageError(f"expected 1MiB to {MOST_CAPACITY_GIB:,.0f}GiB, for example 80GiB")
    return capacity_gib


def _read_iteration(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise UsageError("expected a whole number, 0 or more")
    return int(text)
