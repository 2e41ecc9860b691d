"""Draw the heat map of the documentation: the original's sweep, as the tests write it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.analyzers.planning.sweep.original import write_original
from vramscope.exporters.figures.page import PageFormat, PageStyle
from vramscope.exporters.sweep.figure import draw_sweep
from vramscope.exporters.sweep.look import SweepLook
from vramscope.sweeps import load_sweep

_DPI = 120


def draw_sweep_pictures(folder: Path) -> Iterator[Path]:
    """Draw the sweep in both styles and yield the files.

    Args:
        folder: Of the pictures.
    """
    with tempfile.TemporaryDirectory() as place:
        grid = load_sweep(*write_original(Path(place)), 80.0).grid
    pages: dict[PageStyle, PageFormat] = {"usenix": "svg", "original": "png"}
    for style, kind in pages.items():
        path = folder / f"heatmap-{style}.{kind}"
        path.write_bytes(draw_sweep(grid, SweepLook(style, dpi=_DPI)).render(kind))
        yield path
