"""What the verdict says where there is no device: the cause, in forms that stay sentences when cut."""

import re
from collections.abc import Iterator

from ..engine.model import Sample
from .left_out import describe_mismatch

_NONE = "No GPU"


def describe_absence(sample: Sample) -> Iterator[tuple[str, ...]]:
    """Yield the clauses on a node without devices, each from its complete form to its shortest."""
    if sample.devices_left_out:
        yield describe_mismatch(sample)
        return
    yield _describe_cause(sample.notes[0] if sample.notes else "none was found on this node")
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
