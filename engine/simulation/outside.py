"""What a script does that would take more of a real card than its tensors: convolutions, groups, graphs."""

from __future__ import annotations

from typing import Any

import torch

from .alone import EXCHANGES, TRANSFERS, find_group

CONVOLUTIONS = frozenset({"convolution", "convolution_overrideable"})


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
        # Input and output of the largest convolution.
        self.convolution_bytes = 0
        # Whether cuDNN was to try algorithms for a convolution.
        self.has_benchmark = False
        # Whether the script asked torch.compile for CUDA graphs.
        self.has_graphs = False
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

    def note_convolution(self, taken: Any, made: Any) -> None:
        size_bytes = sum(it.numel() * it.element_size() for it in (taken, made))
        self.convolution_bytes = max(self.convolution_bytes, size_bytes)
        self.has_benchmark = self.has_benchmark or bool(torch.backends.cudnn.benchmark)

    def forget_rank(self) -> None:
        """Forget what another rank did that this process was before."""
        self._groups = {}
        self.convolution_bytes = 0
        self.has_benchmark = False

    def describe(self) -> dict[str, Any]:
        """Return what is noted, for JSON (`OutsideUse` in `engine/model/outside.py`)."""
        return {
            "convolution_bytes": self.convolution_bytes,
            "has_benchmark": self.has_benchmark,
            "groups": [
                {"ranks": use.ranks, "is_collective": use.is_collective, "peers": len(use.peers)}
                for use in tuple(self._groups.values())
            ],
            "has_graphs": self.has_graphs,
        }
