"""A node without a GPU offers the demo and a recording; no other view does."""

import msgspec
import pytest

from tests.tui.canned import FakeFeed, make_app, make_sample, make_snapshot
from tests.tui.looks import notices, shown_text
from vramscope.engine.model import HostSample
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.frame.launch import Example, Examples


def snapshot_without_gpu() -> Snapshot:
    sample = msgspec.structs.replace(
        make_sample(()), host=HostSample(total_bytes=64 * GIB, used_bytes=8 * GIB)
    )
    return Snapshot("live", sample=sample)


def make_view(snapshot: Snapshot, chosen: list[Example], *, demo_refusal: str | None = None) -> VramscopeApp:
    app = make_app(FakeFeed(snapshot))
    app.examples = Examples(demo_refusal, chosen.append)
    return app


@pytest.mark.parametrize(("key", "example"), [("d", "demo"), ("r", "replay")])
async def test_a_key_ends_the_view_for_the_example(key: str, example: Example) -> None:
    chosen: list[Example] = []
    app = make_view(snapshot_without_gpu(), chosen)
    async with app.run_test(size=(80, 24)) as pilot:
        shown = shown_text(app)
        assert "Press `d` to watch a small job run out of memory on a simulated GPU, `r` to replay" in shown
        await pilot.press(key)
        await pilot.pause()
    assert chosen == [example]
    assert app._exit


async def test_without_pytorch_the_demo_says_what_to_install_and_the_recording_opens() -> None:
    chosen: list[Example] = []
    app = make_view(snapshot_without_gpu(), chosen, demo_refusal="the demo needs PyTorch: pip install it")
    async with app.run_test(size=(80, 24)) as pilot:
        assert "Press `r` to replay a recorded job on a simulated GPU (the demo needs PyTorch" in shown_text(
            app
        )
        await pilot.press("d")
        await pilot.pause()
        (told,) = notices(app)
        assert "the demo needs PyTorch: pip install it; press r" in told
        assert not app._exit
        await pilot.press("r")
        await pilot.pause()
    assert chosen == ["replay"]


async def test_a_node_with_a_gpu_offers_nothing() -> None:
    chosen: list[Example] = []
    app = make_view(make_snapshot(2), chosen)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("d", "r")
        await pilot.pause()
        assert not {"open_example('demo')", "open_example('replay')"} & {
            it.binding.action for it in app.screen.active_bindings.values()
        }
        assert not app._exit
    assert chosen == []
