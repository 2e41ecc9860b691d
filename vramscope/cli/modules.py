"""What `vramscope modules` reads, prints and writes."""

import sys
from pathlib import Path

from vramscope.engine.model.module_memory import ModuleMemory
from vramscope.engine.settings import Settings

ICICLE = "summary_icicle"


def print_modules(path: Path, settings: Settings, *, depth: int) -> None:
    """Print the profile of each rank, as wide as the terminal, or 80 cells into a pipe.

    Args:
        path: A file of a profile, or a folder with some.
        settings: What the user set.
        depth: Levels of the trees.

    Raises:
        InputFileError: It cannot be read or understood.
    """
    from vramscope.exporters.module_memory_text import describe_module_memory
    from vramscope.exporters.plain_text import make_ascii

    from .printing import choose_style

    style = choose_style(settings)
    texts = [
        describe_module_memory(memory, width=style.width, depth=depth) for _, memory in read_profiles(path)
    ]
    text = "\n".join(texts)
    sys.stdout.write(make_ascii(text) if style.is_ascii else text)


def print_modules_as_json(path: Path) -> None:
    """Print one JSON object a rank.

    Raises:
        InputFileError: The file or folder cannot be read or understood.
    """
    from vramscope.engine.readers.input_file import show_path
    from vramscope.exporters.json_lines import write_line
    from vramscope.exporters.module_memory_report import report_module_memory

    for file, memory in read_profiles(path):
        write_line(report_module_memory(memory, show_path(file)), sys.stdout.buffer)


def write_charts(path: Path, folder: Path) -> list[Path]:
    """Write pages and figures of each rank; return their paths.

    Args:
        path: A file of a profile, or a folder with some.
        folder: Where they go: one rank's into it, several ranks' into a folder each below it.

    Raises:
        InputFileError: The profile cannot be read or understood.
        OutputFileError: The folder cannot be written to.
    """
    from vramscope.analyzers.breakdown import choose_basis, make_breakdown
    from vramscope.exporters.figures.icicle import draw_icicle
    from vramscope.exporters.pages.sunburst_files import describe_origin, join_kinds, write_sunbursts

    profiles, written = read_profiles(path), []
    for file, memory in profiles:
        place = folder / file.absolute().parent.name if len(profiles) > 1 else folder
        breakdown = make_breakdown(memory)
        written += write_sunbursts(memory, breakdown, place)
        tree = join_kinds(breakdown, "summary_sunburst")
        if tree is not None:
            basis = choose_basis(tree)
            title = f"Memory by module, {basis}"
            title += "" if memory.rank is None else f", rank {memory.rank.rank}"
            for ending in ("pdf", "svg"):
                figure = place / f"{ICICLE}.{ending}"
                draw_icicle(title, describe_origin(memory), tree, basis, figure)
                written.append(figure)
    return written


def read_profiles(path: Path) -> list[tuple[Path, ModuleMemory]]:
    """Return the profile of each rank, with its file.

    Raises:
        InputFileError: One of them cannot be read or understood, or there is none.
    """
    from vramscope.engine.readers.module_memory import find_profiles, read_module_memory

    return [(file, read_module_memory(file)) for file in find_profiles(path)]
