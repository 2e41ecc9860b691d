"""The five sunburst pages of a profile, under the names that InternLM's profiler gave them."""

from pathlib import Path

from ...analyzers.breakdown import (
    Basis,
    Breakdown,
    BreakdownNode,
    choose_basis,
    explain_differences,
    make_point_tree,
)
from ...engine.model.module_memory import MemoryKind, ModuleMemory
from ...engine.output_file import write_files
from .sunburst import render_sunburst

PAGES: dict[str, tuple[MemoryKind, ...]] = {
    "params_memory_sunburst": ("params",),
    "grads_memory_sunburst": ("grads",),
    "os_memory_sunburst": ("os_params", "os_state"),
    "activation_memory_sunburst": ("activation",),
    "summary_sunburst": ("params", "grads", "os_params", "os_state", "activation"),
}
"""Kinds by the name of the page."""
_WORDS = {
    "params_memory_sunburst": "parameters",
    "grads_memory_sunburst": "gradients",
    "os_memory_sunburst": "optimizer",
    "activation_memory_sunburst": "activations",
    "summary_sunburst": "all kinds",
}


def write_sunbursts(memory: ModuleMemory, breakdown: Breakdown, folder: Path) -> list[Path]:
    """Write the pages of which there is a tree; return their paths.

    Args:
        memory: The profile.
        breakdown: Its trees.
        folder: Made where it is missing.

    Raises:
        OutputFileError: It cannot be written to.
    """
    trees = {name: join_kinds(memory, name) for name in PAGES}
    pages = {
        f"{name}.html": render_page(memory, breakdown, name, tree)
        for name, tree in trees.items()
        if tree is not None
    }
    return write_files(pages, folder)


def join_kinds(memory: ModuleMemory, name: str) -> BreakdownNode | None:
    """Return the tree of a page over the whole profile, or None where the profile has none of its kinds."""
    return make_point_tree(memory, PAGES[name], None, _WORDS[name])


def render_page(memory: ModuleMemory, breakdown: Breakdown, name: str, tree: BreakdownNode) -> bytes:
    """Return one page.

    Args:
        memory: The profile.
        breakdown: Its trees.
        name: Of the page, without its ending.
        tree: What `join_kinds` made.
    """
    whose = "" if memory.rank is None else f", rank {memory.rank.rank}"
    basis: Basis = choose_basis(tree)
    lines = [describe_origin(memory)]
    if name == "summary_sunburst":
        lines += explain_differences(breakdown)
    return render_sunburst(f"Memory by module: {_WORDS[name]}{whose}", lines, tree, basis)


def describe_origin(memory: ModuleMemory) -> str:
    """Return what the figures of a profile are, in one sentence."""
    if memory.format != "module memory":
        return "; ".join(memory.notes)
    on = f"on {memory.device}" if memory.device else "of an unnamed device"
    simulated = " (simulated device)" if memory.is_simulated else ""
    return f"measured: what the storages of tensors hold {on}{simulated}; computed: what their shapes come to"
