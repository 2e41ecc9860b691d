"""Charts of devices: the history there is, from edge to edge, over a time axis; memory or utilisation."""

from collections.abc import Sequence
from typing import get_args

import pytest
from msgspec.structs import replace

from tests.tui.canned import FakeFeed, make_app, make_device, make_past, make_sample, make_snapshot
from tests.tui.looks import notices, shown_text
from tests.tui.widgets.devices import START_S, gpu, node
from vramscope.engine.history import History
from vramscope.engine.model import DeviceSample, Sample
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.draw.glyphs import ASCII, UNICODE
from vramscope.tui.draw.spans import line_text
from vramscope.tui.live.device_graphs import ChartChoice, TimeSpan, draw_axis, fit_history
from vramscope.tui.live.device_picture import DevicePicture

BRAILLE = range(0x2801, 0x2900)


def _draw(
    devices: Sequence[DeviceSample],
    width: int,
    height: int,
    *,
    ticks: int = 30,
    choice: ChartChoice = "memory",
) -> list[str]:
    snapshot, history = node(devices, ticks=ticks)
    picture = DevicePicture(UNICODE)
    return [line_text(line) for line in picture.draw(snapshot, history, width, height, choice=choice)]


def _edges(row: str) -> tuple[int, int]:
    """Return the first and the last cell of a row that have dots."""
    cells = [at for at, character in enumerate(row) if ord(character) in BRAILLE]
    return cells[0], cells[-1]


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("ticks", [3, 30, 700])
def test_a_wide_pane_uses_its_width_from_the_first_seconds_on(count: int, ticks: int) -> None:
    lines = _draw([gpu(index) for index in range(count)], 200, 35, ticks=ticks)
    (axis,) = {line for line in lines if line.rstrip().endswith(" now")}
    left, right = len(axis) - len(axis.lstrip()), len(axis.rstrip())
    room = 195 - left
    figures = max(line.index("50 %") for line in lines if "50 %" in line)
    graphs = [line for line in lines if any(ord(character) in BRAILLE for character in line)]
    assert len(graphs) >= count
    for row in graphs:
        first, last = _edges(row)
        assert first == left, "no empty start"
        assert right - 1 - last in (0, 1), "now is where the graph ends"
    if count == 8:
        assert left - figures <= 8, "the chart begins next to the figures"
    assert right - left >= (0.8 if ticks > 3 else 0.25) * room, "some ticks of room, and no more"


def test_a_chart_stays_while_there_is_room_in_it_and_grows_by_little() -> None:
    history, picture = History(), DevicePicture(UNICODE)
    scales: list[tuple[int, str]] = []
    gaps: list[int] = []
    ends: list[int] = []
    for tick in range(300):
        sample = Sample("node03", tick, START_S + tick, 1.0, (gpu(0, 10.0 if tick < 20 else 70.0),))
        history.add(sample)
        lines = picture.draw(Snapshot("live", sample=sample), history, 120, 12, window_s=600.0)
        text = [line_text(line) for line in lines]
        first, _, rest = text[10].partition("┴")
        scales.append((len(first), rest[:8]))
        if tick > 30:
            ends.append(text[10].rstrip().rindex("now") + 3)
            gaps.append(ends[-1] - 1 - _edges(text[9])[1])
    assert len(set(scales[60:])) <= 20, "its scale changes with each tenth that is new, not each six seconds"
    assert {0} <= set(gaps) <= {0, 1}, "now is where the graph ends"
    assert max(ends) >= 110, "as far as the edge before the next scale"
    assert max(ends) - min(ends) <= 20


@pytest.mark.parametrize(("seen_s", "window_s"), [(0.0, 600.0), (40.0, 600.0), (599.0, 600.0), (5e5, 600.0)])
@pytest.mark.parametrize("interval_s", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("is_live", [True, False])
def test_a_fit_holds_the_newest_tick_and_whole_ticks(
    seen_s: float, window_s: float, interval_s: float, is_live: bool
) -> None:
    for columns in (2, 30, 226, 800):
        now_s = START_S + 7 * interval_s
        fit = fit_history(TimeSpan(now_s, window_s, interval_s, is_live=is_live), columns, seen_s)
        assert fit.start_s <= now_s < fit.end_s + 1e-3
        assert 1 <= fit.buckets <= fit.columns == columns
        ticks = fit.bucket_s / interval_s
        assert abs(ticks - round(ticks)) < 1e-6
        if seen_s >= window_s and columns > 2:
            assert fit.end_s - fit.start_s >= 0.9 * window_s
        assert [fit.find_column(place) for place in (0, fit.buckets)] == [0, columns]


def test_a_recording_fills_its_chart_exactly() -> None:
    history, picture = History(), DevicePicture(UNICODE)
    for tick in range(160):
        device = DeviceSample("trace-0", 0, kind="trace", memory=gpu(0, 40.0).memory)
        sample = Sample("run", tick, tick / 10, 0.1, (device,), clock="trace")
        history.add(sample)
    lines = [line_text(line) for line in picture.draw(Snapshot("live", sample=sample), history, 110, 12)]
    axis = lines[10]
    assert axis.startswith("  -16 s ─")
    assert "┴10 s" in axis
    assert _edges(lines[9]) == (2, len(axis.rstrip()) - 1)


def test_history_older_than_single_ticks_has_no_holes() -> None:
    """A history keeps minutes, not ticks, of what is older than an hour."""
    history, picture = History(), DevicePicture(UNICODE)
    for tick in range(0, 7200):
        sample = Sample("node03", tick, START_S + tick, 1.0, (gpu(0, 40.0),))
        history.add(sample)
    lines = picture.draw(Snapshot("live", sample=sample), history, 200, 12, window_s=7200.0)
    row = line_text(lines[9])
    first, last = _edges(row)
    assert all(ord(character) in BRAILLE for character in row[first : last + 1])
    assert (first, line_text(lines[10])[2:6]) == (2, "-2 h")


def _axis(
    cells: int, seen_s: float, *, window_s: float = 600.0, clock: str = "wall", **options: object
) -> str:
    now_s = START_S if clock == "wall" else seen_s
    moment = "11.0 s" if clock == "trace" else None
    span = TimeSpan(now_s, window_s, 1.0, clock == "wall", moment, clock=clock)
    fit = fit_history(span, 2 * cells, seen_s)
    return line_text(draw_axis(cells, fit, span, UNICODE, **options))  # type: ignore[arg-type]  # its own


def test_the_axis_says_how_long_and_round_times_of_day() -> None:
    long = _axis(120, 900.0)
    assert long.startswith("-10 min ─")
    assert long.endswith("─ now")
    assert "┴08:46" in long
    assert "┴08:50" in long
    short = _axis(40, 30.0)
    assert "┴08:53:00" in short or "┴08:53:10" in short
    assert _axis(120, 86_400.0 * 3, window_s=86_400.0).count(":00") >= 6
    assert _axis(16, 900.0) == "-10 min ──── now"
    assert _axis(8, 900.0) == "-10 min "
    assert "┴5 s─" in _axis(60, 11.0, clock="trace")
    assert _axis(60, 900.0, name="utilisation").startswith("utilisation -10 min ")
    assert "┴" not in _axis(120, 900.0, has_labels=False)
    for cells in range(8, 160):
        assert len(_axis(cells, 900.0)) == cells


def _busy(index: int, percent: float | None) -> DeviceSample:
    return replace(gpu(index, 0.0), utilization_percent=percent)


def _dots(lines: Sequence[str]) -> int:
    return sum((ord(it) - 0x2800).bit_count() for line in lines for it in line if ord(it) in BRAILLE)


def test_charts_show_utilisation_on_demand() -> None:
    memory = _dots(_draw([_busy(0, 50.0)], 120, 14))
    half, full = (_dots(_draw([_busy(0, it)], 120, 14, choice="utilization")) for it in (50.0, 100.0))
    assert memory < half < full
    assert 1.8 <= full / half <= 2.2
    lines = _draw([_busy(0, 50.0)], 120, 14, choice="utilization")
    assert any(line.rstrip().endswith("100 %") for line in lines[3:])
    assert any("utilisation -30 s" in line for line in lines)


@pytest.mark.parametrize(("count", "height"), [(1, 30), (8, 26), (8, 9)])
def test_both_charts_stand_one_below_the_other_or_side_by_side(count: int, height: int) -> None:
    devices = [_busy(index, 100.0) for index in range(count)]
    both = _draw(devices, 200, height, choice="both")
    assert _dots(both) > 1.5 * _dots(_draw(devices, 200, height))
    if count == 8:
        (axis,) = (line for line in both if "utilisation -" in line)
        assert axis.index("memory -") < axis.index("utilisation -")
    narrow = _draw(devices, 80, height, choice="both")
    if count == 8:
        assert not any("utilisation" in line for line in narrow), "no room: memory alone"


def test_devices_without_utilisation_keep_their_memory() -> None:
    trace = DeviceSample("trace-0", 0, kind="trace", memory=gpu(0, 40.0).memory)
    assert _draw([trace], 120, 14, choice="utilization") == _draw([trace], 120, 14)


async def test_u_goes_through_the_charts_on_the_live_and_the_device_screen() -> None:
    feed = FakeFeed(make_snapshot(1))
    for sample in make_past(1, 60):
        feed.history.add(
            replace(sample, devices=tuple(replace(it, utilization_percent=50.0) for it in sample.devices))
        )
    app = make_app(feed)
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause()
        assert "100 %" not in shown_text(app)
        seen = []
        for _ in range(3):
            await pilot.press("u")
            await pilot.pause()
            seen.append((notices(app)[-1], "utilisation -" in shown_text(app), " 100 % " in shown_text(app)))
        assert seen == [
            ("Charts: utilisation", True, True),
            ("Charts: memory and utilisation", False, True),
            ("Charts: memory", False, False),
        ]
        await pilot.press("u", "2")
        await pilot.pause()
        assert " 100 % " in shown_text(app)
        assert "utilisation -" in shown_text(app)
        await pilot.press("u", "u")
        await pilot.pause()
        assert " 100 % " not in shown_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert " 100 % " not in shown_text(app)


async def test_u_says_why_there_is_no_chart_of_utilisation() -> None:
    device = replace(make_device(0), utilization_percent=None)
    app = make_app(FakeFeed(make_snapshot(sample=make_sample((device,)))))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("u")
        await pilot.pause()
        assert notices(app)[-1] == "No device reports its utilisation."
        assert app.live.devices.choice == "memory"


async def test_a_small_pane_goes_between_two_charts_only() -> None:
    app = make_app(FakeFeed(make_snapshot(8)))
    async with app.run_test(size=(80, 24)) as pilot:
        for expected in ("utilization", "memory", "utilization"):
            await pilot.press("u")
            await pilot.pause()
            assert app.live.devices.choice == expected


def test_ascii_charts_are_seven_bits() -> None:
    snapshot, history = node([gpu(0)])
    for choice in get_args(ChartChoice):
        lines = DevicePicture(ASCII).draw(snapshot, history, 200, 30, choice=choice)
        assert all(line_text(line).isascii() for line in lines)


async def test_the_key_is_offered_only_where_utilisation_is_known() -> None:
    feed = FakeFeed(make_snapshot(1))
    app = make_app(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "u charts" in shown_text(app)
        device = replace(make_device(0), utilization_percent=None)
        feed.hand_over(make_snapshot(sample=make_sample((device,), 2)))
        await pilot.pause()
        await pilot.pause()
        assert "u charts" not in shown_text(app)


@pytest.mark.parametrize(("width", "height", "count"), [(80, 14, 3), (80, 15, 4), (60, 12, 2), (80, 20, 2)])
def test_a_narrow_pane_names_its_charts_too(width: int, height: int, count: int) -> None:
    lines = _draw([gpu(index) for index in range(count)], width, height, choice="utilization")
    assert lines[-1].strip().startswith("util")
    if "100 %" in "".join(lines):
        assert any(line.rstrip().endswith(" 0 util") for line in lines), (
            "the scale says it where there is one"
        )


def test_two_charts_below_each_other_are_named_by_their_scales() -> None:
    lines = _draw([gpu(0)], 80, 22, choice="both")
    assert [line.split()[-1] for line in lines if line.rstrip().endswith((" 0", " 0 util"))] == ["0", "util"]


def test_the_name_is_the_last_word_of_an_axis_to_go() -> None:
    fit = fit_history(TimeSpan(START_S, 600.0, 1.0, is_live=True), 400, 60.0)
    span = TimeSpan(START_S, 600.0, 1.0, is_live=True)
    axes = [line_text(draw_axis(cells, fit, span, UNICODE, "utilisation")) for cells in (60, 16, 12, 4)]
    assert axes[0].startswith("utilisation -61 s ─")
    assert axes[1].startswith("util -61 s ")
    assert axes[1].rstrip().endswith("now")
    assert axes[2].startswith("util -61 s")
    assert axes[3] == "util"
