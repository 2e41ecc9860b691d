"""Sizes of steps, as the program tells them: whole numbers only, looked at in the thread that trains."""

from __future__ import annotations

from .base import current

Sizes = tuple["int | None", "int | None"]
"""Tokens and samples of a step; None where that was not told."""

MOST = 2**62
"""Larger than any batch; a larger figure was no size."""


class StepSizes:
    """Reads what the program says of the size of a step.

    Nothing but a whole number is taken: to ask a tensor for its value would wait for the device, and to keep
    one until the next packet would keep its memory.
    """

    def __init__(self) -> None:
        self._largest = 0
        self._has_told = False

    def read(self, tokens: object, batch: object) -> Sizes | None:
        """Return the sizes; None where there is none that can be used.

        Args:
            tokens: What the program gave as tokens; None for nothing.
            batch: What it gave as samples.
        """
        sizes = (self._read_one(tokens, "tokens"), self._read_one(batch, "batch"))
        return None if sizes == (None, None) else sizes

    def is_new_largest(self, sizes: Sizes) -> bool:
        """Return whether no step before was as large; in tokens, or in samples where those are not told."""
        tokens, batch = sizes
        size = (batch or 0) if tokens is None else tokens
        if size <= self._largest:
            return False
        self._largest = size
        return True

    def _read_one(self, value: object, name: str) -> int | None:
        if type(value) is int:
            return value if 0 < value <= MOST else None
        return None if value is None else self._read_other(value, name)

    def _read_other(self, value: object, name: str) -> int | None:
        """Return a whole number of another type, such as NumPy's; say once that something else was given."""
        from numbers import Integral

        if isinstance(value, Integral) and not isinstance(value, bool):
            number = int(value)
            return number if 0 < number <= MOST else None
        if not self._has_told:
            self._has_told = True
            error = TypeError(f"expected a whole number of the host, not {type(value).__name__}")
            current.note_failure(f"vramscope.step({name}=…)", error)
        return None
