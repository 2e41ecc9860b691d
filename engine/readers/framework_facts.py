"""What a framework's log tells beside its lines of memory: capacity, retries, computed figures."""

import re

from ..units import GIB, MIB, format_bytes
from .framework_lines import COLOUR, find_rank
from .series_record import MOST_BYTES

_CAPACITY = re.compile(r"\bCUDA capacity: (.{1,80}?) with (\d[\d.]{0,20})GiB memory")
_COUNT = re.compile(r"\b(\d{1,15}) CUDA (memory allocation retries|OOM errors thrown)\b")
_THEORY = re.compile(
    r"Theoretical memory footprints(?: \(estimated\))?: weight and optimizer=\s*(\d[\d.]{0,20}) MB"
    r"(?:, activation=(\d[\d.]{0,20}) MB, total=(\d[\d.]{0,20}) MB)?"
)


class FrameworkFacts:
    """Keeps what was told of each rank."""

    def __init__(self) -> None:
        self.totals: dict[int | None, int] = {}
        """Capacity in bytes, by rank."""
        self.names: dict[int | None, str] = {}
        """Name of the device, by rank."""
        self.retries: dict[int | None, int] = {}
        self.ooms: dict[int | None, int] = {}
        """Errors so far, by rank, as the program counts them."""
        self._theory: dict[str, int] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about figures that were computed."""
        return tuple(
            f"line {line:,} tells a theoretical figure, which is left out: {text}"
            for text, line in list(self._theory.items())[:2]
        )

    def observe(self, number: int, line: str) -> None:
        """Take a line; most are none of these."""
        if "CUDA" in line:
            self._observe_device(COLOUR.sub("", line))
        elif "Theoretical" in line:
            match = _THEORY.search(line)
            if match is not None and len(self._theory) < 2:
                self._theory.setdefault(_word_theory(match), number)

    def _observe_device(self, text: str) -> None:
        capacity, count = _CAPACITY.search(text), _COUNT.search(text)
        if capacity is not None:
            size = _read_size(capacity[2], GIB)
            if size is not None:
                self.totals[find_rank(text)] = size
                if capacity[1].isprintable():
                    self.names[find_rank(text)] = capacity[1].strip()
        if count is not None:
            counts = self.retries if count[2].startswith("memory") else self.ooms
            counts[find_rank(text)] = int(count[1])


def _word_theory(match: re.Match[str]) -> str:
    state, activations, total = (_show(match[number]) for number in (1, 2, 3))
    parts = f"{state} of weights and optimizer"
    return parts if match[3] is None else f"{parts}, {activations} of activations, {total} in all"


def _show(text: str | None) -> str:
    return format_bytes(None if text is None else _read_size(text, MIB))


def _read_size(text: str, unit: int) -> int | None:
    try:
        size = round(float(text) * unit)
    except ValueError:
        return None
    return size if 0 < size < MOST_BYTES else None
