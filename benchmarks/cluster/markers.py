"""From a sample to the screen: when the cell of a device became another, by the bytes of the terminal.

One device of every played node has another height at each sample. The bytes that the program wrote are given
to an emulator of a terminal, in the pieces in which they came; a cell that shows the height of a sample after
a piece has shown it when that piece came. Both times are of the monotonic clock of this machine.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyte

from vramscope.tui.draw.bars import level_glyph
from vramscope.tui.draw.glyphs import UNICODE

from .scripted import MARKER_SHARES

Taken = Mapping[str, Sequence[tuple[int, float]]]
"""Number and moment of every sample, by the name under which a node is seen."""
_CELL = re.compile(r"(127\.\d+\.\d+\.\d+)[^\w.](.)")
"""Name of a node, what stands between, and its first device."""


@dataclass
class Seen:
    """What came to the screen of a while."""

    latencies_s: list[float] = field(default_factory=list)
    """From a sample to its cell, in order."""
    overtaken: int = 0
    """Samples that a newer one replaced before they were drawn."""
    nodes: int = 0
    """Nodes whose cells were seen."""


def glyph_of(seq: int) -> str:
    """Return what the marker of a sample looks like."""
    return level_glyph(MARKER_SHARES[seq % len(MARKER_SHARES)], UNICODE)


def find_seen(
    chunks: Iterable[tuple[float, bytes]],
    taken: Taken,
    window_s: tuple[float, float],
    columns: int,
    rows: int,
) -> Seen:
    """Return how long the samples of a while took to the screen.

    Args:
        chunks: What the program wrote, with the moment of each piece.
        taken: When samples were taken.
        window_s: First and last moment of samples that count.
        columns: Of the terminal.
        rows: Of the terminal.
    """
    screen = pyte.Screen(columns, rows)
    stream, shown, drawn = pyte.ByteStream(screen), _Shown(taken), Seen()
    for came_s, chunk in chunks:
        screen.dirty.clear()
        stream.feed(chunk)
        lines = screen.display if screen.dirty else []
        for row in screen.dirty:
            for name, glyph in _CELL.findall(lines[row]):
                shown.note(name, glyph, came_s, window_s, drawn)
    drawn.nodes = len(shown.last_seq)
    drawn.latencies_s.sort()
    return drawn


class _Shown:
    """The newest sample that was seen of each node."""

    def __init__(self, taken: Taken) -> None:
        self._seqs = {name: [seq for seq, _ in its] for name, its in taken.items()}
        self._times = {name: [time_s for _, time_s in its] for name, its in taken.items()}
        self._glyphs: dict[str, str] = {}
        self.last_seq: dict[str, int] = {}

    def note(self, name: str, glyph: str, came_s: float, window_s: tuple[float, float], drawn: Seen) -> None:
        """Take a cell as it is; one that has not changed says nothing."""
        if name not in self._seqs or self._glyphs.get(name) == glyph:
            return
        self._glyphs[name] = glyph
        at = self._find(name, glyph, came_s)
        last = self.last_seq.get(name)
        if at is None or (last is not None and self._seqs[name][at] <= last):
            return
        self.last_seq[name] = self._seqs[name][at]
        if last is not None and window_s[0] <= self._times[name][at] <= window_s[1]:
            drawn.latencies_s.append(came_s - self._times[name][at])
            drawn.overtaken += self._seqs[name][at] - last - 1

    def _find(self, name: str, glyph: str, came_s: float) -> int | None:
        """Return the newest sample by then that looks so."""
        newest = bisect_right(self._times[name], came_s) - 1
        for at in range(newest, max(-1, newest - len(MARKER_SHARES)), -1):
            if glyph_of(self._seqs[name][at]) == glyph:
                return at
        return None
