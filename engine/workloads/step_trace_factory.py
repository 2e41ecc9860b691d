"""A training step of what the user's function returned: a step, a module, or module, optimizer and step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from .model_tracer import TraceError, make_input

_OPTIMIZERS = ("adamw", "adam", "sgd", "none")


class Training(NamedTuple):
    """What is trained."""

    step: Callable[[], object]
    """One whole step, from data to zeroed gradients."""
    model: nn.Module | None = None
    """None where the function returned nothing but a step; the model is then met in the first one."""
    optimizer: Any = None
    """Kept, as a step may not hold it."""


def choose_arguments(factory: Callable[..., object], given: Mapping[str, object]) -> dict[str, object]:
    """Return those of the given arguments that a function names.

    Args:
        factory: The user's.
        given: By name; None for what was not given.

    Raises:
        TraceError: Something was given that the function does not take.
    """
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}
    takes_all = any(it.kind is inspect.Parameter.VAR_KEYWORD for it in parameters.values())
    chosen = {name: value for name, value in given.items() if value is not None}
    refused = [name for name in chosen if name not in parameters and not takes_all and name != "device"]
    if refused:
        raise TraceError(
            f"the factory has no argument {refused[0]}, which was given; it takes "
            f"{', '.join(parameters) or 'none'}: name it in the signature, or leave the flag out"
        )
    return {name: value for name, value in chosen.items() if takes_all or name in parameters}


def make_training(made: object, inputs: Sequence[str], optimizer: str) -> Training:
    """Return the training that a function's result stands for.

    Args:
        made: What it returned.
        inputs: Shapes and types of the arguments of a module's forward pass, as `4x1024:int64`.
        optimizer: That of a module: adamw, adam, sgd or none.

    Raises:
        TraceError: It returned something else, or a module without inputs.
    """
    if isinstance(made, nn.Module):
        return _train_module(made, inputs, optimizer)
    if inputs:
        raise TraceError("--input is for a factory that returns a module; this one returned its own step")
    if isinstance(made, tuple) and len(made) == 3 and isinstance(made[0], nn.Module) and callable(made[2]):
        return Training(made[2], made[0], made[1])
    if callable(made):
        return Training(made)
    raise TraceError(
        f"the factory returned a {type(made).__name__}; expected a function that makes one training step, a "
        "torch.nn.Module, or the tuple (module, optimizer, step)"
    )


def step_in_spite_of_overflow() -> None:
    """Let a `GradScaler` always step: whether gradients overflow is a value, which no shape tells.

    The first steps of a real run are left out while its scale is too large; in the ones that last, none is.
    """

    def step(scaler: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return optimizer.step(*args, **kwargs)

    torch.amp.GradScaler._maybe_opt_step = step


def _train_module(module: nn.Module, inputs: Sequence[str], optimizer: str) -> Training:
    if not inputs:
        raise TraceError("the factory returned a module: say what it is called with, as --input 4x1024:int64")
    if optimizer not in _OPTIMIZERS:
        raise TraceError(f"--optimizer {optimizer}: expected one of {', '.join(_OPTIMIZERS)}")
    looks = [make_input(text) for text in inputs]
    module = module.cuda()
    trained = [it for it in module.parameters() if it.requires_grad]
    chosen = _make_optimizer(optimizer, trained)

    def step() -> None:
        arguments = [torch.zeros(it.shape, dtype=it.dtype, device="cuda") for it in looks]
        find_loss(module(*arguments)).backward()
        if chosen is not None:
            chosen.step()
        module.zero_grad()

    return Training(step, module, chosen)


def _make_optimizer(name: str, parameters: list[Any]) -> Any:
    makers = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    return None if name == "none" or not parameters else makers[name](parameters, lr=1e-3)


def find_loss(output: Any) -> Any:
    """Return `.loss` of a result where it has one, else the mean of its first tensor, in float32.

    Raises:
        TraceError: There is no tensor in it.
    """
    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    while isinstance(output, (list, tuple, dict)) and output:
        output = next(iter(output.values())) if isinstance(output, dict) else output[0]
    if not isinstance(output, torch.Tensor):
        raise TraceError(
            f"the module returned a {type(output).__name__}; expected a tensor or something with .loss"
        )
    return output.float().mean()
