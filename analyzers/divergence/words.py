"""What a finding on a rank that is unlike its peers says."""

from typing import NamedTuple

from ...engine.units import format_bytes

KIND = "divergence"


class Words(NamedTuple):
    """A finding in sentences."""

    title: str
    method: str
    advice: str


def word_growth(name: str, peers: int, grown_bytes: int, *, is_first: bool) -> Words:
    """Return what is said of a rank that grows away from its peers.

    Args:
        name: What the rank is called.
        peers: How many others there are.
        grown_bytes: By how much its floor has grown apart.
        is_first: Whether it was the first of its group.
    """
    others = "its peer" if peers == 1 else f"its {peers} peers"
    first = " first" if is_first and peers > 1 else ""
    return Words(
        f"{name} grows away from {others}{first}: +{format_bytes(grown_bytes)} at step ends, and rising",
        "Floors of ranks that should be alike (live bytes at step ends): its distance from the middle one "
        "rose over six spans without falling back or slowing down, three times further than its peers moved",
        f"Look for what only {name} does or keeps: logging, evaluation, saving, or data of its own",
    )


def word_straggler(name: str, peers: int, peak_bytes: int, middle_bytes: int, limit_bytes: int) -> Words:
    """Return what is said of a rank whose peaks limit its group.

    Args:
        name: What the rank is called.
        peers: How many others there are.
        peak_bytes: Its peak.
        middle_bytes: The middle peak of the group.
        limit_bytes: Most that its allocator can reserve.
    """
    others = "its peer reaches" if peers == 1 else f"its {peers} peers reach"
    return Words(
        f"{name} limits its group: it peaks at {format_bytes(peak_bytes)} of {format_bytes(limit_bytes)}, "
        f"where {others} {format_bytes(middle_bytes)}",
        "Peaks of ranks of one pipeline stage: the same rank was the highest, near its limit and far above "
        "the middle one, in every block of ten minutes",
        f"Give {name} less: balance the lengths of its batches, or what only it computes and keeps",
    )
