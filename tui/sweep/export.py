"""Writes the figures that the screens of sweeps are asked for, on a thread."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual.screen import Screen

from ...analyzers.planning.sweep.index import IndexedSweep
from ...engine.errors import VramscopeError
from ...engine.files.base.input_file import show_path
from ..frame.background import do_beside

if TYPE_CHECKING:
    from ..screens.terminal_app import TerminalApp

NOTE_S = 8.0
"""A sentence with names of files takes longer to read."""


def export_one(screen: Screen[None], sweep: IndexedSweep) -> None:
    """Write the heat map of a sweep: PDF, SVG, PNG, CSV and the text that stands for it."""

    def write(base: Path) -> Sequence[Path]:
        from ...exporters.figures.page import SweepLook
        from ...exporters.sweep.page import write_heat_map

        return write_heat_map(sweep.grid, sweep.findings, base, SweepLook())[1]

    _start(screen, write)


def export_several(screen: Screen[None], sweeps: Sequence[IndexedSweep]) -> None:
    """Write several sweeps as small multiples."""

    def write(base: Path) -> Sequence[Path]:
        from ...exporters.figures.page import SweepLook
        from ...exporters.sweep.page import write_multiples

        return write_multiples(sweeps, base, SweepLook())

    _start(screen, write)


def _start(screen: Screen[None], write: Callable[[Path], Sequence[Path]]) -> None:
    app = cast("TerminalApp", screen.app)
    folder = app.export_folder or Path.cwd()
    base = folder / f"vramscope-sweep-{datetime.fromtimestamp(app.clock.wall_s()):%Y%m%d-%H%M%S}"
    screen.notify("Drawing the figure…", timeout=3)

    def tell(paths: Sequence[Path]) -> None:
        endings = ", ".join(path.name.removeprefix(base.name) for path in paths)
        told = f"Wrote {base.name} ({endings}) to {show_path(folder)}"
        screen.notify(told, timeout=NOTE_S, markup=False)

    def refuse(error: VramscopeError) -> None:
        screen.notify(f"Not exported: {error}", severity="error", timeout=NOTE_S, markup=False)

    do_beside(screen, lambda: write(base), then=tell, otherwise=refuse)
