"""What `vramscope modules` reads, prints and writes."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError
from vramscope.engine.model.module_memory import ModuleMemory
from vramscope.engine.settings import Settings

from .frame.progress import ProgressLine

if TYPE_CHECKING:
    from vramscope.tui.modules.profiled import Profiled

PROGRAM = "vramscope modules"
ICICLE = "summary_icicle"


NamedMemory = tuple[str, ModuleMemory]
"""The profile of one rank, and the name of its file or process."""


def print_modules(profiles: Sequence[NamedMemory], settings: Settings, *, depth: int) -> None:
    """Print the profile of each rank, as wide as the terminal, or 80 cells into a pipe.

    Args:
        profiles: Of one rank or several.
        settings: What the user set.
        depth: Levels of the trees.
    """
    from vramscope.exporters.modules.text import describe_module_memory

    from .frame.printing import choose_style, emit

    style = choose_style(settings)
    texts = [describe_module_memory(memory, width=style.width, depth=depth) for _, memory in profiles]
    text = "\n".join(texts)
    emit(text, is_ascii=style.is_ascii)


def print_modules_as_json(profiles: Sequence[NamedMemory]) -> None:
    """Print one JSON object a rank."""
    from vramscope.exporters.json_lines import write_line
    from vramscope.exporters.modules.text import report_module_memory

    for name, memory in profiles:
        write_line(report_module_memory(memory, name), sys.stdout.buffer)


def write_charts(
    profiles: Sequence[NamedMemory], folder: Path, *, has_figures: bool = True, file: Path | None = None
) -> list[Path]:
    """Write pages and figures of each rank; return their paths.

    Args:
        profiles: Of one rank or several.
        folder: Where they go: one rank's into it, several ranks' into a folder each below it.
        has_figures: Whether to draw the icicles too, which takes seconds.
        file: Of one rank, the one file to write instead: the icicle, in the format that its name says.

    Raises:
        OutputFileError: The folder cannot be written to.
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


def _draw_rank(memory: ModuleMemory, place: Path, *, has_figures: bool) -> list[Path]:
    from vramscope.analyzers.breakdown import make_breakdown
    from vramscope.exporters.modules.page import write_sunbursts

    written = write_sunbursts(memory, make_breakdown(memory), place)
    if has_figures:
        written += _draw_icicle(memory, [place / f"{ICICLE}.{ending}" for ending in ("pdf", "svg")])
    return written


def _draw_icicle(memory: ModuleMemory, files: Sequence[Path]) -> list[Path]:
    """Draw the icicle of a rank into each file; return the files, none where its profile has no modules."""
    from vramscope.analyzers.breakdown import choose_basis
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
    """Return the profile of each rank with the name of its file.

    Raises:
        InputFileError: One of them cannot be read or understood, or there is none.
    """
    from vramscope.engine.files.base.input_file import show_path

    return [(show_path(file), memory) for file, memory in read_profiles(path)]


def show_modules(paths: Sequence[Path], settings: Settings) -> int:
    """Show the profiles of files and folders on a screen until the user quits, and return the exit code.

    Raises:
        UsageError: Nothing can be drawn here.
        InputFileError: A profile cannot be read or understood, or there is none.
    """
    from vramscope.tui.modules.screen import show_breakdown

    from .drawing import can_draw

    if not can_draw(settings):
        raise UsageError("--screen needs a terminal that can draw: leave it out for tables, or give --json")
    return show_breakdown(lambda: read_profiled(paths), settings)


def read_profiled(paths: Sequence[Path]) -> "tuple[Profiled, ...]":
    """Return the profiles below files and folders in their order, each by the name of its folder or file.

    Raises:
        InputFileError: One of them cannot be read or understood, or there is none.
    """
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.tui.modules.profiled import Profiled

    found = []
    for path in paths:
        for file, memory in read_profiles(path):
            folder = file if file.is_dir() else file.parent
            name = folder if path.is_dir() and folder != path else path
            found.append(Profiled(show_path(name), memory))
    return tuple(found)


def read_profiles(path: Path) -> list[tuple[Path, ModuleMemory]]:
    """Return the profile of each rank, with its file.

    Raises:
        InputFileError: One of them cannot be read or understood, or there is none.
    """
    from vramscope.engine.files.module_memory import find_profiles, read_module_memory

    return [(file, read_module_memory(file)) for file in find_profiles(path)]
