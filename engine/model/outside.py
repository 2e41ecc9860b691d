"""What of a program decides how much of its card it takes besides its tensors."""

import msgspec


class GroupUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one process group of a rank does with tensors of the card."""

    ranks: int
    is_collective: bool
    """Whether all its ranks work together, as to reduce or to gather."""
    peers: int
    """Ranks that this one exchanges tensors with, one by one."""


class OutsideUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a process on a simulated card did that takes more of a real one than its tensors."""

    convolution_bytes: int = 0
    """Input and output of the largest convolution."""
    has_benchmark: bool = False
    """Whether torch.backends.cudnn.benchmark was on at a convolution."""
    groups: tuple[GroupUse, ...] = ()
    """Groups of more than one rank that moved tensors of the card."""
    has_graphs: bool = False
    """Whether torch.compile was asked for CUDA graphs; it runs eagerly on a simulated card."""
