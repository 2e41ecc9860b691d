"""A profile as trees: of its last moment and largest figures, or of one moment among them."""

from collections.abc import Iterable

import msgspec

from ...engine.model.module_memory import (
    MEMORY_KINDS,
    KindBytes,
    LayoutEntry,
    MemoryKind,
    MemoryMoment,
    ModuleMemory,
)
from .tree import BreakdownNode, make_tree

KIND_WORDS: dict[MemoryKind, str] = {
    "params": "parameters",
    "grads": "gradients",
    "os_params": "optimizer parameters",
    "os_state": "optimizer state",
    "activation": "activations",
}


class KindBreakdown(msgspec.Struct, frozen=True):
    """One kind of memory."""

    kind: MemoryKind
    computed_bytes: int | None
    measured_bytes: int | None
    tree: BreakdownNode | None
    """None where the profile had not written it."""


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """All kinds of memory of one rank."""

    tag: str
    """Name of the moment; `whole profile` where figures are the largest of all moments."""
    time_s: float
    kinds: tuple[KindBreakdown, ...]
    allocated_bytes: int | None = None
    """What the allocator of the device said: at the moment, or at the most."""
    unattributed_bytes: int | None = None
    """Of that, what belongs to no kind: buffers, temporary tensors, workspaces, rounding."""

    def find(self, kind: MemoryKind) -> KindBreakdown:
        """Return one kind."""
        return next(each for each in self.kinds if each.kind == kind)


def make_breakdown(memory: ModuleMemory, moment: int | None = None) -> Breakdown:
    """Return the trees of a profile.

    Args:
        memory: The profile; it has one moment at least.
        moment: Index of one, which gets the newest trees until then; None for the whole profile.
    """
    seen = memory.moments if moment is None else memory.moments[: moment + 1]
    chosen = seen if moment is None else seen[-1:]
    fullest = max(chosen, key=lambda each: each.allocated_bytes or 0)
    return Breakdown(
        tag="whole profile" if moment is None else chosen[0].tag,
        time_s=seen[-1].time_s,
        kinds=tuple(_make_kind(kind, seen, chosen) for kind in MEMORY_KINDS),
        allocated_bytes=fullest.allocated_bytes,
        unattributed_bytes=_find_unattributed(fullest),
    )


def _make_kind(
    kind: MemoryKind, seen: tuple[MemoryMoment, ...], chosen: tuple[MemoryMoment, ...]
) -> KindBreakdown:
    names = (kind, f"{kind}_peak") if len(chosen) > 1 else (kind,)
    figures = [moment.kinds[name] for moment in chosen for name in names if name in moment.kinds]
    layout = _find_layout(kind, seen, is_largest=len(chosen) > 1)
    return KindBreakdown(
        kind,
        _find_most(figure.computed_bytes for figure in figures),
        _find_most(figure.measured_bytes for figure in figures),
        None if layout is None else make_tree(KIND_WORDS[kind], layout),
    )


def _find_layout(
    kind: MemoryKind, seen: tuple[MemoryMoment, ...], *, is_largest: bool
) -> tuple[LayoutEntry, ...] | None:
    """Return the newest layout of a kind; of several the newest in which most was measured."""
    layouts = [moment.layouts[kind] for moment in reversed(seen) if moment.layouts.get(kind)]
    if not is_largest:
        return next(iter(layouts), None)
    return max(layouts, key=lambda layout: sum(it.measured_bytes or 0 for it in layout), default=None)


def _find_most(sizes: Iterable[int | None]) -> int | None:
    """Return the largest; None where one is not known, which may have been larger."""
    found = list(sizes)
    known = [size for size in found if size is not None]
    return max(known, default=None) if len(known) == len(found) else None


def _find_unattributed(moment: MemoryMoment) -> int | None:
    if moment.allocated_bytes is None:
        return None
    known = [moment.kinds.get(kind, KindBytes()).measured_bytes for kind in MEMORY_KINDS]
    if None in known:
        return None
    return moment.allocated_bytes - sum(size or 0 for size in known)
