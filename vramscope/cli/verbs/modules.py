"""`vramscope modules`: memory of a training step by module, as tables, JSON and charts."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from vramscope.engine.errors import HubUnreachableError, InputFileError, UsageError
from vramscope.engine.settings import Settings

from ..frame.emit import can_draw, complain, emit_fitted, emit_json
from ..frame.flags import (
    FigureTarget,
    add_figure_flag,
    add_format_flags,
    add_old_flag,
    build_look_flags,
    duration,
    pick,
    read_old_figure,
    refuse,
    whole,
)
from ..frame.parse import SubParsers, add_verb
from ..frame.progress import ProgressLine
from ..frame.settings import read_settings

if TYPE_CHECKING:
    from vramscope.engine.model import RankSample
    from vramscope.engine.model.sample import ModuleMemory
    from vramscope.engine.viewer.client import Client
    from vramscope.engine.viewer.snapshot import RankModules
    from vramscope.exporters.modules.text import NamedProfile
    from vramscope.tui.modules.profiled import Profiled


DESCRIPTION = (
    "Show memory by module: parameters, gradients, optimizer and activations, measured and computed."
)
EXAMPLES = """\
vramscope modules memory_trace/rank0_dp0_tp0/memory.log
vramscope modules memory_trace --figure charts/    # charts of each rank
vramscope modules memory_trace --screen            # zoom, kinds, points
vramscope modules run1 run2                        # run2 minus run1
vramscope modules --pid 4242                       # a process that trains now
vramscope modules memory_trace --json | jq .breakdown"""
NOTES = """\
It reads module_memory.jsonl and memory.log of `vramscope run --profiling` and SimpleMemoryProfiler, and
memory.log and charts of InternLM and InternEvo.

--figure DIR/ writes sunbursts (HTML) and icicles (PDF, SVG) of each rank; for two runs, an icicle of the
differences and a table (CSV)."""
EXIT_CODES: dict[int | str, str] = {
    0: "done",
    2: "wrong flags, or a file, folder or process that cannot be read",
    4: "a package of an extra is not installed",
    7: "no agent runs, or a process did not answer",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers,
        [build_look_flags(), *common],
        "modules",
        DESCRIPTION,
        examples=EXAMPLES,
        notes=NOTES,
        exit_codes=EXIT_CODES,
        usage="vramscope modules (FILE|DIR... | --pid PID | --job NAME) [flags]",
    )
    parser.add_argument(
        "paths",
        metavar="FILE|DIR",
        type=Path,
        nargs="*",
        help="a profile, or a folder of profiles of ranks; two are compared, --screen shows any number",
    )
    live = parser.add_argument_group("a running job")
    live.add_argument(
        "--pid", metavar="PID", dest="live_pid", type=int, help="measure a step of this process"
    )
    live.add_argument(
        "--job", metavar="NAME", dest="live_job", help="measure all ranks of this job of `vramscope run`"
    )
    live.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration(),
        default="60s",
        help="how long to wait for a step to end (default 60s)",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--screen", action="store_true", help="open a screen: zoom, kinds, points")
    add_figure_flag(output, "draw the icicle")
    for old in ("-o", "--output"):
        add_old_flag(output, old, use="--figure FILE or DIR/", dest="figure", type=read_old_figure)
    output.add_argument("--pages", action="store_true", help="with --figure DIR/: only the sunbursts")
    add_format_flags(
        output,
        text="text: print tables, the default",
        json="print one JSON object for each rank",
        old=("--table", "--text"),
    )
    output.add_argument(
        "--depth", metavar="N", type=whole(1, 64), default=2, help="levels of the printed trees (default 2)"
    )


def run(arguments: Namespace) -> int:
    figure: FigureTarget | None = arguments.figure
    if arguments.pages and (figure is None or not figure.is_folder):
        raise UsageError("--pages needs a folder for the charts: --figure DIR/")
    _check_sources(arguments)
    settings = read_settings(arguments)
    if arguments.screen:
        refuse(
            pick(arguments, ("json", "format", "figure")),
            "does not go with --screen: on the screen, E writes the files",
        )
        return show_modules(arguments.paths, settings)
    if figure is not None:
        figure.check()
    if len(arguments.paths) == 2:
        _compare(arguments, settings)
    else:
        _print(arguments, settings)
    return 0


def _check_sources(arguments: Namespace) -> None:
    """Refuse a command line that names no profile and no process, or both."""
    is_live = arguments.live_pid is not None or arguments.live_job is not None
    if arguments.live_pid is not None and arguments.live_job is not None:
        raise UsageError("--pid does not go with --job: give only one")
    if is_live and arguments.paths:
        raise UsageError("FILE or DIR does not go with --pid or --job, which measure a running process")
    if is_live and arguments.screen:
        raise UsageError("--screen shows files: for a running process open `vramscope` and press 7")
    if not is_live and not arguments.paths:
        raise UsageError("expected FILE or DIR, or --pid PID or --job NAME of a running job")
    if len(arguments.paths) > 2 and not arguments.screen:
        raise UsageError(
            f"{len(arguments.paths)} profiles: expected one, or two to compare; --screen shows more of them"
        )


def _compare(arguments: Namespace, settings: Settings) -> None:
    pairs = pair_profiles(*arguments.paths)
    if arguments.figure is not None:
        _check_one(arguments.figure, len(pairs))
        _print_written(write_differences(pairs, arguments.figure.path, file=arguments.figure.file))
    if arguments.json:
        print_differences_as_json(pairs)
    elif arguments.figure is None or arguments.format == "text":
        print_differences(pairs, settings, depth=arguments.depth)


def _print(arguments: Namespace, settings: Settings) -> None:
    profiles = read_named(arguments.paths[0]) if arguments.paths else _ask(arguments)
    figure: FigureTarget | None = arguments.figure
    if figure is not None:
        _check_one(figure, len(profiles))
        _print_written(write_charts(profiles, figure.path, has_figures=not arguments.pages, file=figure.file))
    if arguments.json:
        print_modules_as_json(profiles)
    elif arguments.figure is None or arguments.format == "text":
        print_modules(profiles, settings, depth=arguments.depth)


def _ask(arguments: Namespace) -> "list[NamedMemory]":
    from vramscope.engine.viewer.client import connect

    with connect() as client:
        return ask_profiles(client, Wanted(arguments.live_pid, arguments.live_job), arguments.timeout)


def _check_one(figure: FigureTarget, charts: int) -> None:
    """Refuse one file for charts of several ranks."""
    if figure.file is not None and charts > 1:
        raise UsageError(
            f"--figure {figure.file}: {charts} ranks have a chart each; name a folder: --figure "
            f"{figure.file.with_suffix('')}/"
        )


def _print_written(paths: "Sequence[Path]") -> None:
    if not paths:
        complain("no file was written: the profile has no modules to draw", program="vramscope modules")
    for path in paths:
        complain(f"wrote {path}", program="vramscope modules")


PROGRAM = "vramscope modules"
ICICLE = "summary_icicle"


# The profile of one rank, and the name of its file or process.
NamedMemory: TypeAlias = "tuple[str, ModuleMemory]"


def print_modules(profiles: Sequence[NamedMemory], settings: Settings, *, depth: int) -> None:
    from vramscope.exporters.modules.text import describe_module_memory

    emit_fitted(
        settings,
        lambda width: "\n".join(
            [describe_module_memory(memory, width=width, depth=depth) for _, memory in profiles]
        ),
    )


def print_modules_as_json(profiles: Sequence[NamedMemory]) -> None:
    from vramscope.exporters.modules.text import report_module_memory

    for name, memory in profiles:
        emit_json(report_module_memory(memory, name))


def write_charts(
    profiles: Sequence[NamedMemory], folder: Path, *, has_figures: bool = True, file: Path | None = None
) -> list[Path]:
    """Write pages and figures of each rank; return their paths.

    Args:
        has_figures: Whether to draw the icicles too, which takes seconds.
    """
    written: list[Path] = []
    with ProgressLine(PROGRAM, "ranks drawn") as progress:
        for done, (name, memory) in enumerate(profiles):
            progress.show_count(done, len(profiles), "sunbursts and icicles" if has_figures else "sunbursts")
            place = folder / _name_folder(name) if len(profiles) > 1 else folder
            written += (
                _draw_rank(memory, place, has_figures=has_figures)
                if file is None
                else _draw_icicle(memory, [file])
            )
    return written


def _draw_rank(memory: "ModuleMemory", place: Path, *, has_figures: bool) -> list[Path]:
    from vramscope.analyzers.modules import make_breakdown
    from vramscope.exporters.modules.page import write_sunbursts

    written = write_sunbursts(memory, make_breakdown(memory), place)
    if has_figures:
        written += _draw_icicle(memory, [place / f"{ICICLE}.{ending}" for ending in ("pdf", "svg")])
    return written


def _draw_icicle(memory: "ModuleMemory", files: Sequence[Path]) -> list[Path]:
    """Draw the icicle of a rank into each file; return the files, none where its profile has no modules."""
    from vramscope.analyzers.modules import choose_basis
    from vramscope.exporters.modules.figure import draw_icicle
    from vramscope.exporters.modules.page import describe_origin, join_kinds

    tree = join_kinds(memory, "summary_sunburst")
    if tree is None:
        return []
    basis = choose_basis(tree)
    title = f"Memory by module, {basis}"
    title += "" if memory.rank is None else f", rank {memory.rank.rank}"
    for file in files:
        draw_icicle(title, describe_origin(memory), tree, basis, file)
    return list(files)


def _name_folder(name: str) -> str:
    """Return the folder of one rank's charts: that of its file, or the name of its process."""
    place = Path(name).absolute()
    folder = (place if place.is_dir() else place.parent).name if "/" in name else name
    return "_".join(folder.split())


def read_named(path: Path) -> list[NamedMemory]:
    from vramscope.engine.files.base.input_file import show_path

    return [(show_path(file), memory) for file, memory in read_profiles(path)]


def show_modules(paths: Sequence[Path], settings: Settings) -> int:
    from vramscope.tui.modules.screen import show_breakdown

    if not can_draw(settings):
        raise UsageError("--screen needs a terminal that can draw; leave it out for tables, or use --json")
    return show_breakdown(lambda: read_profiled(paths), settings)


def read_profiled(paths: Sequence[Path]) -> "tuple[Profiled, ...]":
    """Return the profiles in files and folders, in this order, each with the name of its folder or file."""
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.tui.modules.profiled import Profiled

    found = []
    for path in paths:
        for file, memory in read_profiles(path):
            folder = file if file.is_dir() else file.parent
            name = folder if path.is_dir() and folder != path else path
            found.append(Profiled(show_path(name), memory))
    return tuple(found)


def read_profiles(path: Path) -> "list[tuple[Path, ModuleMemory]]":
    from vramscope.engine.files.module_memory import find_profiles, read_module_memory

    return [(file, read_module_memory(file)) for file in find_profiles(path)]


FIRST_SAMPLE_WITHIN_S = 5.0


class Wanted(NamedTuple):
    """The process, or the job, whose modules are asked for."""

    pid: int | None
    job: str | None

    @property
    def name(self) -> str:
        return f"process {self.pid}" if self.job is None else f"job {self.job}"

    def matches(self, rank: "RankSample") -> bool:
        return rank.pid == self.pid if self.job is None else rank.job == self.job


def ask_profiles(client: "Client", wanted: Wanted, timeout_s: float) -> "list[tuple[str, ModuleMemory]]":
    """Return a profile of each process once it has followed a step, with the name of the process."""

    from vramscope.exporters.modules.text import COST, name_process

    ranks = _find_ranks(client, wanted)
    names = ", ".join(name_process(rank) for rank in ranks)
    complain(f"measuring a step of {names}; this {COST}", program="vramscope modules")
    asking = _Asking(client, [rank.pid for rank in ranks], timeout_s)
    found = asking.wait()
    for pid, reason in asking.refused.items():
        complain(f"process {pid}: {reason}" if str(pid) not in reason else reason)
    if not found:
        raise UsageError(next(iter(asking.refused.values())))
    return [(name_process(rank), found[rank.pid]) for rank in ranks if rank.pid in found]


class _Asking:
    """Asks processes for their modules, again and again until each has measured a step."""

    def __init__(self, client: "Client", pids: list[int], timeout_s: float) -> None:
        self.refused: dict[int, str] = {}
        self._client = client
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        self._found: dict[int, ModuleMemory] = {}
        self._seen: dict[int, int] = dict.fromkeys(pids, 0)
        for pid in pids:
            client.ask_modules(pid, step_end_within_s=timeout_s)

    def wait(self) -> "dict[int, ModuleMemory]":
        """Return the profiles by process; the reasons of those without are in `refused`."""
        while self._open:
            left_s = self._deadline_s - time.monotonic()
            if left_s <= 0:
                pids = ", ".join(map(str, sorted(self._open)))
                raise HubUnreachableError(
                    f"process {pids} ended no step within {self._timeout_s:g} s: give a longer --timeout if "
                    "steps are longer, or check that the job still trains"
                )
            for answer in self._client.snapshot(timeout_s=min(left_s, 0.5)).modules:
                if answer.pid in self._open and answer.number != self._seen[answer.pid]:
                    self._take(answer)
        return self._found

    @property
    def _open(self) -> set[int]:
        return set(self._seen) - set(self._found) - set(self.refused)

    def _take(self, answer: "RankModules") -> None:
        from vramscope.exporters.modules.text import has_step

        self._seen[answer.pid] = answer.number
        if answer.refusal is not None:
            self.refused[answer.pid] = answer.refusal
        elif answer.memory is not None and has_step(answer.memory):
            self._found[answer.pid] = answer.memory
        else:
            self._client.ask_modules(answer.pid, step_end_within_s=self._timeout_s)


def _find_ranks(client: "Client", wanted: Wanted) -> "list[RankSample]":
    """Return the wanted processes that still run."""

    from vramscope.exporters.modules.text import name_process

    deadline_s = time.monotonic() + FIRST_SAMPLE_WITHIN_S
    sample = client.snapshot(timeout_s=0.2).sample
    while sample is None and time.monotonic() < deadline_s:
        sample = client.snapshot(timeout_s=0.2).sample
    reporting = [] if sample is None else [rank for rank in sample.ranks if rank.state != "ended"]
    found = [rank for rank in reporting if wanted.matches(rank)]
    if found:
        return found
    others = ", ".join(f"{rank.pid} ({name_process(rank)})" for rank in reporting[:8])
    hint = (
        f"these processes do: {others}"
        if others
        else "start the job with `vramscope run`, or use `vramscope attach`"
    )
    raise UsageError(f"{wanted.name} does not report to the agent; {hint}")


DIFFERENCE_ICICLE = "difference_icicle"
TABLE = "differences.csv"
Pair: TypeAlias = "tuple[NamedProfile, NamedProfile]"


def pair_profiles(first: Path, second: Path) -> list[Pair]:
    """Return the profiles of two runs in pairs, by rank where both have several; note who has no partner."""
    ones = _read_by_rank(first)
    others = _read_by_rank(second)
    if len(ones) == len(others) == 1:
        return list(zip(ones.values(), others.values(), strict=True))
    shared = [rank for rank in ones if rank in others]
    if not shared:
        raise InputFileError(f"{first} and {second} have no rank in common: name the folders of two ranks")
    for path, run in ((first, ones), (second, others)):
        lone = [str(rank) for rank in run if rank not in shared]
        if lone:
            complain(f"{path}: rank {', '.join(lone)} is left out: the other run has no such rank")
    return [(ones[rank], others[rank]) for rank in shared]


def print_differences(pairs: list[Pair], settings: Settings, *, depth: int) -> None:
    from vramscope.exporters.modules.text import describe_difference

    emit_fitted(
        settings,
        lambda width: "\n".join(describe_difference(*pair, width=width, depth=depth) for pair in pairs),
    )


def print_differences_as_json(pairs: list[Pair]) -> None:
    from vramscope.exporters.modules.text import report_difference

    for pair in pairs:
        emit_json(report_difference(*pair))


def write_differences(pairs: list[Pair], folder: Path, *, file: Path | None = None) -> list[Path]:
    from vramscope.analyzers.modules import compare_profiles
    from vramscope.engine.files.base.output_file import write_files
    from vramscope.exporters.modules.figure import draw_difference_icicle
    from vramscope.exporters.modules.text import caption_difference, write_difference_table

    written: list[Path] = []
    for first, second in pairs:
        place = folder / Path(second.name).name if len(pairs) > 1 else folder
        comparison = compare_profiles(first.memory, second.memory)
        if file is None:
            table = write_difference_table(comparison.tree, comparison.basis)
            written += write_files({TABLE: table.encode()}, place)
        title = f"Memory by module, {comparison.basis}: {second.name} against {first.name}"
        subtitle = caption_difference(comparison.tree, comparison.basis, first.memory, second.memory)
        for path in (
            [place / f"{DIFFERENCE_ICICLE}.{ending}" for ending in ("pdf", "svg")] if file is None else [file]
        ):
            draw_difference_icicle(title, subtitle, comparison.tree, path)
            written.append(path)
    return written


def _read_by_rank(path: Path) -> "dict[object, NamedProfile]":
    """Return the profiles of a run by rank, or by their number where a profile has no rank."""

    from vramscope.engine.files.base.input_file import show_path
    from vramscope.exporters.modules.text import NamedProfile

    found: dict[object, NamedProfile] = {}
    for number, (file, memory) in enumerate(read_profiles(path)):
        folder = file if file.is_dir() else file.parent
        name = path if folder == path or not path.is_dir() else folder
        rank = number if memory.rank is None else memory.rank.rank
        key = rank if rank not in found else (rank, folder.name)
        found[key] = NamedProfile(show_path(name), memory)
    return found
