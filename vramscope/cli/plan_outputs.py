"""The files of a plan that training frameworks read."""

from typing import NamedTuple

from vramscope.engine.errors import UsageError
from vramscope.exporters.plan.outputs import ENCODERS, PipelineSplit


class Outputs(NamedTuple):
    """What there is for frameworks."""

    contents: dict[str, bytes]
    """By name of the file."""
    left_out: list[str]
    """A sentence for each framework that cannot be told of the split, with the reason."""


def encode_outputs(split: PipelineSplit) -> Outputs:
    """Return a file for each framework that can be told of a split."""
    outputs = Outputs({}, [])
    for name, encode in ENCODERS.items():
        try:
            outputs.contents[name] = encode(split)
        except UsageError as error:
            outputs.left_out.append(f"{name} is not written: {error}")
    return outputs
