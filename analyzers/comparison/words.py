"""What a comparison comes to, in sentences."""

from collections.abc import Sequence

from ...engine.units import format_age, format_bytes
from ..sentence import Sentence
from .model import FIGURE_WORDS, Alignment, FoundOnce, SubjectDifference
from .occurrences import OUT_OF_MEMORY


def say_position(position: float | None, alignment: Alignment) -> str:
    """Return a place in a run: `step 312`, `12.5 s`, `3 m 20 s`; a dash where it is unknown."""
    if position is None:
        return "—"
    if alignment == "step":
        return f"step {position:,.0f}"
    return f"{position:.1f} s" if position < 60 else format_age(position)


def say_signed(value_bytes: int) -> str:
    """Return a difference with its sign: `+4.2 GiB`."""
    sign = "+" if value_bytes > 0 else "-" if value_bytes < 0 else ""
    return f"{sign}{format_bytes(abs(value_bytes))}"


def say_percent(percent: float) -> str:
    """Return a share with its sign, in seven cells at most below a hundredfold: `+12.0 %`, `+105 %`."""
    if abs(percent) < 0.05:
        return "0.0 %"
    return f"{percent:+.1f} %" if abs(percent) < 100 else f"{percent:+,.0f} %"


def say_difference(subject: SubjectDifference) -> str:
    """Return how the shown figure differs: `4.2 GiB (12.0 %) higher in B`."""
    shown = subject.shown
    if shown is None:
        return "not measured in both"
    size = shown.difference_bytes
    side = "higher" if shown.difference_bytes > 0 else "lower"
    share = "" if shown.difference_percent is None else f" ({abs(shown.difference_percent):.1f} %)"
    return f"{format_bytes(abs(size))}{share} {side} in B"


def word_verdict(
    subjects: Sequence[SubjectDifference],
    first: SubjectDifference | None,
    most: SubjectDifference | None,
    only_in_a: Sequence[FoundOnce],
    only_in_b: Sequence[FoundOnce],
    alignment: Alignment,
) -> Sentence:
    """Return the verdict; what is most important stands first, and each clause has shorter forms."""
    clauses = [_word_parting(subjects, first, alignment)]
    if first is not None and most is not None and most is not first:
        clauses.append((f"{most.name} differs most: {_word_most(most)}", f"most: {most.name}", ""))
    for run, found in (("B", only_in_b), ("A", only_in_a)):
        errors = [each for each in found if each.kind == OUT_OF_MEMORY]
        if errors:
            where = say_position(errors[0].at, alignment)
            who = errors[0].subject or "a process"
            clauses.insert(
                0, (f"{who} ran out of memory in {run} only, at {where}", f"{run} ran out of memory")
            )
    return Sentence(tuple(clauses))


def _word_parting(
    subjects: Sequence[SubjectDifference], first: SubjectDifference | None, alignment: Alignment
) -> tuple[str, ...]:
    if not any(subject.figures for subject in subjects):
        return ("Nothing can be compared: no figure was measured in both at one time", "nothing to compare")
    shown = None if first is None else first.shown
    if first is None or shown is None:
        return _word_likeness(subjects, alignment)
    where = "from the start" if shown.is_from_start else f"at {say_position(shown.parts_at, alignment)}"
    told = say_difference(first)
    words = FIGURE_WORDS[shown.figure]
    return (
        f"They part {where}: {first.name}'s {words} is {told}",
        f"They part {where}: {first.name}, {told}",
        f"part {where}: {format_bytes(abs(shown.difference_bytes))}",
    )


def _word_likeness(subjects: Sequence[SubjectDifference], alignment: Alignment) -> tuple[str, ...]:
    compared = [subject for subject in subjects if subject.figures]
    longest = max(compared, key=lambda subject: subject.to_position or 0.0)
    who = compared[0].name if len(compared) == 1 else f"{len(compared)} ranks or devices"
    start, end = (
        say_position(place, alignment).removeprefix("step ")
        for place in (longest.from_position, longest.to_position)
    )
    span = f"{start} to {end}" if start != end else start
    unit = "" if alignment == "time" else "steps " if start != end else "step "
    return (
        f"No difference beyond the noise in {unit}{span} of {who}",
        "No difference beyond the noise",
        "no difference",
    )


def _word_most(subject: SubjectDifference) -> str:
    parted = [each for each in subject.figures if each.parts_at is not None]
    largest = max(parted, key=lambda each: abs(each.difference_bytes))
    return f"{FIGURE_WORDS[largest.figure]} by {format_bytes(abs(largest.difference_bytes))}"
