"""How used memory goes without a probe: the same words and numbers on every screen and in every output."""

import json
import re

import msgspec
import pytest

from tests.exporters.prometheus.scraped import make_picture, scrape
from tests.tui.canned import NODE, FakeFeed, make_app, make_device, make_sample
from tests.tui.live.test_attaching import AttachingFakeFeed
from tests.tui.looks import shown_text
from vramscope.analyzers.fleet.fleet import read_devices
from vramscope.analyzers.fleet.model import FleetNode
from vramscope.analyzers.oom import OomAnalyzer
from vramscope.analyzers.trend_words import word_rate
from vramscope.engine.history import History
from vramscope.engine.model import Assessment, DeviceSample, DeviceTrend, NodeStatus, ProcessReading, Sample
from vramscope.engine.text import make_ascii
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.exporters.json_lines import encode_line
from vramscope.exporters.status.document import describe_snapshot
from vramscope.exporters.status.table import render_table
from vramscope.exporters.text import ASCII_MARKS, MARKS, TableStyle
from vramscope.tui.device.sections import draw_forecast
from vramscope.tui.draw.glyphs import ASCII, UNICODE
from vramscope.tui.draw.spans import line_text
from vramscope.tui.fleet.grid import mark_risk
from vramscope.tui.fleet.screen import describe_device
from vramscope.tui.live.device_picture import DevicePicture
from vramscope.tui.live.process_signals import SignalPolicy

END = re.compile(r"full in (?:\d+–)?\d+ min")


@pytest.fixture(scope="module")
def filling() -> tuple[Snapshot, History]:
    """Two devices over seven minutes: one fills at 6 GiB a minute, one is steady."""
    analyzer = OomAnalyzer()
    history = History()
    told: dict[str | None, Assessment] = {}
    for tick in range(420):
        sample = _make_tick(tick)
        analyzer.observe(sample)
        told |= {it.device_uuid: it for it in analyzer.assess()}
        history.add(sample)
    return Snapshot("live", node=NODE, sample=sample, assessments=tuple(told.values())), history


def _make_tick(tick: int) -> Sample:
    process = ProcessReading(pid=4711, user="user1", command="python train.py")
    devices = [
        msgspec.structs.replace(make_device(at, gib), processes=(process,))
        for at, gib in enumerate((30.0 if tick < 60 else 30 + 0.1 * (tick - 60), 20.0))
    ]
    return make_sample(tuple(_without_swing(it) for it in devices), seq=tick)


def _without_swing(device: DeviceSample) -> DeviceSample:
    memory = msgspec.structs.replace(
        device.memory, used_min_bytes=device.memory.used_bytes, used_max_bytes=device.memory.used_bytes
    )
    return msgspec.structs.replace(device, memory=memory)


def find_trend(snapshot: Snapshot) -> DeviceTrend:
    (trend,) = [it.device_trend for it in snapshot.assessments if it.device_uuid == "GPU-0000"]
    assert trend is not None
    assert trend.word == "filling"
    return trend


async def test_every_screen_and_every_output_says_the_same(filling: tuple[Snapshot, History]) -> None:
    snapshot, history = filling
    trend = find_trend(snapshot)
    said = f"filling, {word_rate(trend.rate_bytes_per_s or 0.0)}"
    app = make_app(FakeFeed(snapshot, history=history))
    async with app.run_test(size=(200, 50)) as pilot:
        live = shown_text(app)
        await pilot.press("2")
        await pilot.pause()
        page = shown_text(app)
    status = describe_snapshot(snapshot)
    assert status is not None
    once = " ".join(render_table(status, TableStyle(width=200)).split())
    device, _ = read_devices(snapshot)
    fleet = "".join(piece.text for piece in describe_device(device, _find_node(), UNICODE))
    # A narrow line loses what it does not foretell, and not the numbers.
    assert fleet.index("GiB (") < fleet.index("device memory only, may be cache")
    ends = {match for text in (live, page, once, fleet) for match in END.findall(text)}
    assert len(ends) == 1, ends
    for text in (live, page, once, fleet):
        assert said in text
    written = json.loads(encode_line(status))["assessments"][0]["device_trend"]
    assert written["word"] == "filling"
    assert written["rate_bytes_per_s"] == trend.rate_bytes_per_s
    told = scrape(make_picture(snapshot))
    assert told.of("vramscope_device_trend", device="0", trend="filling") == [1]
    assert told.of("vramscope_device_trend", device="1", trend="steady") == [1]
    assert told.of("vramscope_device_growth_bytes_per_second", device="0") == [trend.rate_bytes_per_s]
    (left_s,) = told.of("vramscope_device_full_in_seconds", device="0")
    shown_s = [60 * float(it) for it in re.findall(r"\d+", ends.pop())]
    assert shown_s[0] - 30 <= left_s <= shown_s[-1] + 30


def test_a_device_that_fills_looks_like_a_medium_risk_everywhere(filling: tuple[Snapshot, History]) -> None:
    snapshot, history = filling
    assert snapshot.sample is not None
    picture = DevicePicture(UNICODE).draw(snapshot, history, 120, 32, selected=None)
    page = draw_forecast(snapshot.assessments[0], snapshot.sample.time_s, 120, UNICODE)
    device, _ = read_devices(snapshot)
    pieces = describe_device(device, _find_node(), UNICODE)
    drawn = [(span.text, span.role) for line in (*picture, *page) for span in line]
    drawn += [(piece.text, piece.role) for piece in pieces]
    roles = [role for text, role in drawn if "↑ filling" in text]
    assert len(roles) >= 3
    assert set(roles) == {"medium"}
    assert mark_risk(device, UNICODE) == ("↑", "medium")
    status = describe_snapshot(snapshot)
    assert status is not None
    row = next(it for it in _print(status, has_color=True) if "↑ filling" in it)
    assert row.partition("↑ filling")[0].endswith("\x1b[33m")  # yellow, as a medium risk is


def test_without_unicode_a_mark_is_the_same_on_screens_and_in_print(
    filling: tuple[Snapshot, History],
) -> None:
    snapshot, history = filling
    picture = DevicePicture(ASCII).draw(snapshot, history, 120, 32, selected=None)
    assert any("! filling" in line_text(line) for line in picture)
    status = describe_snapshot(snapshot)
    assert status is not None
    assert any("! filling" in line for line in _print(status, is_ascii=True))
    # What is made ASCII only once it is text has the same marks, but for those that stand in sentences too.
    for level, mark in MARKS.risks.items():
        assert make_ascii(mark) == ASCII_MARKS.risks[level] or mark == "·"
    for word, mark in MARKS.trends.items():
        assert make_ascii(mark) == ASCII_MARKS.trends[word] or mark == "→"


def test_nothing_is_said_on_a_line_until_a_device_was_watched(filling: tuple[Snapshot, History]) -> None:
    snapshot, history = filling
    first = msgspec.structs.replace(
        snapshot,
        assessments=[msgspec.structs.replace(it, device_trend=None) for it in snapshot.assessments],
    )
    for width, height in ((40, 10), (60, 4), (80, 24), (120, 32), (200, 50)):
        picture = DevicePicture(UNICODE).draw(first, history, width, height, selected=None)
        assert "?" not in "".join(map(line_text, picture))
    status = describe_snapshot(first)
    assert status is not None
    rows = [line for line in _print(status) if "H100" in line]
    assert rows
    assert not any("?" in line for line in rows)


def _print(status: NodeStatus, **style: bool) -> list[str]:
    return render_table(status, TableStyle(width=120, **style)).splitlines()


def test_unknown_stands_once_in_the_verdict_and_on_no_line(filling: tuple[Snapshot, History]) -> None:
    snapshot, history = filling
    for width, height in ((40, 10), (60, 4), (80, 24), (120, 32), (200, 50)):
        for glyphs in (UNICODE, ASCII):
            picture = DevicePicture(glyphs).draw(snapshot, history, width, height, selected=None)
            text = "\n".join(map(line_text, picture))
            assert "unknown" not in text
            assert glyphs.trends["filling"] in text
            assert "OOM" not in text
            assert "out of memory" not in text
    status = describe_snapshot(snapshot)
    assert status is not None
    assert render_table(status, TableStyle(width=120)).count("unknown") == 1


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (120, 32), (200, 50)])
async def test_the_verdict_names_the_key_that_changes_it(
    filling: tuple[Snapshot, History], size: tuple[int, int]
) -> None:
    snapshot, _ = filling
    app = make_app(AttachingFakeFeed(snapshot))
    async with app.run_test(size=size):
        text = shown_text(app)
        assert text.count("unknown") == 1
        assert "unknown: press a" in text or "without a probe: press a to attach" in text
        assert "GPU 0 filling" in text


async def test_who_may_not_attach_is_named_the_command(filling: tuple[Snapshot, History]) -> None:
    snapshot, _ = filling
    app = make_app(AttachingFakeFeed(snapshot), policy=SignalPolicy(local_node=NODE, is_read_only=True))
    async with app.run_test(size=(200, 50)):
        assert "without a probe: vramscope attach PID adds it" in shown_text(app)


def _find_node() -> FleetNode:
    return FleetNode(NODE, "live")
