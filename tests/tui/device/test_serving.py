"""Servers of models on the screens: a row in the live view, a section on the device's page, a verdict."""

import msgspec
import pytest

from tests.analyzers.serving.servers import make_sample
from tests.tui.canned import NODE, NOON_S, make_app, make_snapshot
from tests.tui.device_looks import feed_of, rows
from tests.tui.looks import shown_text
from vramscope.engine.model import RankSample
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.workloads.serving.formats import Format
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer


def serve(kind: Format = "sglang", *, is_asleep: bool = False) -> Snapshot:
    server = SimulatedServer(ServerSetup(), 1)
    server.advance(100.0)
    if is_asleep:
        server.sleep()
    sample = msgspec.structs.replace(make_sample(server, 1, kind=kind), time_s=NOON_S, node=NODE)
    return make_snapshot(sample=sample)


async def test_the_live_view_has_a_row_for_the_server_and_asks_for_no_probe() -> None:
    app = make_app(feed_of(serve()))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.pause()
        text = shown_text(app)
    assert "SGLang uses 5 % of its KV pool, 0 waiting" in text
    assert "SGLang simulated-8b" in text
    assert "21 run" in text
    assert "KV 5 %" in text
    assert "vramscope attach" not in text


async def test_the_live_view_names_the_parts_of_a_server_as_the_device_screen_does() -> None:
    app = make_app(feed_of(serve()))
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause()
        text = shown_text(app)
    assert "graphs" in text
    assert "rest" not in text


@pytest.mark.parametrize("width", [60, 80, 120, 200])
async def test_the_page_splits_the_device_and_describes_the_server(width: int) -> None:
    app = make_app(feed_of(serve()))
    async with app.run_test(size=(width, 50)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        text = " ".join(rows(app))
    assert "Serving SGLang" in text
    assert "23,632 of 448,512 tokens used" in text
    assert "weights 15.0" in " ".join(text.split())
    assert "No allocator data" not in text
    assert "simulated" in text


async def test_a_sleeping_server_is_said_to_sleep() -> None:
    app = make_app(feed_of(serve("vllm", is_asleep=True)))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        text = " ".join(rows(app))
    assert "asleep" in text
    assert "graphs, workspace and context" in text


async def test_a_healthy_server_is_no_unknown_and_no_rank_of_a_job() -> None:
    """The simulated server reports its device as a process that trains does, and is none."""
    snapshot = serve("vllm")
    sample = snapshot.sample
    assert sample is not None
    pid = sample.servers[0].devices[0].pids[0]
    rank = RankSample(pid, device_uuid=sample.devices[0].uuid)
    app = make_app(feed_of(make_snapshot(sample=msgspec.structs.replace(sample, ranks=(rank,)))))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.pause()
        title, verdict, *_ = rows(app)
    assert "rank" not in title
    assert "? vLLM" not in verdict
    assert "vLLM uses 5 % of its KV pool" in verdict


async def test_a_server_that_does_not_answer_is_unknown() -> None:
    sample = serve("vllm").sample
    assert sample is not None
    silent = msgspec.structs.replace(sample.servers[0], state="silent", engines=())
    app = make_app(feed_of(make_snapshot(sample=msgspec.structs.replace(sample, servers=(silent,)))))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.pause()
        _, verdict, *_ = rows(app)
    assert "? vLLM silent" in verdict
