"""What the callbacks of all frameworks do: end steps with their sizes, and read memory for the logs.

Only the standard library is loaded, and of torch what the program has imported itself.
"""

import sys
from collections.abc import Mapping
from typing import Any

from vramscope.engine.jobs.in_code import attach, expect_steps, step
from vramscope.engine.probe.backends import Backend, find_backend
from vramscope.engine.units import GIB

from .agent import AgentView


class StepMarks:
    """Marks the steps of one training for the probe.

    Args:
        batch_size: Samples of a micro-batch, where the framework does not say it.
    """

    def __init__(self, batch_size: int | None = None) -> None:
        self._batch_size = batch_size
        self._backend: Backend | None = None
        # Of the largest micro-batch of the step in progress.
        self._tokens: int | None = None
        self._batch: int | None = None
        self._agent = AgentView()

    def begin(self) -> None:
        """Start the probe if this process has none."""
        attach()
        expect_steps()

    def note_micro_batch(self, content: object) -> None:
        """Note the size of what a model is about to be called with; only shapes are read."""
        tokens, batch = measure_batch(content)
        if tokens is not None:
            self._tokens = max(self._tokens or 0, tokens)
        if batch is not None:
            self._batch = max(self._batch or 0, batch)

    def end_step(self, tokens: int | None = None, batch: int | None = None) -> None:
        """End a step of the optimizer; sizes that are not given are those that were noted."""
        tokens = self._tokens if tokens is None else tokens
        batch = self._batch if batch is None else batch
        self._tokens = self._batch = None
        step(tokens=tokens, batch=self._batch_size if batch is None else batch)

    def read(self) -> dict[str, float]:
        """Return the memory of this process in GiB for a log; empty without a device.

        `vram/peak_allocated_gib` and `vram/peak_reserved_gib` are the allocator's peaks of the run, and
        `vram/floor_gib` is allocated now, which is the floor if a step has just ended. Where an agent runs,
        what it says of this process is added: growth, headroom at the peak, and seconds to an error that it
        forecasts.
        """
        backend = self._find_backend()
        held = {} if backend is None else backend.find_held()
        if backend is None or not held:
            return {}
        ordinal = max(held, key=lambda it: held[it])
        reading = backend.read(ordinal)
        found = {
            "vram/peak_allocated_gib": reading.peak_bytes,
            "vram/peak_reserved_gib": backend.read_statistics(ordinal).get("reserved_bytes.all.peak"),
            "vram/floor_gib": reading.allocated_bytes,
        }
        measured = {name: size_bytes / GIB for name, size_bytes in found.items() if size_bytes is not None}
        return measured | self._agent.read()

    def _find_backend(self) -> Backend | None:
        torch = sys.modules.get("torch")
        if self._backend is None and torch is not None and hasattr(torch, "cuda"):
            self._backend = find_backend(torch, None)
        return self._backend


def measure_batch(content: object) -> tuple[int | None, int | None]:
    """Return the tokens and samples of a micro-batch, as far as the shapes of its tensors say them.

    The first dimension of the first tensor counts samples; `input_ids` of two dimensions count tokens.
    """
    if isinstance(content, Mapping):
        shape = _shape_of(content.get("input_ids"))
        if len(shape) == 2:
            return shape[0] * shape[1], shape[0]
        parts: tuple[Any, ...] = tuple(content.values())
    elif isinstance(content, (list, tuple)):
        parts = tuple(content)
    else:
        shape = _shape_of(content)
        return None, shape[0] if shape else None
    for part in parts:
        sizes = measure_batch(part)
        if sizes != (None, None):
            return sizes
    return None, None


def _shape_of(value: Any) -> tuple[int, ...]:  # noqa: ANN401 - a tensor of any library
    shape = getattr(value, "shape", ())
    return tuple(shape) if all(isinstance(it, int) for it in shape) else ()
