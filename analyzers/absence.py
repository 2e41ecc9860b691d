"""What the verdict says where there is no device: the cause, in forms that stay sentences when cut."""

import re
from collections.abc import Iterator

from ..engine.model import Sample
from .left_out import describe_mismatch

_NONE = "No GPU"


def describe_absence(sample: Sample, *, is_recorded: bool = False) -> Iterator[tuple[str, ...]]:
    """Yield the clauses on a node without devices, each from its complete form to its shortest.

    Args:
        sample: Without devices.
        is_recorded: Whether it comes from a file; `vramscope doctor` knows nothing about that machine.
    """
    if sample.devices_left_out:
        yield describe_mismatch(sample)
        return
    if is_recorded and not sample.notes:
        yield ("No device was recorded at this moment", "No device recorded")
        return
    yield _describe_cause(sample.notes[0] if sample.notes else "none was found on this node")
    if is_recorded:
        return
    yield ("vramscope doctor says what was looked for", "see vramscope doctor", "")


def _describe_cause(note: str) -> tuple[str, ...]:
    """Word a note, then without its remedy, its parentheses and its explanation."""
    reason = _join(note.strip().rstrip("."))
    fact = re.split(r"(?:;|\.) ", reason, maxsplit=1)[0]
    plain = re.sub(r"\s*\([^()]*\)", "", fact)
    head = ": ".join(plain.split(": ")[:2])
    return tuple(dict.fromkeys((reason, fact, plain, head)))


def _join(note: str) -> str:
    """Return a note as the cause of there being no GPU, with `no` said once."""
    what, _, cause = note.partition(": ")
    if what.startswith("No "):
        return f"{_NONE}: {cause}" if cause else note
    article = re.match(r"(?:The|A|An) ", note)
    return f"{_NONE}: {note[0].lower() + note[1:]}" if article else f"{_NONE}: {note}"
