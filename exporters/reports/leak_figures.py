"""What a finding of a leak says in figures, read from its evidence."""

from collections.abc import Sequence
from typing import NamedTuple

from ...analyzers.leak.wording import GROWN, RATE
from ...analyzers.leak_source.inquirer import SOURCE
from ...engine.model import Finding
from ...engine.units import MIB


class LeakFigures(NamedTuple):
    """One leak; None where the finding does not tell."""

    leaked_mib: float | None
    rate_mib_per_min: float | None
    sources: tuple[str, ...]


def read_figures(finding: Finding) -> LeakFigures:
    """Return how much has leaked, how fast, and from where."""
    values = {evidence.name: evidence.value for evidence in finding.evidence}
    grown, rate = _number(values.get(GROWN)), _number(values.get(RATE))
    sources = tuple(str(it.value) for it in finding.evidence if it.name == SOURCE and it.value is not None)
    return LeakFigures(
        None if grown is None else grown / MIB, None if rate is None else rate * 60.0 / MIB, sources
    )


def _number(value: float | int | str | None) -> float | None:
    return None if value is None or isinstance(value, str) else float(value)


def add_known(figures: Sequence[float | None]) -> float | None:
    """Return the sum of the figures that are known; None where none is."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None
