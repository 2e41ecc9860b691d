"""`MemoryHeatmapVisualizer`: the heat map of a sweep from a program or a notebook."""

from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError
from vramscope.exporters.figures.page import DPI, SWEEP_STYLES, SweepLook, SweepStyle
from vramscope.exporters.sweep.report import HeatMapReport, report_sweep

from .loading import LoadedSweep, load_sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_MEMORY_GIB = 80.0


class MemoryHeatmapVisualizer:
    """Draws the peak memory of a sweep over TP and PP.

    Args:
        memory_dir: Folder of the memory traces.
        log_dir: Folder of the sweep's logs; None for traces alone.
        iteration: Whose peak is drawn; None for the highest peak of all iterations.
    """

    def __init__(
        self, memory_dir: str | Path, log_dir: str | Path | None = None, *, iteration: int | None = None
    ) -> None:
        self._memory_dir = Path(memory_dir)
        self._log_dir = None if log_dir is None else Path(log_dir)
        self._iteration = iteration
        self._loaded: tuple[float, LoadedSweep] | None = None

    def create_heatmap(
        self,
        output_path: str | Path | None = None,
        *,
        figsize: tuple[float, float] | None = None,
        max_memory: float = MAX_MEMORY_GIB,
        dpi: int = DPI,
        style: SweepStyle = "usenix",
    ) -> "Figure":
        """Return the heat map as a figure of matplotlib, which a notebook shows by itself.

        Args:
            output_path: Name of the files to write as well, without an ending: PNG, PDF, SVG, CSV and the
                text that stands for the figure; None for none.
            figsize: Width and height in inches; None for what suits the grid.
            max_memory: GiB of a device; a theory of as much or more says that a layout does not fit.
            dpi: Dots per inch of the PNG.
            style: `usenix` for a page of two columns, `original` for that of the original.

        Raises:
            UsageError: An argument cannot be used.
            InputFileError: A folder cannot be read, or holds no sweep.
            OutputFileError: A file cannot be written.
        """
        if style not in SWEEP_STYLES:
            raise UsageError(f"style {style!r}: expected one of {', '.join(SWEEP_STYLES)}")
        if max_memory <= 0 or dpi <= 0 or (figsize is not None and min(figsize) <= 0):
            raise UsageError(
                f"max_memory {max_memory}, dpi {dpi}, figsize {figsize}: expected numbers above zero"
            )
        from vramscope.exporters.sweep.figure import draw_sweep
        from vramscope.exporters.sweep.page import prepare_output, write_heat_map

        look = SweepLook(style, figsize, dpi)
        base = None if output_path is None else prepare_output(Path(output_path))
        loaded = self._load(max_memory)
        if base is None:
            return draw_sweep(loaded.grid, look)
        return write_heat_map(loaded.grid, loaded.findings, base, look)[0]

    def report(self, max_memory: float = MAX_MEMORY_GIB) -> HeatMapReport:
        """Return cells, best layout and findings, as `vramscope heatmap --json` prints them.

        Args:
            max_memory: GiB of a device.

        Raises:
            InputFileError: A folder cannot be read, or holds no sweep.
        """
        loaded = self._load(max_memory)
        return report_sweep(loaded.grid, loaded.findings, loaded.skipped)

    def _load(self, max_memory_gib: float) -> LoadedSweep:
        """Return the sweep; the files are read once for each size of a device."""
        if self._loaded is None or self._loaded[0] != max_memory_gib:
            loaded = load_sweep(self._memory_dir, self._log_dir, max_memory_gib, iteration=self._iteration)
            self._loaded = max_memory_gib, loaded
        return self._loaded[1]
