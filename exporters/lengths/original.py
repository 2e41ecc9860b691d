"""A study by length as the table of Opacus's memory visualiser, which calls MiB MB."""

from collections.abc import Iterator

from ...analyzers.planning.lengths import PANELS, make_series
from ...engine.model.phase_memory import LengthStudy, PrivacyMode
from ...engine.units import MIB
from .words import name_memory

_WIDTH = 80
_STAGE = 20
_CELL = 10


def describe_study_as_original(study: LengthStudy) -> str:
    """Return the table, or one table an algorithm where several are compared.

    The loss counts as part of the forward pass: the original's model computes it there.
    What ran out of memory, or was not reached, is `N/A`.
    """
    tables = ("\n".join(_describe(study, mode)) for mode in study.privacy_modes)
    return "\n".join(tables) + "\n"


def _describe(study: LengthStudy, mode: PrivacyMode) -> Iterator[str]:
    yield ""
    yield "=" * _WIDTH
    yield "MEMORY USAGE SUMMARY TABLE"
    yield "=" * _WIDTH
    yield "Stage".ljust(_STAGE) + "".join(str(length).rjust(_CELL) for length in study.lengths)
    yield "-" * _WIDTH
    for series in make_series(study, mode, PANELS):
        if series.is_measured:
            yield series.name.ljust(_STAGE) + "".join(_show(value) for value in series.values_bytes)
    yield "=" * _WIDTH
    yield "单位: MB (内存差异)"
    # Facts that the original never had to tell.
    if len(study.privacy_modes) > 1:
        yield f"dp-mode: {mode}"
    if study.is_simulated:
        yield "simulated"
    if name_memory(study) == "resident":
        yield "cpu: resident memory"


def _show(value_bytes: int | None) -> str:
    return ("N/A" if value_bytes is None else f"{value_bytes / MIB:.1f}").rjust(_CELL)
