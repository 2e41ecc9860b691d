"""Runs that play one after the other, such as the configurations of a sweep; what has no traces is passed."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import InputFileError
from ..viewer.snapshot import ReplayPart
from .tapes import Tape

_MOST_NAMED = 2
_MOST_REASON = 160


class PlaylistEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One run of several."""

    name: str
    """Such as `TP 8 PP 64`."""
    state: str
    """What became of it, in a word or two."""
    path: Path | None = None
    """One of its traces; None where it has none."""
    absence: str = ""
    """What became of it where it has none, such as `ran out of memory`: it follows one name or several."""
    peak_bytes: int | None = None
    theoretical_bytes: int | None = None
    static_bytes: int | None = None


class ReadingLeft(Exception):  # noqa: N818  # no error: something newer was asked for
    """Raised by whoever follows the reading of a run that is not wanted any more."""


OpenEntry = Callable[[PlaylistEntry, Callable[[float], None]], Sequence[Tape]]
"""Opens the tapes of an entry that has a path; its second argument is told the share that was read."""


class OpenedEntry(NamedTuple):
    """A run that is ready to be played."""

    place: int
    """Its place among all entries."""
    tapes: Sequence[Tape]


class Playlist:
    """Runs in order, those without traces among them.

    Args:
        entries: All of them.
        open_entry: Opens one.
    """

    def __init__(self, entries: Sequence[PlaylistEntry], open_entry: OpenEntry) -> None:
        self._entries = entries
        self._open_entry = open_entry
        self._playable = [at for at, entry in enumerate(entries) if entry.path is not None]
        self._number_of = {at: number for number, at in enumerate(self._playable, 1)}
        self._refused: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def name(self, index: int) -> str:
        """Return how an entry is called."""
        return self._entries[index].name

    def part(self, index: int) -> ReplayPart:
        """Return what screens say of an entry that has traces."""
        entry = self._entries[index]
        return ReplayPart(
            number=self._number_of[index],
            total=len(self._playable),
            name=entry.name,
            state=entry.state,
            peak_bytes=entry.peak_bytes,
            theoretical_bytes=entry.theoretical_bytes,
            static_bytes=entry.static_bytes,
        )

    def find(self, index: int, direction: int) -> int | None:
        """Return the first entry from a place on that can be played; None where there is none.

        Args:
            index: The place, which counts too.
            direction: 1 for onwards, -1 for back.
        """
        able = [at for at in self._playable if at not in self._refused and (at - index) * direction >= 0]
        return min(able, key=lambda at: abs(at - index), default=None)

    def step(self, index: int, places: int) -> int | None:
        """Return the entry that many further that can be played; the last one where there are fewer.

        Args:
            index: From where.
            places: Entries that can be played; negative for back.
        """
        direction = 1 if places > 0 else -1
        at = index
        found = None
        for _ in range(min(abs(places), len(self._entries))):
            further = self.find(at + direction, direction)
            if further is None:
                break
            at = found = further
        return found

    def open(
        self, index: int, direction: int, on_read: Callable[[float], None] = lambda _: None
    ) -> OpenedEntry | None:
        """Open the first entry from a place on that can be read; None where there is none.

        What cannot be read is told by `describe_passed` from then on.

        Args:
            index: The place, which counts too.
            direction: 1 for onwards, -1 for back.
            on_read: Called with the share of an entry that was read; may raise `ReadingLeft`.

        Raises:
            ReadingLeft: Something newer was asked for.
            OutputFileError: There is no room for what has to be kept beside memory.
        """
        at: int | None = index
        while at is not None and (at := self.find(at, direction)) is not None:
            try:
                return OpenedEntry(at, self._open_entry(self._entries[at], on_read))
            except InputFileError as error:
                self._refused[at] = str(error)
        return None

    def describe_passed(self, passed: range) -> str:
        """Return in sentences why entries are not played; empty where all of them can be.

        Args:
            passed: Their places.
        """
        absent = [at for at in passed if 0 <= at < len(self) and self._entries[at].path is None]
        counted = Counter(self._entries[at].absence for at in absent)
        sentences = []
        for absence, count in counted.items():
            names = [self.name(at) for at in absent if self._entries[at].absence == absence]
            more = f" and {count - _MOST_NAMED:,} more" if count > _MOST_NAMED else ""
            joined = (", " if more else " and ").join(names[:_MOST_NAMED])
            sentences.append(f"{joined}{more} {absence}: no trace.")
        for at in passed:
            if at in self._refused:
                sentences.append(f"{self.name(at)} is skipped: {_shorten(self._refused[at])}.")
        return " ".join(sentences)


def _shorten(reason: str) -> str:
    return reason if len(reason) <= _MOST_REASON else f"{reason[: _MOST_REASON - 1]}…"
