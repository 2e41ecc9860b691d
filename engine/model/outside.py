"""What of a program decides how much of its card it takes besides its tensors."""

import msgspec

# Passes of a convolution: itself, and the gradients of its input and of its weight.
FORWARD, BACKWARD_DATA, BACKWARD_FILTER = 1, 2, 4


class GroupUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one process group of a rank does with tensors of the card."""

    ranks: int
    is_collective: bool
    """Whether all its ranks work together, as to reduce or to gather."""
    peers: int
    """Ranks that this one exchanges tensors with, one by one."""


class Convolution(msgspec.Struct, frozen=True, array_like=True):
    """A convolution that cuDNN would compute on the card."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    groups: int
    is_transposed: bool
    dtype: str
    is_channels_last: bool
    has_benchmark: bool
    """Whether torch.backends.cudnn.benchmark was on."""
    allows_tf32: bool


class OutsideUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a process on a simulated card did that takes more of a real one than its tensors."""

    convolutions: tuple[tuple[Convolution, int], ...] = ()
    """The largest that differ in shapes or flags, each with the sum of the passes that were computed."""
    groups: tuple[GroupUse, ...] = ()
    """Groups of more than one rank that moved tensors of the card."""
    has_graphs: bool = False
    """Whether torch.compile was asked for CUDA graphs; it runs eagerly on a simulated card."""
