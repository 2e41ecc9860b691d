"""Why one configuration stands before another: which part of the time differs."""

from collections.abc import Iterator, Sequence

import msgspec

from ..time_model import StepTime
from .model import JointConfiguration

PARTS = {
    "compute_s": "kernels",
    "tensor_s": "collectives of tensor ranks",
    "pipeline_s": "transfers between stages",
    "bubble_s": "bubble",
    "data_s": "collectives of data ranks",
    "optimizer_s": "optimizer",
}
LEAST_SHARE = 0.1
"""Of the difference: parts below it are not named."""


def explain(configurations: Sequence[JointConfiguration]) -> Iterator[JointConfiguration]:
    """Yield configurations with their reasons: the first beside the second, each other beside the one
    before."""
    for number, configuration in enumerate(configurations):
        if len(configurations) == 1:
            yield configuration
            return
        other = configurations[number - 1 if number else 1]
        reason = compare_times(configuration.time, other.time, "next" if number == 0 else "one before")
        yield msgspec.structs.replace(configuration, reasons=(reason,))


def compare_times(own: StepTime, other: StepTime, name: str) -> str:
    """Return by how much a step is faster or slower than another, and in which parts."""
    difference = own.total_s - other.total_s
    parts = {words: getattr(own, part) - getattr(other, part) for part, words in PARTS.items()}
    named = [each for each in parts.items() if abs(each[1]) > LEAST_SHARE * abs(difference)]
    named.sort(key=lambda each: (each[1] * difference < 0, -abs(each[1])))
    what = ", ".join(f"{words} {seconds:+.3g} s" for words, seconds in named if seconds)
    share = abs(difference) / other.total_s
    word = "faster" if difference < 0 else "slower"
    return f"{share:.1%} {word} than the {name}" + (f": {what}" if what else "")
