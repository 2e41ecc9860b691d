"""Exporting a breakdown: the icicle, its blocks as a table, the picture and the report, in a new folder."""

import csv
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from ...analyzers.breakdown import Basis, BreakdownNode, ComparedNode
from ...engine.errors import OutputFileError
from ...engine.files.base.input_file import show_path
from ...engine.files.base.output_file import write_files
from ...engine.text import make_csv_cell
from ..plan.export import make_new_folder

COLUMNS = ("path", "measured_bytes", "computed_bytes")


class ExportedTree(NamedTuple):
    """What is written."""

    title: str
    origin: str
    """Whose figures they are, in a sentence."""
    tree: BreakdownNode
    basis: Basis
    svg: str
    """The picture of the screen."""
    report: str
    difference: "ExportedDifference | None" = None
    """Against the first profile, where another is shown."""


class ExportedDifference(NamedTuple):
    """What is written of two profiles."""

    title: str
    caption: str
    tree: ComparedNode
    basis: Basis
    report: str


def export_breakdown(shown: ExportedTree, folder: Path, now_s: float) -> Path:
    """Write everything into a new folder, and return that.

    Args:
        shown: What is written.
        folder: Where the new folder is made.
        now_s: Wall time; names it.

    Raises:
        OutputFileError: The folder or a file cannot be written.
    """
    from ...exporters.modules.figure import draw_icicle

    try:
        made = make_new_folder(folder, f"vramscope-modules-{datetime.fromtimestamp(now_s):%Y%m%d-%H%M%S}")
    except OSError as error:
        raise OutputFileError(f"{show_path(folder)}: {error.strerror or error}") from error
    texts = {"screen.svg": shown.svg, "modules.txt": shown.report, "blocks.csv": write_table(shown.tree)}
    write_files({name: text.encode() for name, text in texts.items()}, made)
    for ending in ("svg", "pdf"):
        draw_icicle(shown.title, shown.origin, shown.tree, shown.basis, made / f"icicle.{ending}")
    if shown.difference is not None:
        _export_difference(shown.difference, made)
    return made


def _export_difference(shown: ExportedDifference, folder: Path) -> None:
    from ...exporters.modules.figure import draw_difference_icicle
    from ...exporters.modules.text import write_difference_table

    table = write_difference_table(shown.tree, shown.basis)
    write_files({"differences.csv": table.encode(), "differences.txt": shown.report.encode()}, folder)
    for ending in ("svg", "pdf"):
        path = folder / f"difference_icicle.{ending}"
        draw_difference_icicle(shown.title, shown.caption, shown.tree, path)


def write_table(tree: BreakdownNode) -> str:
    """Return every block as a line of CSV, each before what is in it; nothing stands for unmeasured."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_list_rows(tree, tree.name))
    return text.getvalue()


def _list_rows(node: BreakdownNode, path: str) -> Iterator[tuple[str, int | None, int | None]]:
    yield make_csv_cell(path), node.measured_bytes, node.computed_bytes
    for child in node.children:
        yield from _list_rows(child, f"{path}/{child.name}")
