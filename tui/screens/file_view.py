"""Screens of files: a thread reads them while the screen shows its progress."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from textual.binding import Binding

from ..draw.pieces import Piece
from ..frame import keys
from ..terminal.compositor import ThriftyScreen
from ..widgets.one_line import KeyLine, OneLine

if TYPE_CHECKING:
    from ...engine.settings import Settings
    from .terminal_app import TerminalApp

PROGRESS_S = 0.2

FoundT = TypeVar("FoundT")


class FileScreen(ThriftyScreen[None], Generic[FoundT]):
    """Base of the screens that show what was read from files."""

    # Shown in the title until then.
    NAME: ClassVar[str] = ""
    DEFAULT_CSS = """
    FileScreen {
        layout: vertical;
        #verdict { background: $surface; }
        #keys { background: $surface; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._title = OneLine(id="title")
        self._verdict = OneLine(id="verdict")
        self._keys = KeyLine(id="keys")

    @property
    def terminal_app(self) -> "TerminalApp":
        """The application; screens use its clock and its export folder."""
        return cast("TerminalApp", self.app)

    @property
    def report(self) -> str:
        """Everything as text; empty before anything was read."""
        return ""

    def wait(self, sentence: str) -> None:
        self._title.set_pieces([Piece(self.NAME, "accent")])
        self._verdict.set_pieces([Piece(sentence)])

    def show(self, found: FoundT) -> None:
        raise NotImplementedError


ScreenT = TypeVar("ScreenT", bound=FileScreen[Any])


class FileView(Generic[ScreenT, FoundT]):
    """Reads something on a thread, shows the progress meanwhile, and then shows the result on the screen.

    Args:
        screen: Makes the screen.
        read: Called on a thread of its own; may report its progress by `report_progress`.
        wait: Returns the progress text after so many seconds, until `report_progress` is called; None keeps
            the last.
        own_keys: Keys that work on every screen.
        then: Called with the result once it is shown.
    """

    def __init__(
        self,
        screen: Callable[["TerminalApp"], ScreenT],
        read: Callable[[], FoundT],
        wait: Callable[[float], str | None],
        *,
        own_keys: Sequence[Binding] = keys.FILE_WITHOUT_EXPORT,
        then: Callable[[FoundT], object] | None = None,
    ) -> None:
        self._make_screen = screen
        self._read = read
        self._wait = wait
        self.own_keys = own_keys
        self._then = then
        self._progress_text = ""
        # Why nothing can be shown.
        self.refusal: Exception | None = None

    def make_screen(self, app: "TerminalApp") -> ScreenT:
        self.app = app
        self.screen = self._make_screen(app)
        return self.screen

    def begin(self) -> None:
        self._began_s = self.app.clock.monotonic_s()
        self._progress = self.app.set_interval(PROGRESS_S, self._show_progress, name="progress of reading")
        self._show_progress()
        self._loop_context = copy_context()
        self._event_loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_and_show, name="file-reader", daemon=True).start()

    def report_progress(self, sentence: str) -> None:
        """Set the progress text; called on the reading thread.

        Raises:
            InterruptedError: The user has left.
        """
        self._progress_text = sentence
        if self.is_left:
            raise InterruptedError

    @property
    def is_left(self) -> bool:
        return self.app._exit

    def hand_over(self, take: Callable[[], object]) -> None:
        """Run a function in the application, from another thread; nothing happens if it ends meanwhile."""
        with suppress(RuntimeError):  # the loop has ended
            self._event_loop.call_soon_threadsafe(self._do, take, context=self._loop_context)

    def export(self) -> None:
        from ..frame.export import export_and_notify

        app = self.app
        report = self.screen.report
        if not report:
            app.notify("There is nothing to export yet.", timeout=3)
            return
        contents = {".svg": app.export_screenshot().encode(), ".txt": report.encode()}
        export_and_notify(app, contents, app.export_folder, app.clock.wall_s())

    def _show_progress(self) -> None:
        sentence = self._progress_text or self._wait(self.app.clock.monotonic_s() - self._began_s)
        if sentence is not None:
            self.screen.wait(sentence)

    def _read_and_show(self) -> None:
        try:
            found = self._read()
        except Exception as error:  # noqa: BLE001 - reported by whoever runs the application
            self.refusal = None if isinstance(error, InterruptedError) else error
            self.hand_over(self.app.exit)
        else:
            self.hand_over(lambda: self._show(found))

    def _show(self, found: FoundT) -> None:
        self._progress.stop()
        self.screen.show(found)
        if self._then is not None:
            self._then(found)

    def _do(self, take: Callable[[], object]) -> None:
        """Run a function; an error ends the application as one in a message's handler does."""
        if self.is_left or self.app._closing:
            return
        try:
            take()
        except Exception as error:  # noqa: BLE001 - whatever it is, a person must see it
            self.app._handle_exception(error)


def show_file(view: FileView[ScreenT, FoundT], settings: "Settings") -> int:
    """Show what is read until the user quits, and return the exit code.

    Raises:
        UsageError: Nothing can be drawn here.
        VramscopeError: A file cannot be read or understood.
    """
    from ..frame.launch import Shutdown, run_to_end
    from ..terminal.abilities import check_terminal
    from .terminal_app import TerminalApp

    abilities = check_terminal(settings)
    shutdown = Shutdown(lambda: app.call_later(app.exit))
    app = TerminalApp(
        abilities,
        view=view,
        theme=settings.theme,
        on_exit_asked=shutdown.start_countdown,
    )
    code = run_to_end(app, shutdown, settings)
    if view.refusal is not None:
        raise view.refusal
    return code
