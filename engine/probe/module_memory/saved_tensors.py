"""Activations as they are: the storages that autograd keeps for the backward pass, by who saved them.

`torch.autograd.graph.saved_tensors_hooks` tells each tensor that is saved; what stands in its place dies with
the graph, and so its end is seen too. What another such hook takes, as `save_on_cpu` does, is its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

from ..base.foreign import Foreign, Tensor
from ..base.guard import Guard
from .ledger import Pieces

OUTSIDE = "(outside of modules)"
"""Place of what is saved while no module of the model runs: the loss, mostly."""


class SavedTensors:
    """Counts live bytes of saved tensors, each storage once and under the module that saved it first.

    Args:
        pieces: Finds the storages.
        device_type: Where the model lives; tensors elsewhere do not count.
        find_place: Returns the path of the module that runs now.
    """

    def __init__(self, pieces: Pieces, device_type: str, find_place: Callable[[], str]) -> None:
        self.live_bytes = 0
        self.peak_bytes = 0
        self.peak_by_place: dict[str, int] = {}
        """Bytes by module at the moment of the peak."""
        self.model_storages: set[Foreign] = set()
        """Parameters and buffers, which would be there without a backward pass."""
        self.is_on = False
        self._pieces = pieces
        self._device_type = device_type
        self._find_place = find_place
        self._parameter: Any = sys.modules["torch"].nn.Parameter
        self._held: dict[Foreign, list[Any]] = {}
        self._by_place: dict[str, int] = {}
        self._is_growing = False
        self._hooks: Any = None
        self._disable: Any = None
        self._guard = Guard("the count of saved tensors")

    def start(self) -> bool:
        """Be told of each tensor that this thread saves from now on; tell whether that is possible.

        It is not under hooks of the program: those would end before ours, and torch undoes the newest first.
        """
        graph = sys.modules["torch"].autograd.graph
        if _find_top_hooks() is not None:
            return False
        self._hooks = graph.saved_tensors_hooks(self._pack, self._unpack)
        self._hooks.__enter__()
        self._disable = graph.disable_saved_tensors_hooks
        graph.disable_saved_tensors_hooks = self._step_aside
        self.is_on = True
        return True

    def stop(self) -> None:
        """Count no more. Hooks under those of the program stay, without effect, until the thread ends."""
        if not self.is_on:
            return
        self.is_on = False
        sys.modules["torch"].autograd.graph.disable_saved_tensors_hooks = self._disable
        if self._is_on_top():
            self._hooks.__exit__(None, None, None)

    @contextmanager
    def _step_aside(self, error_message: str) -> Iterator[None]:
        """Stand in for torch's function of that name, which raises where hooks are: `torch.func` calls it."""
        is_on_top = self._is_on_top()
        if is_on_top:
            self._hooks.__exit__(None, None, None)
        try:
            with self._disable(error_message):
                yield
        finally:
            if is_on_top:
                self._hooks.__enter__()

    def _is_on_top(self) -> bool:
        top = _find_top_hooks()
        return top is not None and top[0] == self._pack

    def forget_peak(self) -> None:
        """Begin to look for the largest moment anew."""
        self.peak_bytes = 0
        self.peak_by_place = {}

    def note_peak(self) -> None:
        """Keep the present moment where it is the largest."""
        self._is_growing = False
        if self.live_bytes > self.peak_bytes:
            self.peak_bytes = self.live_bytes
            self.peak_by_place = {place: size for place, size in self._by_place.items() if size}

    def _pack(self, tensor: Tensor) -> Foreign:
        if not self.is_on or self._guard.is_shut or tensor.device.type != self._device_type:
            return tensor
        try:
            return self._hold(tensor)
        except Exception as error:  # noqa: BLE001 - the training goes on, uncounted
            self._guard.count(error)
            return tensor

    def _unpack(self, packed: Foreign) -> Tensor:
        return packed.tensor if type(packed) is _Held else packed

    def _hold(self, tensor: Tensor) -> Foreign:
        base = tensor._base
        if isinstance(tensor if base is None else base, self._parameter):
            # Also one that FSDP has gathered for the length of a layer, whose storage is none of the model's.
            return tensor
        keys = []
        for extent in self._pieces.locate(tensor) or ():
            if extent.storage in self.model_storages:
                continue
            keys.append(extent.storage)
            entry = self._held.get(extent.storage)
            if entry is not None:
                entry[0] += 1
                continue
            place = self._find_place()
            self._held[extent.storage] = [1, extent.storage_bytes, place]
            self._by_place[place] = self._by_place.get(place, 0) + extent.storage_bytes
            self.live_bytes += extent.storage_bytes
            self._is_growing = True
        return _Held(tensor, keys, self._release) if keys else tensor

    def _release(self, keys: list[Foreign]) -> None:
        if self._is_growing:
            self.note_peak()
        for key in keys:
            entry = self._held[key]
            entry[0] -= 1
            if not entry[0]:
                _, size_bytes, place = self._held.pop(key)
                self._by_place[place] -= size_bytes
                self.live_bytes -= size_bytes


class _Held:
    """Stands in a graph in the place of a saved tensor; the graph drops it when it no longer needs it."""

    __slots__ = ("_keys", "_release", "tensor")

    def __init__(self, tensor: Tensor, keys: list[Foreign], release: Callable[[list[Foreign]], None]) -> None:
        self.tensor = tensor
        self._keys = keys
        self._release = release

    def __del__(self) -> None:
        self._release(self._keys)


def _find_top_hooks() -> Foreign:
    """Return the pair of hooks that this thread calls now, or None where none is or torch does not tell."""
    ask = getattr(sys.modules["torch"]._C._autograd, "_top_saved_tensors_default_hooks", None)
    if ask is None:
        return None
    try:
        return ask(True)
    except TypeError:  # it took no argument at first
        return ask()
