"""An application over whose screens sweeps can lie: asked for by their folder, read beside the view."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.binding import Binding

from ...analyzers.planning.sweep.index import IndexedSweep, SweepIndex
from ...engine.clock import Clock
from ...engine.files.base.input_file import show_path
from ..screens.overlay_app import OverlayApp

if TYPE_CHECKING:
    from ..screens.path_prompt import Answer
    from .index_screen import SweepIndexScreen
    from .screen import SweepScreen

QUESTION = "Sweeps over TP and PP"
EXAMPLE = "such as: memory_traces_scaling log"
HINT = "folders of traces, of logs, or trees of both, and flags of vramscope sweep"
NOTE_S = 10.0
"""A sentence with a path in it takes longer to read."""
ReadSweeps = Callable[[str], SweepIndex]
"""Reads sweeps by words: folders, then flags of `vramscope sweep`. Raises a `VramscopeError`."""


class SweepingApp(OverlayApp, inherit_bindings=False):
    """Asks for folders, and shows the sweeps in them over its screens."""

    read_sweeps: ReadSweeps | None = None
    """Reads sweeps; None where none can be read, and then no key is offered."""
    _sweep_text = ""
    _clock: Clock
    _export_folder: Path | None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: where nothing reads sweeps, none is offered."""
        if action == "show_sweep" and self.read_sweeps is None:
            return False
        return super().check_action(action, parameters)

    def offers(self, binding: Binding) -> bool:
        """Return whether help and palette tell of a key."""
        return super().offers(binding) and (binding.action != "show_sweep" or self.read_sweeps is not None)

    def action_show_sweep(self) -> None:
        """Ask for folders, and show the sweeps in them over the present screen."""
        if self.read_sweeps is None:
            return
        from ..screens.path_prompt import PathPrompt

        text = self._sweep_text or "."
        prompt = PathPrompt(QUESTION, self.read_sweeps, text=text, example=EXAMPLE, hint=HINT)
        self.push_screen(prompt, self._show_sweeps)

    def _show_sweeps(self, answer: "Answer[SweepIndex] | None") -> None:
        """Show the list of sweeps, and over it the only one."""
        if answer is None:
            return
        from .export import SweepExport
        from .index_screen import SweepIndexScreen

        self._sweep_text = answer.text
        screen = SweepIndexScreen(self.glyphs, SweepExport(self._clock, self._export_folder))
        self.show_over(screen)
        screen.show(answer.found)
        if len(answer.found.sweeps) == 1:
            self._open_sweep(answer.found.sweeps, answer.found.sweeps[0].name)

    def _open_sweep(self, sweeps: Sequence[IndexedSweep], name: str) -> None:
        from .export import SweepExport
        from .screen import SweepScreen, SweepView

        export = SweepExport(self._clock, self._export_folder)
        self.show_further(SweepScreen(sweeps, SweepView(name), self.glyphs, export))

    def on_sweep_index_screen_sweep_chosen(self, message: "SweepIndexScreen.SweepChosen") -> None:
        """Show the grid of a sweep."""
        self._open_sweep(message.sweeps, message.name)

    def on_sweep_screen_replay_asked(self, message: "SweepScreen.ReplayAsked") -> None:
        """Say how a layout is replayed: this view shows something else, which goes on."""
        path = message.cells[message.at].path
        if path is not None:
            told = f"This view stays with what it shows. In a shell: vramscope replay {show_path(path)}"
            self.notify(told, timeout=NOTE_S, markup=False)
