"""Servers of models that are on no device of the node have rows of their own on the live screen."""

import msgspec

from tests.tui.canned import FakeFeed, make_app, make_finding, make_snapshot
from tests.tui.looks import shown_text
from vramscope.analyzers.serving_places import list_elsewhere
from vramscope.engine.model import EngineReading, ServerDevice, ServerSample
from vramscope.engine.model.finding import Evidence
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.draw.spans import line_text
from vramscope.tui.live.server_rows import ServerRows, draw_server_rows

URL = "http://10.0.0.7:8000"
SERVER = ServerSample(
    "vLLM", URL, url=URL, model="org/big", engines=(EngineReading("0", 12, 3, 10_000, 0.25),), age_s=0.5
)


def snapshot_with(*servers: ServerSample, devices: int = 0) -> Snapshot:
    snapshot = make_snapshot(2)
    assert snapshot.sample is not None
    shown = snapshot.sample.devices[:devices]
    sample = msgspec.structs.replace(snapshot.sample, devices=shown, servers=servers)
    return msgspec.structs.replace(snapshot, sample=sample, findings=())


async def test_a_node_without_a_device_shows_its_servers() -> None:
    app = make_app(FakeFeed(snapshot_with(SERVER)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        rows = app.live.query_one(ServerRows)
        assert rows.display
        assert "Serving vLLM org/big · 12 running · 3 waiting · KV 25 %" in shown_text(app)


async def test_a_server_elsewhere_has_a_row_next_to_devices() -> None:
    here = msgspec.structs.replace(SERVER, name="near", devices=())
    feed = FakeFeed(snapshot_with(SERVER, devices=2))
    app = make_app(feed)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "12 running" in shown_text(app)
        sample = snapshot_with(here, devices=2).sample
        assert sample is not None
        on_device = msgspec.structs.replace(here, devices=(ServerDevice(sample.devices[0].uuid),))
        feed.hand_over(snapshot_with(on_device, devices=2))
        await pilot.pause()
        assert not app.live.query_one(ServerRows).display, "its device has the row"


def test_a_wide_row_has_a_bar_and_a_narrow_one_keeps_the_numbers() -> None:
    wide, narrow = (line_text(draw_server_rows([SERVER], [], width, 1, UNICODE)[0]) for width in (160, 60))
    assert UNICODE.hatched * 5 + UNICODE.empty in wide
    assert UNICODE.hatched not in narrow
    assert len(narrow) <= 60
    assert "12 run" in narrow


def test_a_finding_about_a_server_marks_its_row() -> None:
    finding = msgspec.structs.replace(make_finding(0), severity="high", evidence=(Evidence("server", URL),))
    other = msgspec.structs.replace(SERVER, name="http://10.0.0.8:8000")
    marked, plain = (line_text(line) for line in draw_server_rows([SERVER, other], [finding], 80, 2, UNICODE))
    assert UNICODE.risk("high") in marked
    assert UNICODE.risk("high") not in plain


def test_servers_without_a_row_are_counted() -> None:
    lines = [line_text(line) for line in draw_server_rows([SERVER] * 5, [], 80, 3, UNICODE)]
    assert len(lines) == 3
    assert "and 3 more servers" in lines[-1]


def test_only_servers_without_a_device_of_the_sample_are_elsewhere() -> None:
    sample = snapshot_with(SERVER, devices=2).sample
    assert sample is not None
    gone = msgspec.structs.replace(SERVER, devices=(ServerDevice("GPU-of-another-node"),))
    near = msgspec.structs.replace(SERVER, devices=(ServerDevice(sample.devices[0].uuid),))
    assert list_elsewhere(msgspec.structs.replace(sample, servers=(SERVER, gone, near))) == [SERVER, gone]
