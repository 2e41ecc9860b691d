"""Memory of a training step by module, as a profile tells it. None means unmeasured; never 0 or a guess."""

from typing import Literal

import msgspec

from .sample import RankCoordinates

ModuleMemoryFormat = Literal["module memory", "InternLM log", "InternLM chart"]
"""Whose file it is: ours with exact bytes, `memory.log`, or one of its charts."""

MemoryKind = Literal["params", "grads", "os_params", "os_state", "activation"]
MEMORY_KINDS: tuple[MemoryKind, ...] = ("params", "grads", "os_params", "os_state", "activation")
"""Parameters, gradients, what an optimizer has besides the model's own parameters, its state, activations."""


class KindBytes(msgspec.Struct, frozen=True):
    """All of one kind at one moment."""

    computed_bytes: int | None = None
    """What the shapes of tensors come to; activations: the outputs of modules without children."""
    measured_bytes: int | None = None
    """What the storages hold; activations: those that autograd saved for the backward pass."""


class LayoutEntry(msgspec.Struct, frozen=True, array_like=True):
    """What one node of a tree holds itself, without its children."""

    path: str
    """Names joined by dots, the first of which is the tree's: `param_mem.blocks.0.mlp.w1.weight`."""
    computed_bytes: int | None
    measured_bytes: int | None


class MemoryMoment(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a profile."""

    tag: str
    time_s: float
    """Since the profile began."""
    allocated_bytes: int | None = None
    """What the allocator of the device said."""
    kinds: dict[str, KindBytes]
    """By kind; `activation` is what lived at that moment, `activation_peak` what lived at the most so far."""
    layouts: dict[str, tuple[LayoutEntry, ...]] = {}
    """Entries by kind, where they were written at that moment; of `activation` those of the largest."""


class ModuleMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A profile: what a file tells of one rank."""

    format: ModuleMemoryFormat
    rank: RankCoordinates | None = None
    device: str | None = None
    """As PyTorch names it: `cuda:0`."""
    is_simulated: bool = False
    """The device is a modelled card: its allocator's figures are not of a real one."""
    moments: tuple[MemoryMoment, ...]
    notes: tuple[str, ...] = ()
    """Sentences about what the figures are and what was left out."""
