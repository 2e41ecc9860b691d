"""Trains, phase by phase."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import nn

from ...model.phase_memory import PhaseDevice, PhaseTraining
from . import fake_ghost
from .meters import CudaMeter, Meter, PhaseRecorder, ResidentMeter
from .models import Batch, make_model
from .privacy import ModelRepair, make_private
from .ranks import Place, find_place, joined, share_model
from .refusal import RefusedError
from .state import count_state
from .updates import PhaseRequest, RunUpdate, UpdateWriter

_OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
"""Names in `torch.optim`."""


@dataclass
class Setup:
    """All that a step needs."""

    module: nn.Module
    optimizer: Any
    criterion: Callable[..., Any]
    make_batch: Callable[[], Batch]


class PhaseSession:
    """One training, from the model to its last step.

    Args:
        request: What is trained, and on what.
        writer: Where reports go.
    """

    def __init__(self, request: PhaseRequest, writer: UpdateWriter) -> None:
        self._request = request
        self._training = request.training
        self._writer = writer
        self._place = find_place()
        self._device = _choose_device(request, self._place)
        self.meter: Meter = ResidentMeter() if request.kind == "cpu" else CudaMeter()
        """Of the device that is trained on."""
        self._recorder = PhaseRecorder(self.meter, writer)

    def train(self) -> None:
        """Make the model, train it and report each phase.

        Raises:
            RefusedError: It cannot be trained so.
        """
        place = self._place
        training = self._training
        torch.manual_seed(training.seed)
        if self._request.is_fake and training.privacy == "ghost":
            fake_ghost.teach_opacus_to_fake()
            self._writer.send(RunUpdate(notes=(fake_ghost.NOTE,)))
        told = describe_device(self._request, self._device)
        self._writer.send(RunUpdate(device=told, rank=place.rank, world_size=place.world_size))
        load_lazily_imported(training)
        with joined(training, self._device):
            setup = self._set_up()
            torch.manual_seed(training.seed + place.rank)
            for step in range(1 - training.warmup_steps, training.num_steps + 1):
                self._take_step(setup, step)

    def _set_up(self) -> Setup:
        training = self._training
        repair = ModelRepair(self._training)
        with self._recorder.measure("Model Creation"):
            made = make_model(training, self._device, repair)
            module = share_model(training, made.module, self._place)
            kind = getattr(torch.optim, _OPTIMIZERS[training.optimizer])
            optimizer = kind(module.parameters(), lr=training.learning_rate)
        self._writer.send(RunUpdate(model=made.sizes, notes=repair.notes))
        criterion: Callable[..., Any] = nn.CrossEntropyLoss()
        if training.privacy != "none":
            with self._recorder.measure("DP Setup"):
                module, optimizer, criterion = make_private(
                    training, module, optimizer, world_size=self._place.world_size
                )
        return Setup(module, optimizer, criterion, made.make_batch)

    def _take_step(self, setup: Setup, step: int) -> None:
        inputs, targets = (each.to(self._device) for each in setup.make_batch())
        measure = self._recorder.measure
        optimizer = setup.optimizer
        with measure("Forward", step), self._cast():
            logits = setup.module(inputs)
            logits = getattr(logits, "logits", logits)
        with measure("Loss", step), self._cast():
            loss = _find_loss(setup.criterion, logits, targets)
            del logits
        with measure("Backward", step):
            loss.backward()
        state = count_state(optimizer)
        self._writer.send(RunUpdate(state=state))
        with measure("Optimizer Step", step):
            optimizer.step()
        state = msgspec.structs.replace(state, optimizer_bytes=count_state(optimizer).optimizer_bytes)
        self._writer.send(RunUpdate(state=state))
        with measure("Zero Gradients", step):
            optimizer.zero_grad()
        if step > 0:
            self._writer.send(RunUpdate(losses=(None if self._request.is_fake else loss.detach().item(),)))

    def _cast(self) -> AbstractContextManager[Any]:
        """Return autocast where it is asked for."""
        if self._training.precision != "amp":
            return nullcontext()
        cast: AbstractContextManager[Any] = torch.autocast(self._device.type, dtype=torch.bfloat16)
        return cast


def load_lazily_imported(training: PhaseTraining) -> None:
    """Import what PyTorch and Opacus import when first used: neither time nor memory of a phase."""
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0).step()
    if training.privacy != "none":
        import opacus  # noqa: F401 - imported for what it imports


def describe_device(request: PhaseRequest, device: torch.device) -> PhaseDevice:
    """Return what is trained on, by its own name."""
    if device.type == "cpu":
        import os

        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return PhaseDevice(kind="cpu", name="CPU (resident memory)", total_bytes=total, note=request.note)
    properties = torch.cuda.get_device_properties(device)
    return PhaseDevice(
        kind=request.kind,
        name=str(properties.name),
        total_bytes=int(properties.total_memory),
        is_fake=request.is_fake,
        note=request.note,
    )


def _choose_device(request: PhaseRequest, place: Place) -> torch.device:
    if request.kind == "cpu":
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if place.local_rank >= count:
        raise RefusedError(f"local rank {place.local_rank} has no card: this process sees {count}")
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    return device


def _find_loss(criterion: Callable[..., Any], logits: torch.Tensor, targets: torch.Tensor) -> Any:
    """Return the mean cross entropy; ghost clipping learns the shape, for it takes the loss by sample."""
    rows = logits.flatten(0, -2)
    wanted = targets.flatten()
    if isinstance(criterion, nn.Module) or logits.dim() != 3:
        return criterion(rows, wanted)
    return criterion(rows, wanted, shape=logits.shape)
