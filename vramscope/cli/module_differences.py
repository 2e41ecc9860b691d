"""`vramscope modules RUN1 RUN2`: two profiles, or the ranks of two runs, held against each other."""

import sys
from pathlib import Path

from vramscope.engine.errors import InputFileError
from vramscope.engine.settings import Settings
from vramscope.exporters.modules.text import (
    NamedProfile,
    caption_difference,
    describe_difference,
    report_difference,
    write_difference_table,
)

from .frame.diagnostics import complain

ICICLE = "difference_icicle"
TABLE = "differences.csv"
Pair = tuple[NamedProfile, NamedProfile]


def pair_profiles(first: Path, second: Path) -> list[Pair]:
    """Return the profiles of two runs in pairs: rank by rank where both have several; say who has no partner.

    Raises:
        InputFileError: A profile cannot be read or understood, or no rank is in both.
    """
    ones = _read_by_rank(first)
    others = _read_by_rank(second)
    if len(ones) == len(others) == 1:
        return list(zip(ones.values(), others.values(), strict=True))
    shared = [rank for rank in ones if rank in others]
    if not shared:
        raise InputFileError(f"{first} and {second} have no rank in common: give the folders of two ranks")
    for path, run in ((first, ones), (second, others)):
        lone = [str(rank) for rank in run if rank not in shared]
        if lone:
            complain(f"{path}: rank {', '.join(lone)} has no partner and is left out")
    return [(ones[rank], others[rank]) for rank in shared]


def print_differences(pairs: list[Pair], settings: Settings, *, depth: int) -> None:
    """Print what the second of each pair has more or less.

    Args:
        pairs: Of profiles.
        settings: What the user set.
        depth: Levels of the modules that are told.
    """

    from .frame.printing import choose_style, emit

    style = choose_style(settings)
    text = "\n".join(describe_difference(*pair, width=style.width, depth=depth) for pair in pairs)
    emit(text, is_ascii=style.is_ascii)


def print_differences_as_json(pairs: list[Pair]) -> None:
    """Print one JSON object a pair."""
    from vramscope.exporters.json_lines import write_line

    for pair in pairs:
        write_line(report_difference(*pair), sys.stdout.buffer)


def write_differences(pairs: list[Pair], folder: Path, *, file: Path | None = None) -> list[Path]:
    """Write figures and tables of each pair; return their paths.

    Args:
        pairs: Of profiles.
        folder: Where they go: of one pair into it, of several into a folder each below it.
        file: Of one pair, the one file to write instead: the icicle, in the format that its name says.

    Raises:
        OutputFileError: The folder cannot be written to.
    """
    from vramscope.analyzers.breakdown import compare_profiles
    from vramscope.engine.files.base.output_file import write_files
    from vramscope.exporters.modules.figure import draw_difference_icicle

    written: list[Path] = []
    for first, second in pairs:
        place = folder / Path(second.name).name if len(pairs) > 1 else folder
        comparison = compare_profiles(first.memory, second.memory)
        if file is None:
            table = write_difference_table(comparison.tree, comparison.basis)
            written += write_files({TABLE: table.encode()}, place)
        title = f"Memory by module, {comparison.basis}: {second.name} against {first.name}"
        subtitle = caption_difference(comparison.tree, comparison.basis, first.memory, second.memory)
        for path in [place / f"{ICICLE}.{ending}" for ending in ("pdf", "svg")] if file is None else [file]:
            draw_difference_icicle(title, subtitle, comparison.tree, path)
            written.append(path)
    return written


def _read_by_rank(path: Path) -> dict[object, NamedProfile]:
    """Return the profiles of a run by their ranks; by their number where one tells no rank."""
    from vramscope.engine.files.base.input_file import show_path

    from .modules import read_profiles

    found: dict[object, NamedProfile] = {}
    for number, (file, memory) in enumerate(read_profiles(path)):
        folder = file if file.is_dir() else file.parent
        name = path if folder == path or not path.is_dir() else folder
        rank = number if memory.rank is None else memory.rank.rank
        key = rank if rank not in found else (rank, folder.name)
        found[key] = NamedProfile(show_path(name), memory)
    return found
