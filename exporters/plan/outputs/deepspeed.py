"""The bounds of DeepSpeed's `PipelineModule`: what it keeps in `parts`.

It makes them itself by a `partition_method` and takes no list (deepspeedai/DeepSpeed, issue 2974). Where
`uniform` makes the same bounds, that is named; else a subclass has to set them, and docs/plan.md has its few
lines.
"""

import json

from ....engine.errors import UsageError
from .split import PipelineSplit


def encode_deepspeed(split: PipelineSplit) -> bytes:
    """Return the bounds as JSON: stage i holds the layers from `parts[i]` up to `parts[i + 1]`.

    Layers are counted as the graph has them, for a `PipelineModule` that lists the same.

    Raises:
        UsageError: `PipelineModule` runs one piece on each device, and the plan has several.
    """
    if split.layout.virtual_stages > 1:
        raise UsageError("DeepSpeed gives each device one stage, and the plan gives it several pieces")
    parts = list(split.parts)
    content = {
        "num_stages": len(split.stages),
        "num_layers": parts[-1],
        "parts": parts,
        "partition_method": "uniform" if parts == split_by_count(parts[-1], len(split.stages)) else None,
    }
    return json.dumps(content, indent=2).encode() + b"\n"


def split_by_count(layers: int, stages: int) -> list[int]:
    """Return the bounds that `partition_method="uniform"` makes: the first stages take what is left over."""
    share, rest = divmod(layers, stages)
    return [number * share + min(number, rest) for number in range(stages + 1)]
