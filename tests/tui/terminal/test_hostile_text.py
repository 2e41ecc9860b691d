"""Names, reasons and notes of others are drawn on every screen, and none of them steers the terminal."""

import io

import msgspec
import pytest
from rich.console import Console

from tests.analyzers.fleet.nodes import make_node
from tests.analyzers.fleet.several import SeveralNodes, make_nodes_app
from tests.hostile import HOSTILE, list_forbidden, poison
from tests.tui.canned import (
    FakeFeed,
    make_app,
    make_finding,
    make_hub,
    make_past,
    make_sample,
    make_snapshot,
)
from tests.tui.canned_ranks import make_job
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import VramscopeApp
from vramscope.tui.draw.pens import PLAIN, change_pen
from vramscope.tui.terminal.abilities import TerminalAbilities
from vramscope.tui.terminal.compositor import pen_of

SIZES = [(80, 24), (200, 50)]
WAYS = [["2"], ["3"], ["enter"], ["escape", "1", "K"], ["escape", "i"], ["escape", "s"], ["escape", "ctrl+p"]]
"""Keys that lead from screen to screen of a node, through its dialogs."""
FLEET_WAYS = [["g"], ["escape", "N"], ["escape", "enter"], ["3"]]


def _draw(app: VramscopeApp) -> str:
    """Return everything that is on the screen, and check the bytes that draw it."""
    shown = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
    assert not list_forbidden(shown)
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor")
    written = app.screen._compositor.render_full_update().render_segments(console)
    assert not [it for it in written if not it.isprintable() and it not in "\x1b\r\b\n"]
    assert "\x1b]" not in written
    return shown


def _make_snapshot() -> Snapshot:
    devices, ranks = make_job(3)
    sample = msgspec.structs.replace(make_sample(tuple(devices), notes=("a note",)), ranks=tuple(ranks))
    findings = tuple(poison(make_finding(number), HOSTILE) for number in range(3))
    return make_snapshot(
        sample=poison(sample, HOSTILE), findings=findings, hub=poison(make_hub(), HOSTILE), reason=HOSTILE
    )


@pytest.mark.parametrize("is_ascii", [False, True])
@pytest.mark.parametrize("size", SIZES)
async def test_no_screen_of_a_node_is_steered(size: tuple[int, int], is_ascii: bool) -> None:
    feed = FakeFeed(_make_snapshot())
    for past in make_past(3, 20):
        feed.history.add(poison(past, HOSTILE))
    app = make_app(feed, abilities=TerminalAbilities(is_ascii=is_ascii))
    async with app.run_test(size=size) as pilot:
        app.notify(HOSTILE, title=HOSTILE, markup=False)
        for keys in [[], *WAYS]:
            await pilot.press(*keys)
            await pilot.pause()
            shown = _draw(app)
            assert "52;c;" in shown, keys
            assert is_ascii <= shown.isascii()


@pytest.mark.parametrize("size", SIZES)
async def test_no_screen_of_a_fleet_is_steered(size: tuple[int, int]) -> None:
    nodes = [poison(make_node(name, level="low", oom=1), HOSTILE) for name in ("n1", "n2")]
    lost = Snapshot(node=f"n3{HOSTILE}", connection="lost", silent_s=41.0, reason=HOSTILE)
    app = make_nodes_app(SeveralNodes(*nodes, lost))
    async with app.run_test(size=size) as pilot:
        for keys in [[], *FLEET_WAYS]:
            await pilot.press(*keys)
            await pilot.pause()
            assert "52;c;" in _draw(app), keys


def test_a_link_in_a_style_is_never_written() -> None:
    from rich.color import ColorSystem
    from rich.style import Style

    pen = pen_of(Style(bold=True, link="https://x\x1b\\\x1b]52;c;QUFB\x07"), ColorSystem.TRUECOLOR)
    assert "]" not in change_pen(PLAIN, pen)
