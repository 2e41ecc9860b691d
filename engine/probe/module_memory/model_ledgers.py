"""Parameters, gradients, and what an optimizer keeps, by the names that the model gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..foreign import Foreign, Module, Optimizer, Tensor
from .ledger import Ledger, Pieces

ROOTS = {
    "params": "param_mem",
    "grads": "grad_mem",
    "os_params": "os_params_mem",
    "os_state": "os_state_mem",
}
"""Kinds of model data in the order of `memory.log`, and the names of their trees."""


def weigh_model(model: Module, optimizer: Optimizer | None, pieces: Pieces) -> Ledger:
    """Return the bytes of all four kinds, each path beginning with the root of its kind.

    Computed gradients are of every parameter that can have one, whether it is there or not, as the original
    counts them. The parameters of an optimizer are those that are not the model's own: mostly copies in fp32.

    Args:
        model: A module.
        optimizer: Of PyTorch, or with the same `param_groups` and `state`; None for none.
        pieces: Finds the storages.
    """
    ledger = Ledger(pieces)
    names: dict[int, str] = {}
    for name, parameter in model.named_parameters():
        names[id(parameter)] = name
        ledger.add(f"{ROOTS['params']}.{name}", parameter)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            ledger.add(f"{ROOTS['grads']}.{name}", parameter.grad, shape_of=parameter)
    if optimizer is not None:
        _weigh_optimizer(optimizer, names, ledger)
    ledger.close()
    return ledger


def list_model_storages(model: Module, pieces: Pieces) -> set[Foreign]:
    """Return the storages of a model's parameters and buffers."""
    tensors = [*model.parameters(), *model.buffers()]
    return {extent.storage for tensor in tensors for extent in pieces.locate(tensor) or ()}


def _weigh_optimizer(optimizer: Optimizer, names: dict[int, str], ledger: Ledger) -> None:
    place = 0
    for number, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            name = names.get(id(parameter))
            if name is None:
                ledger.add(f"{ROOTS['os_params']}.{number}.params.{index}", parameter)
                name = str(place)
            # Not `state[parameter]`: the state is a defaultdict, and looking would change it.
            for key, tensor in _list_state(optimizer.state.get(parameter)):
                if tensor.device.type == parameter.device.type:
                    ledger.add(f"{ROOTS['os_state']}.{name}.{key}", tensor)
            place += 1


def _list_state(held: Foreign, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that an optimizer keeps for one parameter, with their names."""
    if hasattr(held, "untyped_storage"):
        yield name or "state", held
        return
    parts: Iterable[tuple[object, Foreign]] = ()
    if isinstance(held, dict):
        parts = held.items()
    elif isinstance(held, (list, tuple)):
        parts = enumerate(held)
    for key, part in parts:
        word = "_".join(str(key).replace(".", "_").split()) or "_"
        yield from _list_state(part, f"{name}.{word}" if name else word)
