"""Figures of the snapshots that a program has kept."""

import tempfile
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from vramscope.engine.errors import OutputFileError, UsageError
from vramscope.engine.files.base.output_file import write_whole
from vramscope.exporters.reports.log import Snapshot

Format = Literal["png", "pdf"]
FORMATS: tuple[Format, ...] = ("png", "pdf")
_NAN = float("nan")


def plot_device(
    snapshots: Sequence[Snapshot],
    device: str,
    clock: Literal["wall", "trace"],
    output_file: str | Path | None,
    *,
    what: Literal["memory_usage", "fragmentation"],
) -> list[Path]:
    """Draw one device over time; return the files.

    Args:
        snapshots: What to draw.
        device: What the figure calls it.
        clock: Of the snapshots' times.
        output_file: File to write, in the format of its ending; None for PNG and PDF in the working folder.
        what: Which of the figures.

    Raises:
        UsageError: Nothing knows the format.
        OutputFileError: It cannot be written.
    """
    if output_file is None:
        return _draw(snapshots, device, clock, Path(), FORMATS, what)
    path = Path(output_file)
    ending = path.suffix.lower()
    kind = next((it for it in FORMATS if ending == f".{it}"), None)
    if kind is None:
        raise UsageError(f"{path}: no such format; expected a name that ends in .png or .pdf")
    with tempfile.TemporaryDirectory() as folder:
        (drawn,) = _draw(snapshots, device, clock, Path(folder), (kind,), what)
        data = drawn.read_bytes()
    if not path.parent.is_dir():
        raise OutputFileError(f"{path}: there is no folder {path.parent}; make it first")
    write_whole(data, path)
    return [path]


def _draw(
    snapshots: Sequence[Snapshot],
    device: str,
    clock: Literal["wall", "trace"],
    folder: Path,
    formats: tuple[Format, ...],
    what: Literal["memory_usage", "fragmentation"],
) -> list[Path]:
    from vramscope.exporters.figures import (
        Curve,
        DeviceFigure,
        FragmentationFigure,
        plot_fragmentation,
        plot_memory_usage,
    )

    times = array("d", (it.time_s for it in snapshots))
    subtitle = f"{len(snapshots):,} snapshots"

    def curve(values: Iterable[float | None]) -> Curve:
        column = array("d", (_NAN if value is None else value for value in values))
        return Curve(times, column, column, column)

    if what == "fragmentation":
        fragmentation = curve(it.fragmentation for it in snapshots)
        return plot_fragmentation(
            FragmentationFigure(device=device, clock=clock, fragmentation=fragmentation, subtitle=subtitle),
            folder,
            formats,
        )
    figure = DeviceFigure(
        device=device,
        clock=clock,
        allocated=curve(it.allocated_bytes for it in snapshots),
        reserved=curve(it.reserved_bytes for it in snapshots),
        used=curve(it.used_bytes for it in snapshots),
        capacity=curve(it.total_bytes for it in snapshots),
        subtitle=subtitle,
    )
    return plot_memory_usage(figure, folder, formats)
