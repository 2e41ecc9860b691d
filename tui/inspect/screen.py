"""The screen of one file: what held the memory of a device, and what ran out."""

from collections.abc import Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList

from ...engine.units import format_bytes
from ...exporters.stack_text import show_frame
from ..draw.glyphs import Glyphs
from ..frame import keys
from ..screens.file_view import FileScreen
from ..widgets.marked_list import MarkedList
from ..widgets.one_line import OneLine, Piece, join_pieces
from .inspected import REPORT_WIDTH, Inspected, InspectedAdvice, InspectedDevice
from .picture import InspectPicture, wrap_verdict
from .stacks import NARROW_CELLS, InspectStacks, draw_heading
from .text import TextScreen

HEAD_ROWS = 2
FOOT_ROWS = 2
LEAST_STACK_ROWS = 4
LEAST_PICTURE_ROWS = 2
MOST_PICTURE_ROWS = 40


class InspectScreen(FileScreen[Inspected]):
    """One file, one device at a time.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.INSPECT]
    NAME = "vramscope inspect"
    DEFAULT_CSS = """
    InspectScreen {
        #picture { height: 2; }
        #stacks { height: 1fr; }
    }
    """

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self.glyphs = glyphs
        self.inspected: Inspected | None = None
        """The file, once it was read."""
        self._shown = 0
        self._advice: dict[int, InspectedAdvice] = {}
        self.picture = InspectPicture(glyphs, id="picture")
        self._heading = OneLine(id="heading")
        self.stacks = InspectStacks(glyphs, id="stacks")
        self._facts = OneLine(id="facts")

    def compose(self) -> ComposeResult:
        """Yield the parts, top to bottom."""
        yield self._title
        yield self._verdict
        yield self.picture
        yield self._heading
        yield self.stacks
        yield self._facts
        yield self._keys

    def on_mount(self) -> None:
        """Give the list of stacks the keys."""
        self.stacks.focus()

    @property
    def device(self) -> InspectedDevice | None:
        """The device that is shown."""
        if self.inspected is None or not self.inspected.devices:
            return None
        return self.inspected.devices[self._shown]

    @property
    def is_advised(self) -> bool:
        """Whether the traces of all devices were replayed, as far as there are any."""
        inspected = self.inspected
        return inspected is not None and (
            inspected.advise is None or len(self._advice) == len(inspected.devices)
        )

    @property
    def report(self) -> str:
        """Everything as text, with what was simulated as far as it is there."""
        inspected = self.inspected
        sections = [self._advice[place].report for place in sorted(self._advice)]
        told = [] if inspected is None else [inspected.report]
        return "\n".join([*told, *(f"{section}\n" for section in sections if section)])

    def take_advice(self, place: int, advice: InspectedAdvice) -> None:
        """Show what other settings would have done to the device at a place."""
        self._advice[place] = advice
        if place == self._shown:
            self.picture.advise(self._describe_advice())

    def show(self, found: Inspected) -> None:
        """Show a file that was read."""
        self.inspected = inspected = found
        self._keys.hide(
            [
                *([] if len(inspected.devices) > 1 else ["choose_device"]),
                *([] if any(device.failures for device in inspected.devices) else ["failures"]),
                *([] if inspected.advise is not None and inspected.devices else ["settings"]),
            ]
        )
        self._show_device(0)

    def _show_device(self, place: int) -> None:
        self._shown = place
        self._show_title()
        device = self.device
        if device is None:
            self._verdict.set_pieces([Piece("nothing was allocated on any device")])
            return
        self._facts.set_pieces(self._draw_facts(device))
        self._arrange(self.size.width, self.size.height)
        is_recorded = bool(device.segment_map.segments) or not device.whole.value_bytes
        self.stacks.show(device.stacks, is_recorded=is_recorded)
        self.picture.show(device, self._describe_advice())

    def _describe_advice(self) -> tuple[str, ...]:
        """Return what is said below the bar; why there is no advice stands in the dialog alone."""
        if self.inspected is None or self.inspected.advise is None or self.device is None:
            return ()
        advice = self._advice.get(self._shown)
        if advice is not None:
            return () if advice.is_refused else advice.sentences
        return () if self.device.history is None else (self._computing,)

    @property
    def _computing(self) -> str:
        return f"other allocator settings, simulated: computing{self.glyphs.ellipsis}"

    def _show_title(self) -> None:
        inspected = self.inspected
        if inspected is None:
            return
        facts = [[Piece(inspected.file, "strong")], [Piece(inspected.kind)]]
        if len(inspected.devices) > 1 and self.device is not None:
            facts.append(
                [Piece(f"{self.device.name}, {self._shown + 1} of {len(inspected.devices)}", "accent")]
            )
        # In front, where no width cuts it: nothing of a simulated device was measured.
        label = [Piece("simulated device  ", "high")] if inspected.is_simulated else []
        self._title.set_pieces([*label, Piece("vramscope inspect  ", "accent"), *join_pieces(facts)])

    def _draw_verdict(self, device: InspectedDevice) -> list[Piece]:
        pieces = [Piece(wrap_verdict(device, self.size.width, self.size.height)[0], "strong")]
        if device.failures:
            pieces.insert(0, Piece(f"{self.glyphs.risk('critical')} ", "critical"))
        return pieces

    def _draw_facts(self, device: InspectedDevice) -> list[Piece]:
        """Return the line above the keys: what failed before, else the settings."""
        if device.failures:
            count = len(device.failures)
            more = f"{count - 1} more, o shows them" if count > 1 else "o shows where"
            failed = [Piece("out of memory ", "critical"), Piece(device.failures[0])]
            return join_pieces([failed, [Piece(more, "muted")]])
        settings = self.inspected.settings if self.inspected else ""
        return [Piece("settings ", "muted"), Piece(settings or "none told", "muted")]

    @on(events.Resize)
    def fit(self, event: events.Resize) -> None:
        """Share the rows anew."""
        self._arrange(event.size.width, event.size.height)

    def _arrange(self, width: int, height: int) -> None:
        """Share the rows between picture and list: a short list leaves its room to the picture."""
        if self.device is not None:
            told = [Piece(_count_stacks(self.device), "muted")] if width >= NARROW_CELLS else []
            self._heading.set_pieces([Piece(draw_heading(width), "muted")], told)
            self._verdict.set_pieces(self._draw_verdict(self.device))
        rows = height - HEAD_ROWS - FOOT_ROWS - 1
        listed = len(self.device.stacks) if self.device else 0
        list_rows = max(LEAST_STACK_ROWS, min(listed, rows * 2 // 5))
        self.picture.styles.height = max(LEAST_PICTURE_ROWS, min(MOST_PICTURE_ROWS, rows - list_rows))
        self._facts.display = rows > LEAST_PICTURE_ROWS + LEAST_STACK_ROWS

    @on(InspectStacks.Opened)
    def open_stack(self, message: InspectStacks.Opened) -> None:
        """Show a stack from its innermost frame to its outermost."""
        message.stop()
        group = message.group
        count = f"{group.count:,} {'block' if group.count == 1 else 'blocks'}"
        heading = f"{format_bytes(group.size_bytes)} in {count}, {group.share:.1%} of what is live"
        lines = [
            show_frame(frame, REPORT_WIDTH, "> " if frame is group.headline else "  ")
            for frame in group.frames
        ]
        self.app.push_screen(TextScreen(heading, "\n".join(lines or ["no stack was recorded"])))

    def action_report(self) -> None:
        """Show everything as text."""
        if self.inspected is not None:
            self.app.push_screen(TextScreen(self.inspected.file, self.report))

    def action_settings(self) -> None:
        """Show what other allocator settings would have done to the device."""
        if self.inspected is None or self.device is None:
            return
        advice = self._advice.get(self._shown)
        text = f"{self._computing}\n\nThe screen shows it once it is there." if advice is None else ""
        text = text or "\n\n".join(advice.sentences if advice else ())
        self.app.push_screen(TextScreen(f"Other allocator settings, simulated: {self.device.name}", text))

    def action_failures(self) -> None:
        """Show which requests failed."""
        device = self.device
        if device is None:
            return
        text = device.failure_report or "no request failed, as far as the file tells"
        self.app.push_screen(TextScreen(f"Out of memory: {device.name}", text))

    def action_choose_device(self) -> None:
        """Ask for the device to show."""
        if self.inspected is None:
            return
        if len(self.inspected.devices) < 2:
            self.notify("The file tells of one device.", timeout=3)
            return
        self.app.push_screen(DeviceChoiceScreen(self.inspected.devices, self._shown), self._take_choice)

    def _take_choice(self, place: int | None) -> None:
        if place is not None:
            self._show_device(place)


def _count_stacks(device: InspectedDevice) -> str:
    noun = "stack" if device.stack_groups == 1 else "stacks"
    if device.stack_groups > len(device.stacks):
        return f"the largest {len(device.stacks):,} of {device.stack_groups:,} {noun}"
    return f"{device.stack_groups:,} {noun}"


class DeviceChoiceScreen(ModalScreen[int | None]):
    """Asks for a device; answers with its place in the file.

    Args:
        devices: Devices of the file.
        shown: Place of the one that is shown.
    """

    BINDINGS = [*keys.DEVICE_CHOICE]

    def __init__(self, devices: Sequence[InspectedDevice], shown: int) -> None:
        super().__init__()
        self._devices = devices
        self._shown = shown

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
