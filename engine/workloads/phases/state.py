"""What of a training's memory is known by name, counted storage by storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ...model.phase_memory import TrainingState


def count_state(optimizer: Any) -> TrainingState:
    """Return parameters, gradients and the optimizer's state, as they are now.

    Args:
        optimizer: Of PyTorch, or as Opacus wraps it; of a sharded model the shards of this rank.
    """
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    return TrainingState(
        parameters=sum(_localize(each).numel() for each in parameters),
        parameter_bytes=_count_bytes(parameters),
        gradient_bytes=_count_bytes(each.grad for each in parameters),
        per_sample_gradient_bytes=_count_bytes(
            gradient for each in parameters for gradient in _flatten(getattr(each, "grad_sample", None))
        ),
        optimizer_bytes=_count_optimizer_bytes(optimizer),
    )


def _count_optimizer_bytes(optimizer: Any) -> int:
    """Count the state that lies where its parameter does; step counters of the host are not of the card."""
    return _count_bytes(
        value
        for parameter, state in optimizer.state.items()
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.device == parameter.device
    )


def _count_bytes(tensors: Iterable[torch.Tensor | None]) -> int:
    """Count each storage once."""
    storages = (_localize(each).untyped_storage() for each in tensors if each is not None)
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def _localize(tensor: Any) -> torch.Tensor:
    """Return what this rank has of a tensor."""
    local: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local


def _flatten(value: Any) -> Iterator[torch.Tensor]:
    """Yield a tensor, or those of a list of several backward passes."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list):
        yield from value
