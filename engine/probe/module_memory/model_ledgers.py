"""Parameters, gradients, and what an optimizer keeps, by the names that the model gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from ..base.foreign import Foreign, Module, Optimizer, Tensor
from .ledger import Ledger, Pieces

ROOTS = {
    "params": "param_mem",
    "grads": "grad_mem",
    "os_params": "os_params_mem",
    "os_state": "os_state_mem",
}
"""Kinds of model data in the order of `memory.log`, and the names of their trees."""


class ModelScale:
    """Weighs a model and its optimizer.

    Computed gradients are of every parameter that can have one, whether it is there or not, as the original
    counts them. The parameters of an optimizer are those that are not the model's own: mostly copies in fp32.

    Args:
        model: A module.
        pieces: Finds the storages.
    """

    def __init__(self, model: Module, pieces: Pieces) -> None:
        self._model = model
        self._pieces = pieces
        self._parameters: list[tuple[str, Tensor, int]] = []
        """Name, parameter, and bytes by its shape."""

    def weigh_all(self, optimizer: Optimizer | None) -> Ledger:
        """Return the bytes of all four kinds, each path beginning with the root of its kind.

        Args:
            optimizer: Of PyTorch, or with the same `param_groups` and `state`; None for none.
        """
        ledger = Ledger(self._pieces)
        measure = self._pieces.measure_shape
        self._parameters = [(name, it, measure(it)) for name, it in self._model.named_parameters()]
        for name, parameter, size_bytes in self._parameters:
            ledger.add(f"{ROOTS['params']}.{name}", parameter, size_bytes)
        self._add_gradients(ledger)
        if optimizer is not None:
            names = {id(parameter): name for name, parameter, _ in self._parameters}
            _weigh_optimizer(optimizer, names, ledger)
        ledger.close()
        return ledger

    def weigh_gradients(self) -> Ledger:
        """Return the bytes of gradients alone, which come and go within a step."""
        ledger = Ledger(self._pieces)
        self._add_gradients(ledger)
        ledger.close()
        return ledger

    def _add_gradients(self, ledger: Ledger) -> None:
        for name, parameter, size_bytes in self._parameters:
            if parameter.requires_grad:
                ledger.add(f"{ROOTS['grads']}.{name}", parameter.grad, size_bytes)


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
        word = _make_word(str(key))
        yield from _list_state(part, f"{name}.{word}" if name else word)


@lru_cache(maxsize=256)
def _make_word(text: str) -> str:
    """Return a key as one name of a path."""
    return "_".join(text.replace(".", "_").split()) or "_"
