"""What tests of the screen of one device share: how one gets there, and ticks that follow each other."""

import msgspec

from tests.tui.canned import FakeFeed
from tests.tui.canned_ranks import history_of
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.device.screen import DeviceScreen

SIZE = (120, 44)


def on_device(app: VramscopeApp) -> DeviceScreen:
    assert isinstance(app.screen, DeviceScreen)
    return app.screen


def feed_of(snapshot: Snapshot) -> FakeFeed:
    return FakeFeed(snapshot, history=history_of(snapshot, ticks=60))


def later(snapshot: Snapshot, seq: int, **changes: object) -> Snapshot:
    """Return the snapshot of another tick, with nothing changed but what is named."""
    assert snapshot.sample is not None
    sample = msgspec.structs.replace(
        snapshot.sample, seq=seq, time_s=snapshot.sample.time_s + seq - snapshot.sample.seq
    )
    return msgspec.structs.replace(snapshot, sample=sample, **changes)


def rows(app: VramscopeApp) -> list[str]:
    return [strip.text for strip in app.screen._compositor.render_strips()]
