"""Differential privacy by Opacus: what it can train, and how it wraps a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ...model.phase_memory import PhaseTraining
from ..llama import RMSNorm
from .models import RefusedError


class ModelRepair:
    """Refuses what Opacus cannot train, or lets it replace that."""

    def __init__(self, training: PhaseTraining) -> None:
        self._training = training
        self.notes: tuple[str, ...] = ()

    def __call__(self, module: nn.Module) -> nn.Module:
        """Return what may be trained.

        Raises:
            RefusedError: Opacus cannot train it; the text has its validator's words.
        """
        if self._training.privacy == "none":
            return module
        from opacus.validators import ModuleValidator

        errors = ModuleValidator.validate(module, strict=False)
        if not errors:
            return module
        words = "; ".join(dict.fromkeys(" ".join(str(error).split()) for error in errors))
        if not self._training.is_fixed:
            raise RefusedError(
                f"Opacus cannot train this model: {words}. --fix replaces such modules "
                "(ModuleValidator.fix); --dp-mode none trains without Opacus"
            )
        before = {name: type(each).__name__ for name, each in module.named_modules()}
        try:
            module = ModuleValidator.fix(module)
        except Exception as error:  # what pickle raises is many things
            raise RefusedError(f"--fix: Opacus cannot copy this model by pickle: {error}") from error
        after = {name: type(each).__name__ for name, each in module.named_modules()}
        replaced = [
            f"{name} ({it} by {after.get(name)})" for name, it in before.items() if after.get(name) != it
        ]
        left = ModuleValidator.validate(module, strict=False)
        if left:
            raise RefusedError(f"Opacus cannot train this model, and --fix does not help: {left[0]}")
        self.notes = (f"ModuleValidator.fix replaced {', '.join(replaced) or 'nothing'}",)
        return module


def make_private(
    training: PhaseTraining, module: nn.Module, optimizer: Any, *, world_size: int
) -> tuple[nn.Module, Any, Callable[..., Any]]:
    """Return model, optimizer and criterion as Opacus wraps them.

    The batch size is that of one rank.

    Raises:
        RefusedError: Opacus refuses this model.
    """
    from opacus import PrivacyEngine

    teach_opacus()
    total = training.batch_size * world_size
    criterion = nn.CrossEntropyLoss()
    mode = "ghost_fsdp" if training.strategy == "fsdp2" else training.privacy
    options = {
        "module": module,
        "optimizer": optimizer,
        "data_loader": DataLoader(TensorDataset(torch.arange(total)), batch_size=total),
        "noise_multiplier": training.noise_multiplier,
        "max_grad_norm": training.max_grad_norm,
        "grad_sample_mode": mode,
        "poisson_sampling": False,
    }
    engine = PrivacyEngine(accountant="rdp")
    try:
        if training.privacy == "ghost":
            made = engine.make_private(**options, criterion=criterion)
            return made[0], made[1], made[2]
        made = engine.make_private(**options)
    except NotImplementedError as error:
        words = " ".join(str(error).split())
        raise RefusedError(
            f"Opacus cannot train this model: {words}; --dp-mode none trains without Opacus"
        ) from error
    return made[0], made[1], criterion


def teach_opacus() -> None:
    """Register gradients by sample of our own norm with Opacus, and silence its warnings."""
    from opacus.grad_sample import register_grad_sampler

    warnings.filterwarnings("ignore", module=r"opacus\..*")
    warnings.filterwarnings("ignore", message=".*Full backward hook is firing.*")
    warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor.*")
    register_grad_sampler(RMSNorm)(_sample_norm_gradients)


def _sample_norm_gradients(
    layer: RMSNorm, activations: list[torch.Tensor], backprops: torch.Tensor
) -> dict[nn.Parameter, torch.Tensor]:
    """Gradient of the weight by sample, of shape (batch, hidden)."""
    products = layer.normalize(activations[0]) * backprops
    return {layer.weight: products.flatten(1, -2).sum(1)}
