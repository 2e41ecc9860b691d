"""The first frame is what the application shows a moment later, and needs no Textual."""

import subprocess
import sys

import pytest

from tests.tui.canned import FakeFeed, make_app, make_past, make_snapshot
from tests.tui.emulator import Cell, Emulator
from vramscope.engine.history import History
from vramscope.engine.settings import Settings, ThemeName
from vramscope.tui.live.device_panels import DevicePanels
from vramscope.tui.live.first_frame import FrameSize, draw_first_frame
from vramscope.tui.terminal.abilities import ColorDepth, TerminalAbilities


def _visible(cell: Cell) -> Cell:
    return cell if cell.text.strip() else cell._replace(foreground="")


@pytest.mark.parametrize(
    ("size", "count", "depth", "is_ascii", "theme"),
    [
        (FrameSize(80, 24), 2, "truecolor", False, None),
        (FrameSize(200, 50), 8, "256", False, "light"),
        (FrameSize(120, 32), 8, "16", True, "high-contrast"),
        (FrameSize(80, 24), 1, "none", False, None),
        (FrameSize(60, 12), 16, "truecolor", False, "mono"),
        (FrameSize(30, 5), 40, "truecolor", False, None),  # with a scroll bar
    ],
)
async def test_the_first_frame_has_the_cells_of_the_application(
    size: FrameSize, count: int, depth: ColorDepth, is_ascii: bool, theme: ThemeName | None
) -> None:
    snapshot = make_snapshot(count)
    history = History()
    for sample in make_past(count):
        history.add(sample)
    abilities = TerminalAbilities(is_ascii=is_ascii, color_depth=depth)
    app = make_app(FakeFeed(snapshot, history=history), settings=Settings(theme=theme), abilities=abilities)
    shown, first = Emulator(*size), Emulator(*size)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.pause()
        shown.feed(app.screen._compositor.render_full_update().render_segments(app.console))
        panels = app.live.query_one(DevicePanels)
        rows, columns = panels.region.bottom, size.width - panels.show_vertical_scrollbar
    frame = draw_first_frame(snapshot, history, size, abilities, theme=theme, remedy=app.attachment.remedy)
    first.feed(frame)
    assert "GPU" in first.text()[0]
    for own, others in zip(first.cells()[:rows], shown.cells()[:rows], strict=True):
        assert [_visible(cell) for cell in own[:columns]] == [_visible(cell) for cell in others[:columns]]
    assert not "".join(first.text()[rows:]).strip()


def test_the_first_frame_is_drawn_without_textual() -> None:
    script = (
        "import sys, vramscope.tui.live.first_frame as f\n"
        "from vramscope.engine.history import History\n"
        "from vramscope.engine.viewer.snapshot import Snapshot\n"
        "from vramscope.tui.terminal.abilities import TerminalAbilities\n"
        "f.draw_first_frame(Snapshot(), History(), f.FrameSize(80, 24), TerminalAbilities())\n"
        "sys.exit('textual' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
