"""A small menu: the device of a file to show."""

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList

from ...engine.units import format_bytes
from ..inspected import InspectedDevice
from ..widgets.marked_list import MarkedList


class DeviceChoiceScreen(ModalScreen[int | None]):
    """Asks for a device; answers with its place in the file.

    Args:
        devices: Devices of the file.
        shown: Place of the one that is shown.
    """

    BINDINGS = [
        Binding(
            "escape,q,d", "dismiss(None)", "cancel", id="choice-cancel", tooltip="Stay with this device."
        ),
        Binding("j", "move(1)", "down", show=False, id="choice-down", tooltip="Next device."),
        Binding("k", "move(-1)", "up", show=False, id="choice-up", tooltip="Previous device."),
    ]

    def __init__(self, devices: Sequence[InspectedDevice], shown: int) -> None:
        super().__init__()
        self._devices, self._shown = devices, shown

    def compose(self) -> ComposeResult:
        """Yield the devices."""
        with Vertical(classes="dialog -narrow"):
            yield Label("Show", classes="dialog--title")
            yield MarkedList((str(place), _describe(each)) for place, each in enumerate(self._devices))
            yield Label("Enter chooses, Esc cancels", classes="dialog--hint")

    def on_mount(self) -> None:
        """Put the cursor on the device that is shown."""
        options = self.query_one(MarkedList)
        options.highlighted = self._shown
        options.focus()

    def action_move(self, places: int) -> None:
        """Move the cursor."""
        self.query_one(MarkedList).move(places)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answer with the device chosen."""
        self.dismiss(event.option_index)


def _describe(device: InspectedDevice) -> str:
    return f"{device.name}  {format_bytes(device.whole.value_bytes)} {device.whole.name}"
