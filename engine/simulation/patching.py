"""Replacing names of torch, with the original at hand."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Callable


def replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace an attribute by what `make` returns of it; a name that is absent stays absent."""
    original = getattr(owner, name, None)
    if original is not None:
        made = make(original)
        if callable(made) and not isinstance(made, type):
            dress(made, original)
            name_for_scripts(made, original)
        setattr(owner, name, made)


def name_for_scripts(made: Any, original: Any) -> None:
    """Make TorchScript compile a replacement to the operation that the original is."""
    from torch.jit import _builtins

    operation = _builtins._find_builtin(original)
    if operation is not None:
        _builtins._register_builtin(made, operation)


def dress(made: Any, original: Any) -> None:
    """Give a replacement the name and the documentation of the original."""
    functools.update_wrapper(made, original, assigned=("__name__", "__qualname__", "__doc__", "__module__"))
    # Who unwraps functions (inspect, torch.overrides) shall see ours, not go past it.
    made.__dict__.pop("__wrapped__", None)


_ABSENT = object()


class PatchedNames:
    """What is replaced in modules and classes between the making of this and `finish()`."""

    def __init__(self, owners: Sequence[Any], left_out: Sequence[str] = ()) -> None:
        self._left_out = left_out
        self._befores = [(owner, dict(vars(owner))) for owner in owners]
        # Owner, name, original.
        self._changes: list[tuple[Any, str, Any]] = []
        # By the places in the list above, while the originals are there.
        self._replacements: list[Any] = []
        self._is_out = False

    def finish(self) -> None:
        for owner, before in self._befores:
            for name, value in vars(owner).items():
                original = before.get(name, _ABSENT)
                if original is not value and name not in self._left_out and not isinstance(value, ModuleType):
                    self._changes.append((owner, name, original))
        self._befores = []

    def list_originals(self) -> frozenset[int]:
        """Return the identities of what was replaced."""
        return frozenset(id(original) for _, _, original in self._changes)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Within the block, all names are what they were."""
        was_out = self._is_out
        self._put_back()
        try:
            yield
        finally:
            if not was_out:
                self._put_in()

    @contextmanager
    def redone(self) -> Iterator[None]:
        """Within the block, all names are replaced, also inside of `undone`."""
        was_out = self._is_out
        self._put_in()
        try:
            yield
        finally:
            if was_out:
                self._put_back()

    def _put_back(self) -> None:
        if self._is_out:
            return
        self._replacements = [vars(owner)[name] for owner, name, _ in self._changes]
        for owner, name, original in self._changes:
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._is_out = True

    def _put_in(self) -> None:
        if not self._is_out:
            return
        for (owner, name, _), replacement in zip(self._changes, self._replacements):
            setattr(owner, name, replacement)
        self._is_out = False
