"""The key that opens sweeps in folders."""

from typing import TYPE_CHECKING

from ..controls.tools import PromptTool

if TYPE_CHECKING:
    from ...analyzers.planning.sweep.index import SweepIndex
    from .screen import ReplayAsked

# A sentence with a path in it takes longer to read.
NOTE_S = 10.0


class SweepTool(PromptTool["SweepIndex"]):
    """Sweeps in folders."""

    QUESTION = "Sweeps over TP and PP"
    EXAMPLE = "e.g. memory_traces_scaling log"
    HINT = "folders with traces or logs, at any depth; then flags of vramscope sweep"

    def open(self, found: "SweepIndex") -> None:
        from .index_screen import SweepIndexScreen

        app = self._app
        screen = SweepIndexScreen(replay=self._explain_replay, leave=app.step_back)
        app.show_over(screen)
        screen.show(found)

    def _explain_replay(self, asked: "ReplayAsked") -> None:
        """Notify how to replay a layout elsewhere: this view does not change."""
        from ...engine.files.base.input_file import show_path

        path = asked.cells[asked.at].path
        if path is not None:
            message = f"Replay it in another shell: vramscope replay {show_path(path)}"
            self._app.notify(message, timeout=NOTE_S)


TOOL = SweepTool
