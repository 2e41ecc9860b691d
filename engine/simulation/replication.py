"""Copies between devices as `torch.nn.DataParallel` asks for them: whole, in parts, and together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tensors = Sequence[Any]


def install() -> None:
    """Give torch the functions of a CUDA build that copy to several devices at once."""
    low = torch._C
    low._broadcast = _broadcast
    low._broadcast_coalesced = lambda tensors, devices, buffer_bytes: _broadcast_all(tensors, devices)
    low._scatter = _scatter
    low._gather = _gather
    torch.cuda.nccl.is_available = lambda tensors: False


def _broadcast(tensor: Any, devices: Sequence[int]) -> list[Any]:
    """Return a tensor on each device; where it is already, it is itself."""
    return [tensor.cuda(device) for device in devices]


def _broadcast_all(tensors: Tensors, devices: Sequence[int]) -> list[list[Any]]:
    """Return the tensors of each device."""
    return [[tensor.cuda(device) for tensor in tensors] for device in devices]


def _scatter(tensor: Any, devices: Sequence[int], sizes: Any, dim: int, streams: Any = None) -> list[Any]:
    """Return the parts of a tensor, one on each device until there are no more."""
    parts = tensor.chunk(len(devices), dim) if sizes is None else tensor.split(list(sizes), dim)
    return [part.contiguous().cuda(device) for part, device in zip(parts, devices)]


def _gather(tensors: Tensors, dim: int, destination: int | None) -> Any:
    """Return parts together on one device; -1 names the host."""
    target = "cpu" if destination == -1 else torch.device("cuda", destination or 0)
    return torch.cat([tensor.to(target) for tensor in tensors], dim)
