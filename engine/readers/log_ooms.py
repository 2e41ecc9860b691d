"""Out-of-memory errors in the text of a log: one for each that happened, however often it was printed."""

from typing import NamedTuple

from .framework_lines import find_rank
from .oom_notes import OomNotes
from .oom_text import OomText, parse_oom_text

_MOST_KNOWN = 1 << 12


class LogOom(NamedTuple):
    """One error."""

    rank: int | None
    """As its line tells it."""
    said: OomText

    @property
    def subject(self) -> str:
        """Who ran out of memory; the number of a GPU is the process's own."""
        if self.rank is not None:
            return f"rank {self.rank}"
        return "a device" if self.said.device is None else f"GPU {self.said.device}"


class LogOoms:
    """Finds the errors."""

    def __init__(self) -> None:
        self.first_line = 0
        self._notes = OomNotes()
        self._known: set[LogOom] = set()

    @property
    def count(self) -> int:
        """Errors so far."""
        return self._notes.count

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the first errors, and how many there are."""
        count = self.count
        which = "1 out-of-memory error is" if count == 1 else f"{count:,} out-of-memory errors are"
        head = f"{which} in the text, the first at line {self.first_line}"
        return (head, *self._notes.notes) if count else ()

    def observe(self, number: int, line: str) -> LogOom | None:
        """Take a line; return the error in it, None where there is none or one that was printed before.

        Args:
            number: Of the line.
            line: As it stands in the log.
        """
        said = parse_oom_text(line)
        if said is None:
            return None
        error = LogOom(find_rank(line), said)
        # A launcher prints the error of a process again when it ends.
        if error in self._known:
            return None
        if len(self._known) < _MOST_KNOWN:
            self._known.add(error)
        self.first_line = self.first_line or number
        self._notes.add(f"line {number:,}: {error.subject} ran out of memory, {said.sentence}")
        return error
