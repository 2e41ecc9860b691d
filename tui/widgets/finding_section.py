"""The findings of a device in full: the sentence, its evidence, how it was concluded and what to do."""

from collections.abc import Iterator, Sequence

from ...analyzers.error_words import EXPLAINED, explain_error
from ...analyzers.out_of_memory_track import OOM_MET
from ...engine.model import Evidence, Finding
from ...engine.model.finding import is_last_word
from ...engine.units import format_bytes
from ..drawing.glyphs import Glyphs
from ..drawing.spans import Line, Role, Span
from .device_fields import wrap_words
from .title_line import format_time

INDENT = "   "
LATEST_SPAN_S = 1e9
"""Seconds beyond this are a moment, not a span."""

PROCESS_NAMES = ("process", "pid")
"""Evidence that is the number of a process: a name of digits, and no quantity."""


def draw_findings(findings: Sequence[Finding], clock: str, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the findings that are open, and errors that ended the last process, in the order given.

    Args:
        findings: Findings of one device.
        clock: Clock of the samples that they are about.
        width: Cells across.
        glyphs: Characters to draw with.
    """
    lines: list[Line] = []
    for finding in findings:
        if finding.is_open or is_last_word(finding):
            lines += _draw(finding, clock, width, glyphs)
    return lines


def _draw(finding: Finding, clock: str, width: int, glyphs: Glyphs) -> Iterator[Line]:
    mark = f" {glyphs.risk(finding.severity)} "
    since = f" (since {format_time(finding.opened_s, clock)})"
    room = width - len(INDENT) - 1
    for number, text in enumerate(wrap_words(finding.title + since, room)):
        yield [Span(mark if number == 0 else INDENT, finding.severity), Span(text, "strong")]
    is_error = finding.kind == OOM_MET
    explained = explain_error(finding, lambda time_s: format_time(time_s, clock)) if is_error else ""
    left = [found for found in finding.evidence if not _is_told(found, finding)]
    left = [found for found in left if found.name not in EXPLAINED] if is_error else left
    evidence = ", ".join(_tell(found, clock) for found in left if found.value is not None or not is_error)
    told: tuple[tuple[str, Role], ...] = (
        (explained, "text"),
        (evidence, "text"),
        (finding.method, "muted"),
        (f"To do: {finding.advice}" if finding.advice else "", "text"),
    )
    for sentence, role in told:
        for text in wrap_words(sentence, room) if sentence else ():
            yield [Span(INDENT), Span(text, role)]


def _is_told(evidence: Evidence, finding: Finding) -> bool:
    """Tell a path that stands in the sentence or in the advice already."""
    value = evidence.value
    return isinstance(value, str) and "/" in value and value in f"{finding.title} {finding.advice}"


def _tell(evidence: Evidence, clock: str) -> str:
    """Return one number with its name; bytes in the unit that suits them, moments as the time of day."""
    value = evidence.value
    if evidence.unit == "s" and isinstance(value, int | float) and value > LATEST_SPAN_S:
        return f"{evidence.name} {format_time(value, clock)}"
    if value is None:
        return f"{evidence.name} —"
    if evidence.unit.startswith("bytes") and isinstance(value, int | float):
        return f"{evidence.name} {format_bytes(int(value))}{evidence.unit.removeprefix('bytes')}"
    if evidence.name in PROCESS_NAMES:
        return f"{evidence.name} {value}"
    number = f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else value
    unit = f" {evidence.unit}" if evidence.unit else ""
    return f"{evidence.name} {number}{unit}"
