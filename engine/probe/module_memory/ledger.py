"""Bytes by path: computed from the shapes of tensors, and measured from their storages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ..base.foreign import Foreign, Module, Optimizer, Tensor
from ..base.storages import StorageBytes

# Path of bytes in storages of several tensors that belong to no tensor, as padding.
REST = "(rest of shared storages)"


class Extent(NamedTuple):
    """The place of a tensor of one piece."""

    # Equal for tensors that share one.
    storage: Foreign
    storage_bytes: int
    # Offset of its first byte in the storage.
    first: int
    # By its shape.
    size_bytes: int


class Pieces:
    """Finds the storages behind tensors, also of sparse and wrapped ones."""

    def __init__(self) -> None:
        self._storages = StorageBytes()

    def locate(self, tensor: Tensor) -> list[Extent] | None:
        """Return the extents of a tensor, or None if one of its pieces has no storage."""
        if type(tensor) in self._storages.plain and tensor.layout is self._storages.strided:
            return [self._locate_piece(tensor)]  # most are, and it is quick to find out
        try:
            return [self._locate_piece(piece) for piece in self._storages.flatten(tensor)]
        except (NotImplementedError, RuntimeError):
            return None

    def measure_shape(self, tensor: Tensor) -> int:
        """Return element size times elements; of a wrapper, as DTensor, those of the pieces on this rank."""
        pieces = self._storages.flatten(tensor)
        return sum(int(piece.element_size()) * int(piece.numel()) for piece in pieces)

    def _locate_piece(self, piece: Tensor) -> Extent:
        """Return the extent of a tensor of one piece.

        Raises:
            NotImplementedError, RuntimeError: It has no storage, as one of MKL-DNN.
        """
        storage = piece.untyped_storage()
        item_bytes = piece.element_size()
        return Extent(
            self._storages.identify(piece, storage),
            storage.nbytes(),
            piece.storage_offset() * item_bytes,
            piece.numel() * item_bytes,
        )


class Ledger:
    """Bytes by path, computed and measured; each storage is counted once."""

    def __init__(self, pieces: Pieces) -> None:
        # Bytes computed from shapes, in the order of adding.
        self.computed: dict[str, int] = {}
        # Bytes that storages hold; None where PyTorch knows no storage for a tensor.
        self.measured: dict[str, int | None] = {}
        self._pieces = pieces
        self._holders: dict[Foreign, dict[tuple[int, int], str]] = {}
        self._sizes: dict[Foreign, int] = {}

    def add(self, path: str, tensor: Tensor | None, shape_bytes: int | None = None) -> None:
        """Count a tensor under a path.

        Args:
            tensor: Its memory is measured; None for nothing.
            shape_bytes: Computed bytes; None for those of the tensor's own shape.
        """
        extents = [] if tensor is None else self._pieces.locate(tensor)
        if shape_bytes is None:
            shape_bytes = (
                self._pieces.measure_shape(tensor)
                if extents is None
                else sum(extent.size_bytes for extent in extents)
            )
        self.computed[path] = self.computed.get(path, 0) + shape_bytes
        self.measured.setdefault(path, 0)
        if extents is None:
            self.measured[path] = None
            return
        for extent in extents:
            self._sizes[extent.storage] = extent.storage_bytes
            holders = self._holders.setdefault(extent.storage, {})
            holders.setdefault((extent.first, extent.size_bytes), path)

    def close(self) -> None:
        """Divide the storages among the tensors in them, once all were added."""
        for storage, holders in self._holders.items():
            left_bytes = self._sizes[storage]
            path = next(iter(holders.values()))
            if len(holders) > 1:
                for (_, size_bytes), holder in holders.items():
                    taken = min(size_bytes, left_bytes)
                    self._add_measured(holder, taken)
                    left_bytes -= taken
                path = f"{path.split('.')[0]}.{REST}"
            if left_bytes:
                self._add_measured(path, left_bytes)
        self._holders.clear()

    def select(self, root: str) -> tuple[dict[str, int], dict[str, int | None]]:
        """Return computed and measured bytes of the paths that begin with a root."""
        prefix = f"{root}."
        computed = {path: size for path, size in self.computed.items() if path.startswith(prefix)}
        measured = {path: size for path, size in self.measured.items() if path.startswith(prefix)}
        return computed, measured

    def _add_measured(self, path: str, size_bytes: int) -> None:
        before = self.measured.get(path, 0)
        if before is not None:
            self.measured[path] = before + size_bytes


# Kinds of model data in the order of `memory.log`, and the names of their trees.
ROOTS = {
    "params": "param_mem",
    "grads": "grad_mem",
    "os_params": "os_params_mem",
    "os_state": "os_state_mem",
}


class ModelScale:
    """Measures a model and its optimizer.

    Computed gradients are of every parameter that can have one, whether it exists or not, as InternLM counts
    them. The parameters of an optimizer are those that are not the model's own: mostly copies in fp32.
    """

    def __init__(self, model: Module, pieces: Pieces) -> None:
        self._model = model
        self._pieces = pieces
        # Name, parameter, and bytes by its shape.
        self._parameters: list[tuple[str, Tensor, int]] = []

    def weigh_all(self, optimizer: Optimizer | None) -> Ledger:
        """Return the bytes of all four kinds, each path beginning with the root of its kind."""
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
        """Return the bytes of gradients alone, which change within a step."""
        ledger = Ledger(self._pieces)
        self._add_gradients(ledger)
        ledger.close()
        return ledger

    def _add_gradients(self, ledger: Ledger) -> None:
        for name, parameter, size_bytes in self._parameters:
            if parameter.requires_grad:
                ledger.add(f"{ROOTS['grads']}.{name}", parameter.grad, size_bytes)


def list_model_storages(model: Module, pieces: Pieces) -> set[Foreign]:
    # Not `buffers`: Megatron-LM's DistributedDataParallel has a list of that name.
    tensors = [*model.parameters(), *(buffer for _, buffer in model.named_buffers())]
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
    """Turn a key into one name of a path."""
    return "_".join(text.replace(".", "_").split()) or "_"
