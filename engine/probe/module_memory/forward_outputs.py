"""Activations by the original's rule: outputs of modules without children, until the backward pass."""

from __future__ import annotations

from collections.abc import Mapping


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
        """Whether a forward pass was seen."""
        return bool(self._bases)

    @property
    def is_complete(self) -> bool:
        """Whether the outputs of every chunk were seen: none are of compiled modules."""
        return all(self._bases.values())

    def open(self, root: str, outputs: Mapping[str, int]) -> bool:
        """Count a forward pass; return whether it is the first of its chunk.

        Args:
            root: Name of the chunk's tree.
            outputs: Bytes by path, of the chunk's first pass.
        """
        is_first = root not in self._bases
        if is_first:
            self._bases[root] = dict(outputs)
        self._open_passes[root] = self._open_passes.get(root, 0) + 1
        self.live_bytes += sum(self._bases[root].values())
        self.largest_bytes = max(self.largest_bytes, self.live_bytes)
        return is_first

    def close(self, root: str) -> None:
        """Count its backward pass; a second one through a graph that is kept takes nothing away."""
        if self._open_passes.get(root, 0) > 0:
            self._open_passes[root] -= 1
            self.live_bytes -= sum(self._bases[root].values())
