"""A tmux server of our own with one window, in which a program runs as it would for a person."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]


class TmuxWindow:
    """One program in one tmux window; counts the bytes that the program writes."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        mark: str,
        folder: Path,
        size: tuple[int, int] = (200, 70),
    ) -> None:
        self._tmux = [shutil.which("tmux") or "tmux", "-f", "/dev/null", "-S", str(folder / f"{mark}.tmux")]
        self._count = folder / f"{mark}.bytes"
        tap = [sys.executable, "-m", "benchmarks.measure.tap", mark, str(self._count), "--", *command]
        inside = f"cd {shlex.quote(str(ROOT))} && exec {shlex.join(tap)}"
        dimensions = ["-x", str(size[0]), "-y", str(size[1])]
        # A tmux server takes its environment from whoever starts it.
        clean = {name: value for name, value in env.items() if name not in {"TMUX", "TMUX_PANE"}}
        subprocess.run([*self._tmux, "new-session", "-d", *dimensions, inside], env=clean, check=True)

    def __enter__(self) -> "TmuxWindow":
        """Return the window, to be closed at the end of a with block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the window and its server."""
        self._run("kill-server")

    @property
    def bytes_written(self) -> int:
        """How many bytes the program has written, to a tenth of a second."""
        return int(self._count.read_text()) if self._count.exists() else 0

    def picture(self) -> str:
        """Return the text that the window shows."""
        return self._run("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        """Press keys, named as tmux names them."""
        self._run("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size."""
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    def wait_for(self, text: str, timeout_s: float) -> None:
        """Return once the window shows a text.

        Raises:
            TimeoutError: It did not; the message holds what it showed instead.
        """
        deadline_s = time.monotonic() + timeout_s
        while text not in self.picture():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{text!r} did not appear in {timeout_s:g} s:\n{self.picture()}")
            time.sleep(0.05)

    def _run(self, *arguments: str) -> str:
        env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        result = subprocess.run(
            [*self._tmux, *arguments], env=env, capture_output=True, text=True, check=False
        )
        return result.stdout
