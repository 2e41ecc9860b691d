"""Devices in a running application: keys, mouse, themes, sizes, and what is repainted."""

from textual import events, on
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.screen import Screen

from tests.tui.widgets.devices import gpu, memory, node
from vramscope.engine.history import History
from vramscope.engine.model import DeviceSample, Sample
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.draw.glyphs import UNICODE
from vramscope.tui.frame.theme import default_variables, register_themes
from vramscope.tui.live.device_panels import DevicePanels
from vramscope.tui.live.device_picture import minimum_height
from vramscope.tui.terminal.compositor import ThriftyScreen


class Panels(DevicePanels):
    """Counts what it asks to be repainted."""

    def __init__(self) -> None:
        super().__init__()
        self.repainted: list[Region] = []
        self.draws = 0

    def _draw(self) -> None:
        self.draws += 1
        super()._draw()

    def _repaint(self, rows: list[int]) -> None:
        self.repainted += [Region(0, row, 1, 1) for row in rows]
        super()._repaint(rows)


class Main(ThriftyScreen[None]):
    CSS = "DevicePanels { height: 1fr; }"

    def compose(self) -> ComposeResult:
        yield Panels()


class PanelsApp(App[None]):
    glyphs = UNICODE

    def __init__(self) -> None:
        super().__init__()
        register_themes(self)
        self.theme = "vramscope-dark"
        self.told: list[tuple[str, str]] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return default_variables()

    def get_default_screen(self) -> Screen[None]:
        return Main()

    @on(DevicePanels.DeviceSelected)
    def tell_selected(self, message: DevicePanels.DeviceSelected) -> None:
        self.told.append(("selected", message.uuid))

    @on(DevicePanels.DeviceOpened)
    def tell_opened(self, message: DevicePanels.DeviceOpened) -> None:
        self.told.append(("opened", message.uuid))


def _rows(app: PanelsApp) -> list[str]:
    return [strip.text for strip in app.screen._compositor.render_strips()]


def _tick(devices: list[DeviceSample], history: History, tick: int) -> Snapshot:
    sample = Sample("node03", tick, 1_760_000_000.0 + tick, 1.0, tuple(devices))
    history.add(sample)
    return Snapshot("live", sample=sample)


async def test_before_the_first_snapshot_nothing_is_drawn() -> None:
    app = PanelsApp()
    async with app.run_test(size=(80, 24)):
        assert not "".join(_rows(app)).strip()


async def test_keys_select_and_open() -> None:
    app = PanelsApp()
    async with app.run_test(size=(80, 24)) as pilot:
        panels = app.screen.query_one(Panels)
        panels.show(*node([gpu(index) for index in range(8)]))
        panels.focus()
        await pilot.press("down", "j", "j", "k", "enter", "end", "home", "pagedown", "up")
        selected = [uuid for kind, uuid in app.told if kind == "selected"]
        assert selected == ["GPU-0", "GPU-1", "GPU-2", "GPU-1", "GPU-7", "GPU-0", "GPU-7", "GPU-6"]
        assert ("opened", "GPU-1") in app.told
        assert any(row.startswith("▌6 H100") for row in _rows(app))


async def test_the_mouse_selects_and_opens() -> None:
    app = PanelsApp()
    async with app.run_test(size=(80, 24)) as pilot:
        panels = app.screen.query_one(Panels)
        panels.show(*node([gpu(index) for index in range(8)]))
        await pilot.click(Panels, offset=(10, 7))
        assert app.told == [("selected", "GPU-2")]
        await pilot.click(Panels, offset=(10, 7), times=2)
        assert app.told[-1] == ("opened", "GPU-2")


async def test_only_lines_that_changed_are_repainted() -> None:
    app = PanelsApp()
    async with app.run_test(size=(80, 24)) as pilot:
        panels, history = app.screen.query_one(Panels), History()
        devices = [gpu(index) for index in range(8)]
        for tick in range(121):
            panels.show(_tick(devices, history, tick), history)
        await pilot.pause()
        panels.repainted.clear()
        panels.show(_tick(devices, history, 121), history)
        assert panels.repainted == [], "two minutes in 13 cells: nothing new in one more second"
        warm = DeviceSample(
            "GPU-0", 0, devices[0].name, memory=memory(40), utilization_percent=98.0, temperature_c=65.0
        )
        panels.show(_tick([warm, *devices[1:]], history, 121), history)
        assert {region.y for region in panels.repainted} <= {0, 1, 2}
        assert panels.repainted


async def test_devices_that_do_not_fit_as_rows_stand_in_cells_and_none_is_hidden() -> None:
    app = PanelsApp()
    async with app.run_test(size=(20, 4)) as pilot:
        panels = app.screen.query_one(Panels)
        panels.show(*node([gpu(index) for index in range(8)]))
        await pilot.pause()
        text = " ".join(_rows(app))
        assert [f" {index} " in f" {text} " for index in range(8)] == 8 * [True]
        assert not panels.show_vertical_scrollbar


async def test_more_devices_than_there_is_room_for_scroll_to_the_selected_one() -> None:
    app = PanelsApp()
    async with app.run_test(size=(12, 6)) as pilot:
        panels = app.screen.query_one(Panels)
        panels.show(*node([gpu(index) for index in range(60)]))
        panels.focus()
        await pilot.pause()
        await pilot.press("end")
        await pilot.pause()
        assert panels.show_vertical_scrollbar
        assert panels.selected == "GPU-59"
        assert panels.scroll_offset.y > 0
        panels.post_message(events.MouseScrollUp(panels, 1, 1, 0, -1, 0, False, False, False))
        await pilot.pause()
        panels.show(*node([gpu(index) for index in range(2)]))
        await pilot.pause()
        assert any("H100" in row or " 0 " in row for row in _rows(app))


async def test_filter_and_window_redraw() -> None:
    app = PanelsApp()
    async with app.run_test(size=(120, 30)) as pilot:
        panels = app.screen.query_one(Panels)
        panels.show(*node([gpu(index) for index in range(8)]))
        panels.device_filter = lambda device: device.index == 7
        panels.history_window_s = 120.0
        await pilot.pause()
        assert _rows(app)[0].startswith(" 7 H100")
        assert [row.strip()[:5] for row in _rows(app) if " now" in row] == ["-30 s"]
        panels.history_window_s = 20.0
        await pilot.pause()
        assert [row.strip()[:5] for row in _rows(app) if " now" in row] == ["-16 s"], (
            "the window, less the room for what comes"
        )


async def test_another_theme_changes_the_looks_at_once() -> None:
    app = PanelsApp()
    async with app.run_test(size=(80, 24)) as pilot:
        panels = app.screen.query_one(Panels)
        panels.show(*node([gpu(0)]))
        await pilot.pause()
        before = panels.render_line(0)
        app.theme = "vramscope-light"
        await pilot.pause()
        await pilot.pause()
        assert panels.render_line(0).text == before.text
        assert panels.render_line(0) != before


async def test_resizing_down_to_nothing_and_back() -> None:
    app = PanelsApp()
    async with app.run_test(size=(80, 24)) as pilot:
        panels = app.screen.query_one(Panels)
        panels.show(*node([gpu(index) for index in range(8)]))
        before = _rows(app)
        for width, height in ((1, 1), (0, 0), (300, 80), (40, 10), (80, 24)):
            await pilot.resize_terminal(width, height)
            panels.show(*node([gpu(index) for index in range(8)]))
            await pilot.pause()
        assert _rows(app) == before


async def test_a_pane_of_one_column_comes_to_rest() -> None:
    app = PanelsApp()
    async with app.run_test(size=(1, 1)) as pilot:
        panels = app.screen.query_one(Panels)
        panels.show(*node([gpu(index) for index in range(8)]))
        counts = []
        for _ in range(8):  # each lets what waits be done: a bar that comes and goes draws in every one
            await pilot.pause()
            counts.append(panels.draws)
        assert counts[-1] == counts[3]


def test_the_fewest_rows_in_which_devices_can_be_read_are_told() -> None:
    assert [minimum_height(count, 80) for count in (1, 8, 16)] == [1, 8, 16]
    for count in (64, 128):
        heights = [minimum_height(count, width) for width in (0, 20, 80, 200)]
        assert heights == sorted(heights, reverse=True)
        assert heights[-1] < count
