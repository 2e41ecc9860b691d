"""A pane of a real tmux in which the real program runs, driven by keys."""

import shlex
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests import REPOSITORY

from ..components import require
from ..waiting import wait_until

DEADLINE_S = 60.0
PROGRAM = f"{sys.executable} -m vramscope"


class Pane:
    """One pane of a tmux server of its own; it says the exit code when the program ends."""

    def __init__(self, command: str, width: int, height: int, variables: dict[str, str]) -> None:
        self._tmux = require("tmux")
        self._server = f"vramscope-{uuid.uuid4().hex[:8]}"
        exports = "".join(f"export {name}='{value}'; " for name, value in variables.items())
        script = f"{exports}{command}; echo exit code $?; exec cat"
        self._folder = tempfile.TemporaryDirectory()
        self._written = Path(self._folder.name) / "written"
        self._written.touch()
        self._seen_bytes, self._seen = -1, ""
        session = ("new-session", "-d", "-x", str(width), "-y", str(height), script)
        copy = ("pipe-pane", f"exec cat >> {shlex.quote(str(self._written))}")
        self._run("-f", "/dev/null", *session, ";", *copy)

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [self._tmux, "-L", self._server, *words],
            check=True,
            capture_output=True,
            encoding="utf-8",
            cwd=REPOSITORY,
        )
        return done.stdout

    def read(self, *, with_styles: bool = False) -> str:
        """Return what the pane shows."""
        return self._run("capture-pane", "-p", *(["-e"] if with_styles else []))

    def look(self) -> str:
        """Return what the pane shows; tmux is asked only where something was written since the last look."""
        written_bytes = self._written.stat().st_size  # tmux copies what it has drawn already
        if written_bytes != self._seen_bytes:
            self._seen, self._seen_bytes = self.read(), written_bytes
        return self._seen

    def wait_for(self, *texts: str) -> str:
        """Wait until the pane shows all of these and return it."""
        shown = ""

        def has_all() -> bool:
            nonlocal shown
            shown = self.look()
            return all(text in shown for text in texts)

        try:
            wait_until(has_all, DEADLINE_S)
        except AssertionError:
            raise AssertionError(f"waited for {texts} in\n{shown}") from None
        return shown

    def leave(self, text: str) -> None:
        """Press Escape and wait until a text is gone; a key right after Escape would be taken for Alt."""
        self.press("Escape")
        wait_until(lambda: text not in self.look(), DEADLINE_S, f"{text!r} to go")

    def press(self, *keys: str) -> None:
        """Press keys, by their names in tmux."""
        self._run("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        """Make the pane larger or smaller."""
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def processes(self) -> list[int]:
        """Return the ids of everything that runs in the pane, or was started from there."""
        pane_id = int(self._run("display-message", "-p", "#{pane_pid}"))
        shell = psutil.Process(pane_id)
        return [pane_id, *(child.pid for child in shell.children(recursive=True))]

    def kill(self) -> None:
        """Close the pane as tmux does when its window is closed."""
        subprocess.run([self._tmux, "-L", self._server, "kill-server"], check=False, capture_output=True)
        self._folder.cleanup()


@contextmanager
def pane(
    command: str, variables: dict[str, str] | None = None, *, width: int = 120, height: int = 32
) -> Iterator[Pane]:
    """Run a command in a pane; it is closed at the end whatever happened."""
    settled = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "tmux-256color", **(variables or {})}
    opened = Pane(command, width, height, settled)
    try:
        yield opened
    finally:
        opened.kill()
