"""Optimizers group tensors by device in C++, which knows the host alone; the groups get their real devices.

With them CUDA's defaults follow by themselves: optimizers and gradient clipping choose their foreach kernels.
"""

from __future__ import annotations

from typing import Any

import torch

from .patching import replace


def install() -> None:
    """Let groups of tensors be named, and parted, by the devices that tensors answer."""
    replace(torch._C, "_group_tensors_by_device_and_dtype", _make_group)


def _make_group(original: Any) -> Any:
    def group(lists: Any, with_indices: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for (_, dtype), (members, indices) in original(lists, with_indices).items():
            devices = [tensor.device for tensor in members[0]]
            for device in dict.fromkeys(devices):
                chosen = [position for position, it in enumerate(devices) if it == device]
                found[device, dtype] = (
                    [[it[position] for position in chosen] if it else it for it in members],
                    [indices[position] for position in chosen] if indices else indices,
                )
        return found

    return group
