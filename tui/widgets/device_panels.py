"""All devices in one widget: drawn line by line, repainted only where a line changed."""

from collections.abc import Callable

from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView

from ...engine.bus.snapshot import Snapshot
from ...engine.history import History
from ...engine.model import DeviceSample
from ..drawing.glyphs import Glyphs
from ..theme import role_classes, role_rules

DeviceFilter = Callable[[DeviceSample], bool]
"""Says whether a device is shown."""


class DevicePanels(ScrollView, can_focus=True):
    """Every device of a node, as large as the room and the number of devices allow."""

    COMPONENT_CLASSES = role_classes("device-panels")
    DEFAULT_CSS = "DevicePanels {\n" + role_rules("device-panels") + "\n}"

    selected: reactive[str | None] = reactive(None)
    """UUID of the device that is selected."""
    zoomed: reactive[str | None] = reactive(None)
    """UUID of the one device that fills the widget; None shows all."""
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
        """A device was asked for in full, with Enter or a second click."""

        def __init__(self, uuid: str) -> None:
            super().__init__()
            self.uuid = uuid

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.glyphs = glyphs

    def show(self, snapshot: Snapshot, history: History) -> None:
        """Draw a snapshot; lines that did not change are left alone."""

    @staticmethod
    def natural_height(device_count: int, width: int) -> int:
        """Return the rows at which this many devices are drawn well; more only makes the graphs taller."""
        rows_each = {1: 16, 2: 10, 3: 9, 4: 9}.get(device_count, 5 if device_count <= 8 else 3)
        return device_count * rows_each if device_count <= 16 else 3 + -(-device_count * 9 // max(1, width))

    @staticmethod
    def minimum_height(device_count: int, width: int) -> int:
        """Return the fewest rows in which every device can be seen without scrolling."""
        return device_count if device_count <= 16 else 2 + -(-device_count // max(1, width))
