"""Figures: what they show, the same bytes every time, and files that are whole or not there."""

import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from tests import REPOSITORY
from vramscope.engine.errors import OutputFileError
from vramscope.engine.units import GIB
from vramscope.exporters.figures import (
    CurveRecorder,
    DeviceFigure,
    DevicesOverTime,
    FragmentationFigure,
    Marker,
    Peaks,
    charts,
    make_devices_over_time,
    plot_devices_over_time,
    plot_fragmentation,
    plot_memory_usage,
    plot_peaks,
)
from vramscope.exporters.figures.charts import make_room
from vramscope.exporters.figures.model import Curve
from vramscope.exporters.figures.style import DOTS_PER_INCH, WIDTH_IN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def curve(*values: float | None, step_s: float = 1.0) -> Curve:
    recorder = CurveRecorder(3.5 * step_s)
    for number, value in enumerate(values):
        recorder.add(number * step_s, value)
    return recorder.curve()


def device_figure(device: str = "0") -> DeviceFigure:
    return DeviceFigure(
        device=device,
        clock="trace",
        allocated=curve(*(tick * GIB / 10 for tick in range(100))),
        reserved=curve(*[12 * GIB] * 100),
        used=curve(*[13 * GIB] * 100),
        capacity=curve(*[16 * GIB] * 100),
        markers=(
            Marker(20.0, "medium", "leak"),
            Marker(80.0, "high", "leak"),
            Marker(90.0, "critical", "oom"),
        ),
        subtitle="series.csv, 100 samples",
    )


def fragmentation_figure(shares: Curve | None, reason: str = "") -> FragmentationFigure:
    return FragmentationFigure(device="3", clock="trace", fragmentation=shares, reason=reason)


def small_heat_map() -> DevicesOverTime:
    shares = {"0": curve(10.0, 20.0, 30.0), "1": curve(40.0, None, 60.0)}
    return make_devices_over_time(shares, unit="%", clock="trace")


def some_peaks(**changes: object) -> Peaks:
    peaks = Peaks(
        devices=("0", "1"),
        allocated=(10 * GIB, None),
        reserved=(12 * GIB, None),
        used=(13 * GIB, 9 * GIB),
        capacity=(16 * GIB, None),
    )
    return msgspec.structs.replace(peaks, **changes)


def plot_all(folder: Path) -> list[Path]:
    return [
        *plot_memory_usage(device_figure(), folder),
        *plot_fragmentation(fragmentation_figure(curve(0.1, 0.4, 0.2)), folder),
        *plot_devices_over_time(small_heat_map(), folder),
        *plot_peaks(some_peaks(), folder),
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every kind of figure in every format."""
    return plot_all(tmp_path_factory.mktemp("figures"))


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> "list[Figure]":
    """Pages as they were drawn, in place of files."""
    drawn: list[Figure] = []

    def keep(page: "Figure", _folder: Path, _name: str, _formats: Sequence[str]) -> list[Path]:
        drawn.append(page)
        return []

    monkeypatch.setattr(charts, "save_page", keep)
    return drawn


def axes_of(page: "Figure") -> "Axes":
    return page.axes[0]


def texts_of(page: "Figure") -> list[str]:
    axes = axes_of(page)
    legend = axes.get_legend()
    return [
        axes.get_title(loc="left"),
        axes.get_xlabel(),
        axes.get_ylabel(),
        *(text.get_text() for text in axes.texts),
        *([text.get_text() for text in legend.get_texts()] if legend else []),
    ]


def test_files_are_named_by_device_and_kind(files: list[Path]) -> None:
    names = [path.name for path in files]
    assert names == [
        "gpu_0_memory_usage.png",
        "gpu_0_memory_usage.pdf",
        "gpu_3_fragmentation.png",
        "gpu_3_fragmentation.pdf",
        "memory_heatmap.png",
        "memory_heatmap.pdf",
        "memory_peaks.png",
        "memory_peaks.pdf",
    ]
    assert sorted(path.name for path in files[0].parent.iterdir()) == sorted(names)


def test_what_was_not_measured_has_no_bar_and_each_capacity_its_line(
    pages: "list[Figure]", tmp_path: Path
) -> None:
    plot_peaks(some_peaks(), tmp_path)
    axes = axes_of(pages[0])
    widths = [[bar.get_width() for bar in container] for container in axes.containers]
    assert widths == [[10.0], [12.0], [13.0, 9.0]]
    assert [np.asarray(line.get_xdata()).tolist() for line in axes.lines] == [[16.0, 16.0]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1"]
    nothing = (None, None)
    plot_peaks(some_peaks(allocated=nothing, reserved=nothing, used=nothing), tmp_path)
    assert "not measured\nno memory data in this input" in texts_of(pages[1])


def test_a_label_of_others_is_no_path(tmp_path: Path) -> None:
    (path,) = plot_memory_usage(device_figure("../node3/gpu 2"), tmp_path, ["png"])
    assert path == tmp_path / "gpu_.._node3_gpu_2_memory_usage.png"
    assert path.is_file()


def test_every_figure_is_exactly_as_wide_as_the_page(files: list[Path]) -> None:
    for path in files:
        data = path.read_bytes()
        if path.suffix == ".png":
            assert struct.unpack(">I", data[16:20])[0] == WIDTH_IN * DOTS_PER_INCH
        else:
            (box,) = re.findall(rb"/MediaBox \[([^]]*)\]", data)
            assert [float(part) for part in box.split()][0::2] == [0.0, WIDTH_IN * 72]


def test_fonts_are_type_42_and_no_date_is_written(files: list[Path]) -> None:
    for path in files:
        data = path.read_bytes()
        assert b"CreationDate" not in data
        assert b"Matplotlib" not in data
        if path.suffix == ".pdf":
            assert b"/FontFile2" in data
            assert b"/Type3" not in data


def test_bytes_are_the_same_in_any_process_and_under_any_settings(files: list[Path], tmp_path: Path) -> None:
    plots = "import sys, pathlib; from tests.exporters.figures.test_figures import plot_all;"
    here, there, settings = files[0].parent, tmp_path / "there", tmp_path / "rc"
    there.mkdir()
    settings.write_text("xtick.major.size: 20\nfont.size: 20\n")
    subprocess.run(
        [sys.executable, "-c", f"{plots} plot_all(pathlib.Path(sys.argv[1]))", str(there)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": "2", "MATPLOTLIBRC": str(settings)},
        check=True,
        timeout=120,
    )
    written = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (here, there)]
    assert len(written[0]) == 8
    assert written[0] == written[1]


def test_settings_of_the_process_are_left_as_they_were(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    plot_fragmentation(fragmentation_figure(None), tmp_path, ["png"])
    assert dict(mpl.rcParams) == before


def test_marks_stay_inside_and_an_error_stands_at_the_peak_that_failed(pages: "list[Figure]") -> None:
    markers = (
        Marker(20.0, "medium", "leak"),
        Marker(60.0, "high", "oom"),
        Marker(500.0, "critical", "oom_met", 8 * GIB),
    )
    plot_memory_usage(msgspec.structs.replace(device_figure(), markers=markers), Path())
    axes = axes_of(pages[0])
    pages[0].draw_without_rendering()
    offsets = [point for marks in axes.collections for point in np.asarray(marks.get_offsets())]
    places = [axes.transData.transform(point) for point in offsets]
    assert len(places) == 3
    assert all(axes.bbox.padded(-3.0).contains(*place) for place in places)
    (failed,) = [marks for marks in axes.collections if "out of memory (critical)" in str(marks.get_label())]
    assert np.asarray(failed.get_offsets())[0][1] == pytest.approx(9.9 + 8.0)
    assert "8.0 GiB refused" in str(failed.get_label())
    shapes = {np.asarray(marks.get_paths()[0].vertices).tobytes() for marks in axes.collections}
    colours = {tuple(np.asarray(marks.get_facecolor())[0]) for marks in axes.collections}
    assert (len(shapes), len(colours)) == (3, 3)


def test_memory_shows_every_line_that_was_measured_and_the_findings(pages: "list[Figure]") -> None:
    plot_memory_usage(device_figure(), Path())
    texts = texts_of(pages[0])
    assert texts[:3] == ["GPU 0: memory", "time, s", "memory, GiB"]
    assert texts[4:] == [
        "used",
        "reserved",
        "allocated",
        "capacity",
        "leak (medium)",
        "leak (high)",
        "forecast: out of memory (critical)",
    ]
    top = axes_of(pages[0]).get_ylim()[1]
    assert top == pytest.approx(16 * 1.06 * make_room(device_figure().markers)), "marks stand above the lines"
    assert 16 * 1.06 < top < 16 * 1.3


def test_a_recorded_rank_is_called_what_it_is(pages: "list[Figure]") -> None:
    plot_memory_usage(DeviceFigure(device="3", clock="trace", name="rank 3"), Path())
    plot_fragmentation(
        FragmentationFigure(device="3", clock="trace", fragmentation=None, name="rank 3"), Path()
    )
    assert [texts_of(page)[0] for page in pages] == ["rank 3: memory", "rank 3: fragmentation"]


def test_a_line_that_was_not_measured_is_absent(pages: "list[Figure]") -> None:
    plot_memory_usage(
        DeviceFigure(device="0", clock="trace", used=curve(1.0, 2.0), allocated=curve(None)), Path()
    )
    plot_memory_usage(DeviceFigure(device="0", clock="trace"), Path())
    assert texts_of(pages[0])[3:] == ["used"]
    assert texts_of(pages[0])[2] == "memory, MiB"
    assert texts_of(pages[1])[3:] == ["not measured\nno memory data in this input"]


def test_the_line_is_the_highest_and_the_band_reaches_down_to_the_lowest(pages: "list[Figure]") -> None:
    recorder = CurveRecorder()
    for tick in range(10_000):
        recorder.add(float(tick), (50.0 if tick % 7 else 30.0) * GIB)
    plot_memory_usage(DeviceFigure(device="0", clock="trace", allocated=recorder.curve()), Path())
    axes = axes_of(pages[0])
    (line,) = axes.get_lines()
    highest = np.asarray(line.get_ydata())
    assert set(highest.tolist()) == {50.0}
    assert 100 < len(highest) <= 640
    (band,) = axes.collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
    assert (heights.min(), heights.max()) == (30.0, 50.0)
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_title().get_text() == "line: highest\nband: down to lowest"


def test_fragmentation_that_was_not_measured_says_so_and_why(pages: "list[Figure]") -> None:
    plot_fragmentation(fragmentation_figure(None, "no allocator data of this device"), Path())
    plot_fragmentation(fragmentation_figure(curve(None, None)), Path())
    plot_fragmentation(fragmentation_figure(curve(0.2, 0.3)), Path())
    assert texts_of(pages[0])[3:] == ["not measured\nno allocator data of this device"]
    assert texts_of(pages[1])[3:] == ["not measured"]
    assert texts_of(pages[2])[2:] == ["fragmentation, 0 to 1", "fragmentation"]
    assert axes_of(pages[2]).get_ylim() == (0, 1)


def test_cells_hold_the_highest_value_and_are_unmeasured_where_there_is_none() -> None:
    shares = {"0": curve(*range(9), 90, *range(10, 100)), "1": curve(5.0, *[None] * 98, 7.0)}
    cells = make_devices_over_time(shares, unit="%", clock="trace", columns=4)
    assert cells.edges_s == (0.0, 24.75, 49.5, 74.25, 99.0)
    assert cells.values == ((90, 49, 74, 99), (5, None, None, 7))
    assert make_devices_over_time({}, unit="GiB", clock="wall").values == ()


def test_few_cells_are_annotated_and_many_are_not(pages: "list[Figure]") -> None:
    plot_devices_over_time(small_heat_map(), Path())
    many = {str(device): curve(*[50.0] * 60) for device in range(40)}
    plot_devices_over_time(make_devices_over_time(many, unit="%", clock="trace"), Path())
    plot_devices_over_time(make_devices_over_time({"0": curve(None)}, unit="%", clock="trace"), Path())
    assert texts_of(pages[0])[3:] == ["10", "20", "30", "40", "60"]
    assert axes_of(pages[0]).patch.get_hatch() == "////"
    assert pages[0].axes[1].get_ylabel() == "%; hatched: not measured"
    assert texts_of(pages[1])[3:] == []
    assert pages[1].axes[1].get_ylabel() == "%"
    assert len(axes_of(pages[1]).get_yticks()) <= 32
    assert texts_of(pages[2])[3:] == ["not measured\nthe capacity of the devices is unknown"]


def test_text_of_others_is_shown_and_not_set_as_a_formula(tmp_path: Path) -> None:
    figure = DeviceFigure(
        device="$\\frac{", clock="trace", used=curve(1.0), subtitle="$x^\x1b[31m 文\n" + "y" * 500
    )
    assert plot_memory_usage(figure, tmp_path, ["png"])[0].is_file()


WRITERS: list[Callable[[Path], list[Path]]] = [
    lambda folder: plot_memory_usage(device_figure(), folder),
    lambda folder: plot_fragmentation(fragmentation_figure(None), folder),
    lambda folder: plot_devices_over_time(small_heat_map(), folder),
]


@pytest.mark.parametrize("write", WRITERS)
def test_a_folder_that_cannot_be_written_to_is_an_error_in_a_line(
    tmp_path: Path, write: Callable[[Path], list[Path]]
) -> None:
    with pytest.raises(OutputFileError, match="no such folder to write figures to; create it first"):
        write(tmp_path / "absent")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(OutputFileError, match="no such folder"):
        write(file)


def test_a_file_that_cannot_be_replaced_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "memory_heatmap.png").mkdir()
    with pytest.raises(OutputFileError, match=r"memory_heatmap\.png: cannot be written"):
        plot_devices_over_time(small_heat_map(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["memory_heatmap.png"]
