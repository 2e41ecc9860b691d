"""Ranks: which one this process is, and how several of them share a model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from ...model.phase_memory import PhaseTraining
from .refusal import RefusedError


@dataclass(frozen=True)
class Place:
    """This process among those of torchrun."""

    rank: int
    world_size: int
    local_rank: int


def find_place() -> Place:
    """Return where torchrun put this process; one process alone is rank 0 of 1."""
    if "RANK" not in os.environ:
        return Place(0, 1, 0)
    rank, world_size, local_rank = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
    )
    return Place(rank, world_size, local_rank)


@contextmanager
def joined(training: PhaseTraining, device: torch.device) -> Iterator[None]:
    """Be in one process group with the other ranks."""
    if training.strategy is None:
        yield
        return
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    yield
    # Not where something failed: the others may wait for this rank, and it must not wait for them.
    torch.distributed.destroy_process_group()


def share_model(training: PhaseTraining, module: nn.Module, place: Place) -> nn.Module:
    """Return the model as its strategy shares it among ranks.

    Raises:
        RefusedError: Opacus cannot train it so.
    """
    if training.strategy is None:
        return module
    if training.strategy == "fsdp2":
        return _shard(training, module)
    if training.privacy != "none":
        from opacus.distributed import DifferentiallyPrivateDistributedDataParallel

        private: nn.Module = DifferentiallyPrivateDistributedDataParallel(module)
        return private
    on_cuda = next(module.parameters()).device.type == "cuda"
    return nn.parallel.DistributedDataParallel(module, device_ids=[place.local_rank] if on_cuda else None)


def _shard(training: PhaseTraining, module: nn.Module) -> nn.Module:
    if training.privacy == "ghost":
        try:
            from opacus.utils.fsdp_utils import FSDP2Wrapper
        except ImportError:
            raise RefusedError(
                "--strategy fsdp2 with --dp-mode ghost needs an Opacus that has FSDP2Wrapper (1.5.4 or newer)"
            ) from None
        from .privacy import teach_opacus

        teach_opacus()
        wrapped: nn.Module = FSDP2Wrapper(module)
        return wrapped
    from torch.distributed.fsdp import fully_shard

    for block in getattr(module, "blocks", ()):
        fully_shard(block)
    fully_shard(module)
    return module
