"""What a joint plan may choose from."""

import msgspec

from ....engine.errors import UsageError
from ..theory import BF16, NumberFormat
from ..theory.training import Attention, Recompute

RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
ZERO_STAGES = (0, 1, 2, 3)
MEMORY_SHARE = 0.9
"""Of a device's memory that a plan fills: the rest is for the CUDA context, NCCL and fragmentation, which
the memory theory does not count."""

MOST_MICRO_BATCH = 1024


class JointOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The batch, and what is searched."""

    global_batch: int
    """Sequences of a step, over all ranks."""
    seq_length: int
    max_tensor: int | None = None
    """Most tensor ranks; None: as many as the smallest node has devices."""
    zero_stages: tuple[int, ...] = ZERO_STAGES
    recomputes: tuple[Recompute, ...] = RECOMPUTES
    max_micro_batch: int = 32
    """Most sequences of a micro-batch."""
    context: int = 1
    """Context-parallel ranks; they are given, not searched."""
    memory_share: float = MEMORY_SHARE
    top: int = 10
    """How many configurations are wanted."""
    numbers: NumberFormat = BF16
    attention: Attention = "fused"


def check_options(options: JointOptions) -> None:
    """Refuse what cannot be planned with.

    Raises:
        UsageError: A number is out of its range.
    """
    for name in ("global_batch", "seq_length", "max_micro_batch", "context", "top"):
        if getattr(options, name) < 1:
            raise UsageError(f"{name.replace('_', ' ')} is {getattr(options, name)}; expected at least 1")
    if options.max_micro_batch > MOST_MICRO_BATCH:
        raise UsageError(
            f"most sequences of a micro-batch are {options.max_micro_batch:,}; expected at most "
            f"{MOST_MICRO_BATCH:,}"
        )
    if options.max_tensor is not None and options.max_tensor < 1:
        raise UsageError(f"most tensor ranks are {options.max_tensor}; expected at least 1")
    if not 0 < options.memory_share <= 1:
        raise UsageError(f"a memory share of {options.memory_share:g}; expected above 0 and at most 1")
    if not options.zero_stages or not set(options.zero_stages) <= set(ZERO_STAGES):
        raise UsageError(f"ZeRO stages {options.zero_stages}; expected some of 0, 1, 2 and 3")
    if not options.recomputes or not set(options.recomputes) <= set(RECOMPUTES):
        raise UsageError(f"recomputation {options.recomputes}; expected some of none, selective and full")
