"""Standard error without the lines of the simulated device: they are kept, and told with the run."""

from __future__ import annotations

from typing import TextIO

SIMULATED = "vramscope simulate: "
_OF_THE_START = "the cards have "
"""The line that a card is larger than the host; whether tensors fit was weighed before."""


class OverheardErrors:
    """Stands for stderr.

    Args:
        stream: What stderr was.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_kept = False
        self._heard: list[str] = []

    @property
    def notices(self) -> tuple[str, ...]:
        """What the simulated device said of this run, oldest first."""
        return tuple(line for line in self._heard if not line.startswith(_OF_THE_START))

    def write(self, text: str) -> int:
        """Write text on, or keep a notice and the end of its line."""
        if text.startswith(SIMULATED):
            self._heard.append(text.removeprefix(SIMULATED).strip())
            self._is_kept = not text.endswith("\n")
        elif self._is_kept and text == "\n":
            self._is_kept = False
        else:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what was written."""
        self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
