"""All devices in one widget: drawn line by line, repainted only where a line changed."""

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive

from ...engine.history import History
from ...engine.viewer.snapshot import Snapshot
from ..draw.glyphs import Glyphs
from ..draw.spans import Line
from ..frame import keys
from ..widgets.line_page import LinePage
from .device_grid import DETAIL_ROWS
from .device_layout import MANY_DEVICES
from .device_picture import DeviceFilter, DevicePicture


class DevicePanels(LinePage):
    """Every device of a node, as large as the room and the number of devices allow."""

    BINDINGS = [*keys.DEVICE_PANELS]

    selected: reactive[str | None] = reactive(None)
    """UUID of the device that is selected."""
    device_filter: reactive[DeviceFilter | None] = reactive[DeviceFilter | None](None)
    """Shows only devices for which it is true; None shows all."""
    history_window_s: reactive[float] = reactive(600.0)
    """Seconds of history that the graphs span."""

    class DeviceSelected(Message):
        """Another device was selected."""

        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    class DeviceOpened(Message):
        """A device was asked for in full, with Enter or a double click."""

        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._picture = DevicePicture(glyphs)
        self._snapshot = Snapshot()
        self._history = History()

    def show(self, snapshot: Snapshot, history: History) -> None:
        """Draw a snapshot; lines that did not change are left alone."""
        self._snapshot = snapshot
        self._history = history
        self._draw()

    @staticmethod
    def minimum_height(device_count: int, width: int) -> int:
        """Return the fewest rows in which every device can be read.

        Args:
            device_count: Devices to draw, MIG instances included.
            width: Cells of room.
        """
        if device_count <= MANY_DEVICES:
            return device_count
        return DETAIL_ROWS + -(-device_count // max(1, width // 12))

    def on_click(self, event: events.Click) -> None:
        """Select the device that was clicked; open it on a double click."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        uuid = self._picture.device_at(offset.x, offset.y + self.scroll_offset.y)
        if uuid is not None:
            self.selected = uuid
            if event.chain == 2:
                self.post_message(self.DeviceOpened(uuid))

    def watch_selected(self, uuid: str | None) -> None:
        """Show and tell which device is selected."""
        self._draw()
        place = self._picture.place_of(uuid)
        if uuid is not None and place is not None:
            self.scroll_to_region(Region(0, place.y, 1, place.height), animate=False)
            self.post_message(self.DeviceSelected(uuid))

    def watch_device_filter(self) -> None:
        """Show the devices that match."""
        self._draw()

    def watch_history_window_s(self) -> None:
        """Show another span of history."""
        self._draw()

    def action_move(self, across: int, down: int) -> None:
        """Select the next device in a direction."""
        self.selected = self._picture.neighbor(self.selected, across, down)

    def action_page(self, pages: int) -> None:
        """Move the selection by what fits on the widget."""
        place = self._picture.place_of(self.selected)
        rows = place.height if place else 1
        self.action_move(0, pages * max(1, self.size.height // rows))

    def action_end(self, place: int) -> None:
        """Select the first device, or the last one."""
        if self._picture.devices:
            self.selected = self._picture.devices[place].uuid

    def action_open(self) -> None:
        """Ask for the selected device in full."""
        if self._picture.place_of(self.selected) is None:
            self.action_end(0)
        if self.selected is not None:
            self.post_message(self.DeviceOpened(self.selected))

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        """Return the rows of the picture."""
        return self._picture.draw(
            self._snapshot,
            self._history,
            width,
            height,
            selected=self.selected,
            device_filter=self.device_filter,
            window_s=self.history_window_s,
        )
