"""Replacing names of torch, with the original at hand."""

from __future__ import annotations

import functools
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
