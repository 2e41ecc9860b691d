"""What is said of the one of several runs that plays: in the title, in the verdict, and of a device."""

from collections.abc import Iterator

from ...analyzers.sentence import Sentence
from ...analyzers.verdict import Verdict
from ...engine.units import GIB
from ...engine.viewer.snapshot import ReplayPart
from ..draw.spans import Line, Span


def name_part(part: ReplayPart) -> Iterator[tuple[str, str]]:
    """Yield what the title says, each with the same in fewer words: which run, and what became of it."""
    yield part.name, part.name
    yield f"configuration {part.number:,} of {part.total:,}", f"{part.number:,}/{part.total:,}"
    yield part.state, part.state


def judge_part(verdict: Verdict, part: ReplayPart | None) -> Verdict:
    """Return a verdict that also says peak and theory of a run; after what is dangerous.

    Args:
        verdict: What is known about running out of memory.
        part: The run; None where there is one only.
    """
    if part is None or part.peak_bytes is None:
        return verdict
    clause = _describe_peak(part, part.peak_bytes)
    clauses = verdict.sentence.clauses
    is_calm = verdict.level in ("unknown", "low")
    sentence = Sentence((clause, *clauses) if is_calm else (*clauses, (*clause, "")))
    return Verdict(verdict.level, sentence)


def _describe_peak(part: ReplayPart, peak_bytes: int) -> tuple[str, ...]:
    """Return peak and theory; the shortest form names the run, because so small a pane has no title."""
    peak = f"{peak_bytes / GIB:.1f}"
    if part.theoretical_bytes is None or part.error is None:
        return (f"peak {peak} GiB, theory unknown", f"peak {peak} GiB", f"{part.name} {peak} GiB")
    theory = f"{part.theoretical_bytes / GIB:.1f} GiB"
    error = _show_error(part.error)
    return (
        f"peak {peak} GiB, theory {theory} ({error})",
        f"peak {peak}, theory {theory} ({error})",
        f"peak {peak}, theory {theory}",
        f"{part.name} {peak} GiB",
    )


def draw_part(part: ReplayPart | None) -> list[Line]:
    """Return peak, theory, error and static memory of a run in a line; nothing where no theory was logged.

    Args:
        part: The run; None where there is one only.
    """
    if part is None or (part.theoretical_bytes is None and part.static_bytes is None):
        return []
    line: Line = [Span(" peak ", "muted"), Span(_show(part.peak_bytes))]
    line += [Span("   theoretical ", "muted"), Span(_show(part.theoretical_bytes))]
    if part.error is not None:
        line.append(Span(f"   error {_show_error(part.error)}", "strong"))
    if part.static_bytes is not None:
        line += [Span("   static ", "muted"), Span(_show(part.static_bytes))]
    return [line]


def _show(value_bytes: int | None) -> str:
    return "—" if value_bytes is None else f"{value_bytes / GIB:,.1f} GiB"


def _show_error(error: float) -> str:
    """Return an error with its sign; a tenth of a percent is told of small ones."""
    percent = 100 * error
    return f"{percent:+.1f} %" if abs(percent) < 100 else f"{percent:+.0f} %"
