"""What a script does that would take more of a real card than its tensors: convolutions, groups, graphs."""

from __future__ import annotations

from math import prod
from typing import Any, Callable

import torch

from .alone import EXCHANGES, TRANSFERS, find_group

# Each with the place of its input among the arguments: weight and sizes follow, and its result or gradient is
# before it.
CONVOLUTIONS = {
    "convolution": 0,
    "convolution_overrideable": 0,
    "convolution_backward": 1,
}
# As in `engine/model/outside.py`, which is not loaded here.
FORWARD, BACKWARD_DATA, BACKWARD_FILTER = 1, 2, 4
# Sizes and flags, in the order of `Convolution` in `engine/model/outside.py`.
ConvolutionKey = tuple[Any, ...]
# A loop over images of all sizes would else fill the memory of the process.
MOST_CONVOLUTIONS = 4096
# The largest decide what is taken; the others are not sent.
SENT_CONVOLUTIONS = 32


class _GroupCount:
    """What one group of so many ranks does with tensors of the card."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.is_collective = False
        # Members that this rank exchanges tensors with, one by one.
        self.peers: set[int] = set()


class OutsideUses:
    """What a process has done so far; the probe reads it from a thread of its own."""

    def __init__(self) -> None:
        # Each convolution by its sizes and flags, with the passes that were made of it.
        self._convolutions: dict[ConvolutionKey, int] = {}
        # Whether the script asked torch.compile for CUDA graphs.
        self.has_graphs = False
        # Called at each of them.
        self.watch: Callable[[ConvolutionKey, int], object] = lambda key, passes: None
        # Groups that moved tensors of the card, by the names that torch gives them.
        self._groups: dict[str, _GroupCount] = {}

    def note_group(self, function: Any, args: Any) -> None:
        """Note what a group does with tensors of the card."""
        group = find_group(args)
        if group is None or group.size() < 2:
            return
        use = self._groups.setdefault(group.group_name, _GroupCount(group.size()))
        name = function._schema.name
        if name in EXCHANGES:
            use.peers.update(set(range(group.size())) - {group.rank()})
        elif name in TRANSFERS:
            use.peers.add(args[2] if isinstance(args[2], int) else -1)
        else:
            use.is_collective = True

    def note_convolution(self, name: str, args: Any, made: Any) -> None:
        """Note a convolution, or the gradients of one, that cuDNN would compute."""
        flags = torch.backends.cudnn
        if not flags.enabled:
            return
        place = CONVOLUTIONS[name]
        taken, weight = args[place : place + 2]
        key = (
            tuple(taken.shape),
            tuple(weight.shape),
            tuple((args[0] if place else made).shape),
            # The size of a bias is before the strides of a gradient.
            args[8 + place],
            args[6 + place],
            str(taken.dtype).rpartition(".")[2],
            _is_channels_last(taken) or _is_channels_last(weight),
            flags.benchmark,
            _allows_tf32(),
        )
        passes = BACKWARD_DATA * args[10][0] + BACKWARD_FILTER * args[10][1] if place else FORWARD
        if key not in self._convolutions and len(self._convolutions) >= MOST_CONVOLUTIONS:
            self._convolutions = dict(self._list_largest(MOST_CONVOLUTIONS // 2))
        self._convolutions[key] = self._convolutions.get(key, 0) | passes
        self.watch(key, passes)

    def _list_largest(self, most: int) -> list[tuple[ConvolutionKey, int]]:
        items = tuple(self._convolutions.items())
        return sorted(items, key=lambda it: sum(map(prod, it[0][:3])), reverse=True)[:most]

    def forget_rank(self) -> None:
        """Forget what another rank did that this process was before."""
        self._groups = {}
        self._convolutions = {}

    def describe(self) -> dict[str, Any]:
        """Return what is noted, for JSON (`OutsideUse` in `engine/model/outside.py`)."""
        return {
            "convolutions": self._list_largest(SENT_CONVOLUTIONS),
            "groups": [
                {"ranks": use.ranks, "is_collective": use.is_collective, "peers": len(use.peers)}
                for use in tuple(self._groups.values())
            ],
            "has_graphs": self.has_graphs,
        }


def _is_channels_last(tensor: Any) -> bool:
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    if layout is None or tensor.is_contiguous():
        return False
    return bool(tensor.is_contiguous(memory_format=layout))


def _allows_tf32() -> bool:
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # the script uses the newer setting
        return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")
