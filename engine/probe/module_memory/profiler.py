"""Memory by module over a few training steps: the tensors of a model, measured and written."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..base.foreign import Foreign, Module, Optimizer, Tensor
from .ledger import ROOTS, Ledger, ModelScale, Pieces, list_model_storages
from .memory_log import Kind, Moment, MomentKeeper
from .module_watch import ModuleWatch, SavedTensors, find_place


class ForwardOutputs:
    """Adds up the outputs of forward passes whose backward pass is to come.

    Each pass of a chunk counts as its first one did.
    """

    def __init__(self) -> None:
        self.live_bytes = 0
        self.largest_bytes = 0
        self._bases: dict[str, Mapping[str, int]] = {}
        self._open_passes: dict[str, int] = {}

    @property
    def by_path(self) -> dict[str, int]:
        """Bytes of the outputs of one pass of each chunk, each after its root."""
        own = {path: size for base in self._bases.values() for path, size in base.items()}
        return {**dict.fromkeys(self._bases, 0), **own}

    @property
    def has_passes(self) -> bool:
        return bool(self._bases)

    @property
    def is_complete(self) -> bool:
        """Whether the outputs of every chunk were seen; compiled modules show no output."""
        return all(self._bases.values())

    def open(self, root: str, outputs: Mapping[str, int]) -> bool:
        """Count a forward pass; return whether it is the first of its chunk."""
        is_first = root not in self._bases
        if is_first:
            self._bases[root] = dict(outputs)
        self._open_passes[root] = self._open_passes.get(root, 0) + 1
        self.live_bytes += sum(self._bases[root].values())
        self.largest_bytes = max(self.largest_bytes, self.live_bytes)
        return is_first

    def close(self, root: str) -> None:
        """Count its backward pass; a second one through a graph that is kept changes nothing."""
        if self._open_passes.get(root, 0) > 0:
            self._open_passes[root] -= 1
            self.live_bytes -= sum(self._bases[root].values())


# Kinds that have a tree, in the order of `memory.log`.
LAYOUTS = ("params", "grads", "os_params", "os_state", "activation")


class ModuleMemoryProfiler:
    """Follows a model for some steps of its training, or of its use.

    Args:
        model: A module; a `ModuleList` of several counts as the chunks of an interleaved pipeline.
        optimizer: Of PyTorch; None if nothing is trained.
        total_steps: Steps after which all layouts are written and the profile ends.
        is_watched: Write all layouts at the end of each step: somebody is watching.
        began_s: From when times count, in seconds of `time.monotonic`; None for now.
    """

    def __init__(
        self,
        model: Module,
        optimizer: Optimizer | None,
        keeper: MomentKeeper,
        total_steps: int = 5,
        *,
        header: Mapping[str, Any] | None = None,
        tag: str = "creation",
        is_watched: bool = False,
        began_s: float | None = None,
        steps: int = 0,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.is_running = True
        # Steps counted so far.
        self.steps = steps
        # Why the files could not be written any further, in a hook of the training; it ends the
        # profile.
        self.error: OSError | None = None
        # Steps to follow; may be raised while the profile runs.
        self.total_steps = total_steps
        self._is_watched = is_watched
        self._began_s = time.monotonic() if began_s is None else began_s
        self._pieces = Pieces()
        tensor: Tensor = next(model.parameters(), None)
        self._device: Foreign = sys.modules["torch"].device("cpu") if tensor is None else tensor.device
        self._keeper = keeper
        keeper.header = {
            **(header or {}),
            "device": str(self._device),
            "is_simulated": self._device.type == "cuda"
            and hasattr(sys.modules["torch"].cuda, "_vramscope_simulated"),
        }
        self._stack: list[str] = []
        self._saved = SavedTensors(self._pieces, self._device.type, partial(find_place, self._stack))
        self._outputs = ForwardOutputs()
        self._saved.model_storages = list_model_storages(model, self._pieces)
        self._scale = ModelScale(model, self._pieces)
        self._kinds: dict[str, Kind] = {}
        # Size of the layout of gradients written last.
        self._most_gradient_bytes = 0
        self.watches: list[ModuleWatch] = []
        self._has_saved = self._saved.start()
        try:
            self.write_moment(tag, ("params", "grads", "os_params"), is_first=True)
        except OSError:
            self.close()
            raise
        self.watches = self._watch_chunks()

    def end_step(self) -> None:
        """Count a step; the last one writes all layouts and removes every hook."""
        if not self.is_running:
            return
        self.steps += 1
        self._saved.note_peak()
        is_last = self.steps >= self.total_steps
        layouts = LAYOUTS if is_last or self._is_watched else ("os_state",)
        try:
            self.write_moment(f"step {self.steps}", layouts)
        finally:
            if is_last:
                self.close()

    def write_moment(self, tag: str, layouts: tuple[str, ...], *, is_first: bool = False) -> None:
        """Measure everything now and write it. `layouts`: kinds whose trees are written too."""
        ledger = self._scale.weigh_all(self.optimizer)
        self._kinds = {name: _make_kind(name, ledger) for name in ROOTS}
        self._write(tag, layouts, is_first=is_first)

    def _write(self, tag: str, layouts: tuple[str, ...], *, is_first: bool = False) -> None:
        moment = Moment(
            tag,
            time.monotonic() - self._began_s,
            {**self._kinds, **self._weigh_activations()},
            tuple(kind for kind in LAYOUTS if kind in layouts),
            _read_allocated(self._device),
        )
        self._keeper.write(moment, is_first=is_first)

    def close(self) -> None:
        """Remove every hook; the files stay as they are."""
        self.is_running = False
        self._saved.stop()
        for watch in self.watches:
            watch.close()

    def _watch_chunks(self) -> list[ModuleWatch]:
        modules = sys.modules["torch"].nn.ModuleList
        is_chunked = isinstance(self.model, modules) and len(self.model) > 1
        chunks = list(self.model) if is_chunked else [self.model]
        return [
            ModuleWatch(
                chunk,
                f"activations_{number}",
                self._stack,
                self._pieces,
                self._after_forward,
                self._after_backward,
            )
            for number, chunk in enumerate(chunks)
        ]

    def _after_forward(self, watch: ModuleWatch) -> None:
        is_first = self._outputs.open(watch.root, watch.outputs)
        self._note(f"forward of {watch.root}", ("activation",) if is_first else ())
        if not sys.modules["torch"].is_grad_enabled():
            # No backward pass will take it away again.
            self._outputs.close(watch.root)

    def _after_backward(self, watch: ModuleWatch) -> None:
        self._outputs.close(watch.root)
        self._note(f"backward of {watch.root}", ())

    def _note(self, tag: str, layouts: tuple[str, ...]) -> None:
        """Write a moment from within a step, in which only gradients and activations change.

        The training goes on if that fails.
        """
        self._saved.note_peak()
        try:
            gradients = self._kinds["grads"] = _make_kind("grads", self._scale.weigh_gradients())
            if (gradients.measured_bytes or 0) > self._most_gradient_bytes:
                # A step often ends without gradients: only from here are they known by module.
                self._most_gradient_bytes = gradients.measured_bytes or 0
                layouts = ("grads", *layouts)
            self._write(tag, layouts)
        except OSError as error:
            self.error = error
            self.close()

    def _weigh_activations(self) -> dict[str, Kind]:
        outputs = self._outputs
        saved = self._saved
        output_bytes: int | None = outputs.live_bytes
        largest_bytes: int | None = outputs.largest_bytes
        if not outputs.is_complete or (saved.peak_bytes and not outputs.has_passes):
            output_bytes = largest_bytes = None  # the modules are compiled: their outputs were not seen
        live_bytes = peak_bytes = None
        if self._has_saved:
            live_bytes = saved.live_bytes
            peak_bytes = saved.peak_bytes
        return {
            "activation": Kind(output_bytes, live_bytes, outputs.by_path, saved.peak_by_place),
            "activation_peak": Kind(largest_bytes, peak_bytes, {}, {}),
        }


def _make_kind(name: str, ledger: Ledger) -> Kind:
    root = ROOTS[name]
    found_computed, found_measured = ledger.select(root)
    computed = {root: 0, **found_computed}
    measured = {root: 0, **found_measured}
    known = [size for size in measured.values() if size is not None]
    measured_bytes = sum(known) if len(known) == len(measured) else None
    return Kind(sum(computed.values()), measured_bytes, computed, measured)


def _read_allocated(device: Foreign) -> int | None:
    """Ask the allocator of a device, without making a context."""
    cuda = sys.modules["torch"].cuda
    if device.type != "cuda" or not cuda.is_initialized():
        return None
    return int(cuda.memory_allocated(device))
