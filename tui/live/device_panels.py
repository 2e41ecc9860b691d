"""The widget that shows all devices of a node."""

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive

from ...engine.history import History
from ...engine.viewer.snapshot import Snapshot
from ..draw.spans import Line
from ..frame import keys
from ..widgets.line_page import LinePage
from ..widgets.time_bar import fit_chart_s
from .device_graphs import ChartChoice
from .device_picture import DeviceFilter, DevicePicture


class DevicePanels(LinePage):
    """Every device of a node, as large as the room and the number of devices allow."""

    BINDINGS = [*keys.DEVICE_PANELS]

    # UUID of the device that is selected.
    selected: reactive[str | None] = reactive(None)
    # None shows all.
    device_filter: reactive[DeviceFilter | None] = reactive[DeviceFilter | None](None)
    # Seconds of history that the graphs span.
    history_window_s: reactive[float] = reactive(600.0)
    # What the graphs show.
    choice: reactive[ChartChoice] = reactive[ChartChoice]("memory")

    class DeviceSelected(Message):
        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    class DeviceOpened(Message):
        """A device was asked for in full, with Enter or a double click."""

        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._picture = DevicePicture(self.glyphs)
        self._snapshot = Snapshot()
        self._history = History()

    def show(self, snapshot: Snapshot, history: History) -> None:
        """Draw a snapshot; unchanged lines are not repainted."""
        self._snapshot = snapshot
        self._history = history
        self._draw()

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        uuid = self._picture.device_at(offset.x, offset.y + self.scroll_offset.y)
        if uuid is not None:
            self.selected = uuid
            if event.chain == 2:
                self.post_message(self.DeviceOpened(uuid))

    def watch_selected(self, uuid: str | None) -> None:
        """Scroll to the selected device and report it."""
        self._draw()
        place = self._picture.place_of(uuid)
        if uuid is not None and place is not None:
            self.scroll_to_region(Region(0, place.y, 1, place.height), animate=False)
            self.post_message(self.DeviceSelected(uuid))

    def watch_device_filter(self) -> None:
        self._draw()

    def watch_history_window_s(self) -> None:
        self._draw()

    def watch_choice(self) -> None:
        self._draw()

    @property
    def has_room_for_both(self) -> bool:
        """Whether two graphs of a device fit."""
        return self._picture.has_room_for_both

    def action_move(self, across: int, down: int) -> None:
        self.selected = self._picture.neighbor(self.selected, across, down)

    def action_page(self, pages: int) -> None:
        place = self._picture.place_of(self.selected)
        rows = place.height if place else 1
        self.action_move(0, pages * max(1, self.size.height // rows))

    def action_end(self, place: int) -> None:
        """Select the first device, or the last one."""
        if self._picture.devices:
            self.selected = self._picture.devices[place].uuid

    def action_open(self) -> None:
        if self._picture.place_of(self.selected) is None:
            self.action_end(0)
        if self.selected is not None:
            self.post_message(self.DeviceOpened(self.selected))

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        return self._picture.draw(
            self._snapshot,
            self._history,
            width,
            height,
            selected=self.selected,
            device_filter=self.device_filter,
            window_s=fit_chart_s(self._snapshot.replay, self.history_window_s),
            choice=self.choice,
        )
