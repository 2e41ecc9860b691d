"""The model that is trained, and its batches: a preset, a user's function, or a folder of Hugging Face."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import SettingError
from ...model.phase_memory import PhaseTraining
from ..llama import Llama
from ..llama_presets import LLAMA_PRESETS
from ..settings import FACTORY, MODEL_SIZE
from ..user_module import import_user_module

# Inputs and targets, on the host.
Batch = tuple[Any, Any]
# Our names of sizes, and those of a config.json.
_HF_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
}


class UserError(Exception):
    """Code of the user raised: the cause is theirs, the text names it."""


@dataclass
class MadeModel:
    module: nn.Module
    make_batch: Callable[[], Batch]
    sizes: dict[str, int] = field(default_factory=dict)


def make_model(
    training: PhaseTraining, device: torch.device, repair: Callable[[nn.Module], nn.Module]
) -> MadeModel:
    """Make the model on a device, in training mode.

    Raises:
        RefusedError: There is no such model, or it takes no tokens.
        UserError: The function that makes it raised.
    """
    if training.factory is not None:
        return _make_by_factory(training, device, repair)
    if training.hugging_face is not None:
        module, sizes = _make_by_transformers(Path(training.hugging_face), training, device)
    else:
        preset = LLAMA_PRESETS[training.model_size or ""]
        sizes = {name: getattr(preset, name) for name in _HF_SIZES}
        with torch.device(device):
            module = Llama(preset, is_checkpointed=training.is_checkpointed)
    module = _set_type(repair(module), training).train()
    return MadeModel(module, _make_tokens(sizes["vocab_size"], training), sizes)


def _make_by_factory(
    training: PhaseTraining, device: torch.device, repair: Callable[[nn.Module], nn.Module]
) -> MadeModel:
    spec = training.factory or ""
    try:
        made = find_factory(spec)()
    except (RefusedError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        said = next(iter(str(error).splitlines()), "")
        raise UserError(f"{spec} raised {type(error).__name__}: {said}") from error
    module, make_batch = _part(made)
    if not isinstance(module, nn.Module):
        raise RefusedError(
            f"{spec} returned {type(module).__name__}; expected a torch.nn.Module, or a module and "
            "a function make_batch(batch_size, seq_length) that returns inputs and targets"
        )
    module = _set_type(repair(module.train()).to(device), training)
    if make_batch is not None:
        return MadeModel(module, _check_batches(make_batch, training))
    first = next((each for each in module.modules() if isinstance(each, nn.Embedding)), None)
    if first is None:
        raise RefusedError(
            f"{spec}: the model has no nn.Embedding that gives its vocabulary size; return "
            "(module, make_batch), where make_batch(batch_size, seq_length) returns inputs and targets"
        )
    return MadeModel(module, _make_tokens(first.num_embeddings, training))


def _part(made: object) -> tuple[object, Callable[[int, int], Any] | None]:
    """Return the model, and the function for its batches if there are both."""
    if isinstance(made, tuple) and len(made) == 2 and callable(made[1]):
        return made[0], made[1]
    return made, None


def _check_batches(make_batch: Callable[[int, int], Any], training: PhaseTraining) -> Callable[[], Batch]:
    def make() -> Batch:
        batch = make_batch(training.batch_size, training.seq_length)
        if not (
            isinstance(batch, (tuple, list)) and len(batch) == 2 and all(hasattr(it, "to") for it in batch)
        ):
            raise RefusedError(
                f"{training.factory}: make_batch returned {type(batch).__name__}; expected two "
                "tensors, inputs and targets"
            )
        return batch[0], batch[1]

    return make


def find_factory(spec: str) -> Callable[[], object]:
    """Import `module:function`; the working folder is searched too.

    Raises:
        RefusedError: There is no such module or function.
    """
    module_name, _, name = spec.partition(":")
    try:
        module = import_user_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise RefusedError(
            f"{spec}: no module {module_name!r}, neither in the working folder nor installed"
        ) from None
    factory = getattr(module, name, None)
    if not callable(factory):
        raise RefusedError(f"{spec}: {module_name} has no function {name!r}")
    found: Callable[[], object] = factory
    return found


def _make_by_transformers(
    folder: Path, training: PhaseTraining, device: torch.device
) -> tuple[nn.Module, dict[str, int]]:
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError:
        raise RefusedError(
            f"{folder} is read by transformers, which is not installed: pip install transformers, or use a "
            "preset (",
            MODEL_SIZE,
            ") or your own function (",
            FACTORY,
            " module:function)",
        ) from None
    try:
        config = AutoConfig.from_pretrained(folder)
        config.use_cache = False
        with torch.device(device):
            module = AutoModelForCausalLM.from_config(config)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # transformers says in its own words what a folder lacks
        raise RefusedError(f"{folder}: {error}") from error
    if training.is_checkpointed:
        module.gradient_checkpointing_enable({"use_reentrant": True})
    told = {name: getattr(config, theirs, None) for name, theirs in _HF_SIZES.items()}
    sizes = {name: value for name, value in told.items() if isinstance(value, int)}
    if "vocab_size" not in sizes:
        raise RefusedError(f"{folder}: its config.json has no vocab_size; expected a language model")
    return module, sizes


def _set_type(module: nn.Module, training: PhaseTraining) -> nn.Module:
    return module.to(torch.bfloat16) if training.precision == "bf16" else module


def _make_tokens(vocabulary: int, training: PhaseTraining) -> Callable[[], Batch]:
    """A source of random tokens, each to be followed by the next; other ranks draw others."""

    def make() -> Batch:
        shape = (training.batch_size, training.seq_length + 1)
        tokens = torch.randint(0, vocabulary, shape)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return make


class RefusedError(SettingError):
    """A training that cannot begin; the process that asked for it raises the error again."""
