"""Trains, phase by phase, with or without differential privacy by Opacus."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ...model.phase_memory import PhaseDevice, PhaseTraining, TrainingState
from .. import settings
from ..llama import RMSNorm
from .meters import CudaMeter, Meter, PhaseRecorder, ResidentMeter
from .models import Batch, RefusedError, make_model
from .updates import PhaseRequest, RunUpdate, UpdateWriter


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
                f"Opacus cannot train this model: {words}. ",
                settings.FIXED,
                " replaces such modules (ModuleValidator.fix); ",
                settings.PRIVACY,
                " none trains without Opacus",
            )
        before = {name: type(each).__name__ for name, each in module.named_modules()}
        try:
            module = ModuleValidator.fix(module)
        except Exception as error:  # what pickle raises is many things
            raise RefusedError(
                settings.FIXED, f": Opacus cannot copy this model by pickle: {error}"
            ) from error
        after = {name: type(each).__name__ for name, each in module.named_modules()}
        replaced = [
            f"{name} ({it} by {after.get(name)})" for name, it in before.items() if after.get(name) != it
        ]
        left = ModuleValidator.validate(module, strict=False)
        if left:
            raise RefusedError(
                "Opacus cannot train this model, and ", settings.FIXED, f" does not help: {left[0]}"
            )
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
            f"Opacus cannot train this model: {words}; ", settings.PRIVACY, " none trains without Opacus"
        ) from error
    return made[0], made[1], criterion


def teach_opacus() -> None:
    """Register gradients by sample of our own norm with Opacus, and silence its warnings."""
    from opacus.grad_sample import register_grad_sampler

    warnings.filterwarnings("ignore", module=r"opacus\..*")
    warnings.filterwarnings("ignore", message=".*Full backward hook is firing.*")
    register_grad_sampler(RMSNorm)(_sample_norm_gradients)


def _sample_norm_gradients(
    layer: RMSNorm, activations: list[torch.Tensor], backprops: torch.Tensor
) -> dict[nn.Parameter, torch.Tensor]:
    """Gradient of the weight by sample, of shape (batch, hidden)."""
    products = layer.normalize(activations[0]) * backprops
    return {layer.weight: products.flatten(1, -2).sum(1)}


@dataclass(frozen=True)
class Place:
    """This process among those of torchrun."""

    rank: int
    world_size: int
    local_rank: int


def find_place() -> Place:
    """One process alone is rank 0 of 1."""
    if "RANK" not in os.environ:
        return Place(0, 1, 0)
    rank, world_size, local_rank = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
    )
    return Place(rank, world_size, local_rank)


@contextmanager
def joined(training: PhaseTraining, device: torch.device) -> Iterator[None]:
    """Join one process group with the other ranks."""
    if training.strategy is None:
        yield
        return
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    yield
    # Not where something failed: the others may wait for this rank, and it must not wait for them.
    torch.distributed.destroy_process_group()


def share_model(training: PhaseTraining, module: nn.Module, place: Place) -> nn.Module:
    """Wrap the model by its strategy of sharing among ranks.

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
                settings.STRATEGY,
                " fsdp2 with ",
                settings.PRIVACY,
                " ghost needs an Opacus that has FSDP2Wrapper (1.5.4 or newer)",
            ) from None

        teach_opacus()
        wrapped: nn.Module = FSDP2Wrapper(module)
        return wrapped
    from torch.distributed.fsdp import fully_shard

    for block in getattr(module, "blocks", ()):
        fully_shard(block)
    fully_shard(module)
    return module


def count_state(optimizer: Any) -> TrainingState:
    """Return parameters, gradients and optimizer state now; of a sharded model this rank's shards."""
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
    """Count the state on the device of its parameter; step counters on the host are not of the card."""
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
    local: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local


def _flatten(value: Any) -> Iterator[torch.Tensor]:
    """Yield a tensor, or those of a list of several backward passes."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list):
        yield from value


# Names in `torch.optim`.
_OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


@dataclass
class Setup:
    module: nn.Module
    optimizer: Any
    criterion: Callable[..., Any]
    make_batch: Callable[[], Batch]


class PhaseSession:
    """One training, from the model to its last step."""

    def __init__(self, request: PhaseRequest, writer: UpdateWriter) -> None:
        self._request = request
        self._training = request.training
        self._writer = writer
        self._place = find_place()
        self._device = _choose_device(request, self._place)
        self.meter: Meter = ResidentMeter() if request.kind == "cpu" else CudaMeter()
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
            teach_opacus_to_fake()
            self._writer.send(RunUpdate(notes=(NOTE,)))
        told = describe_device(self._request, self._device)
        self._writer.send(RunUpdate(device=told, rank=place.rank, world_size=place.world_size))
        load_lazily_imported(training)
        with joined(training, self._device):
            setup = self._set_up()
            torch.manual_seed(training.seed + place.rank)
            for step in range(1 - training.warmup_steps, training.num_steps + 1):
                self._run_step(setup, step)

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

    def _run_step(self, setup: Setup, step: int) -> None:
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
    """The device with its own name."""
    if device.type == "cpu":
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
    """Mean cross entropy; ghost clipping needs the shape, for it computes the loss by sample."""
    rows = logits.flatten(0, -2)
    wanted = targets.flatten()
    if isinstance(criterion, nn.Module) or logits.dim() != 3:
        return criterion(rows, wanted)
    return criterion(rows, wanted, shape=logits.shape)


NOTE = (
    "ghost clipping without storage treats all tokens of a sequence as different: where tokens repeat, "
    "the norm of the embedding's gradient needs a little less"
)


def teach_opacus_to_fake() -> None:
    """Register a norm sampler of embeddings whose shapes do not depend on values."""
    from opacus.grad_sample import register_norm_sampler

    register_norm_sampler(nn.Embedding)(sample_embedding_norm)


def sample_embedding_norm(
    layer: nn.Embedding, activations: list[torch.Tensor], backprops: torch.Tensor
) -> dict[nn.Parameter, torch.Tensor]:
    """Return a norm for each sample, of shape (batch,), with tensors of the sizes that Opacus's own makes.

    Opacus sums the gradients of equal tokens; how many are equal is not known here, so all count as
    different.
    """
    ids = activations[0]
    batch = ids.shape[0]
    tokens = ids[0].numel()
    gradients = backprops.reshape(-1, backprops.size(-1))
    rows = torch.arange(batch, device=ids.device).repeat_interleave(tokens, output_size=batch * tokens)
    pairs = torch.stack((rows, ids.reshape(-1)), dim=1)
    different = pairs.clone()
    places = torch.empty_like(rows)
    summed = gradients.new_zeros(gradients.shape).index_add(0, places, gradients)
    squares = torch.sum(summed**2, dim=1)
    norms = gradients.new_zeros(batch).scatter_add_(0, different[:, 0], squares)
    return {layer.weight: torch.sqrt(norms)}
