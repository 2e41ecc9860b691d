"""What the accounting needs to know of an operation, learned once from its schema."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

_TAKES_BOTH = frozenset(
    {
        "copy_",
        "_to_copy",
        "to",
        "index",
        "index_put",
        "index_put_",
        "_index_put_impl_",
        "set_",
        "set_data",
        "_foreach_copy_",
        "_pack_padded_sequence",
        "is_same_size",
        "_has_compatible_shallow_copy_type",
        "_local_scalar_dense",
        "record_stream",
    }
)
"""Operations that take tensors of the host beside those of a device."""

_MOVES = frozenset({"_to_copy", "copy_", "_foreach_copy_", "_copy_from"})

_RESIZES = frozenset({"resize_", "set_", "resize_as_", "_resize_output_"})


_HOST_OUTPUTS = {"_pack_padded_sequence": frozenset({1})}
"""Positions in what an operation returns that stay on the host, wherever its inputs are."""


class Operation:
    """How one overload of an operation treats storages."""

    __slots__ = ("creates", "host_outputs", "is_composite", "may_resize", "moves", "name", "takes_both")

    def __init__(self, function: Any) -> None:
        schema = getattr(function, "_schema", None)
        self.name: str = schema.name.split("::")[-1] if schema else str(function)
        returned = schema.returns if schema else ()
        self.creates = not schema or any(it.alias_info is None for it in returned)
        """Whether what it returns may have a storage of its own; not for views and in-place operations."""
        self.takes_both = not schema or self.name in _TAKES_BOTH or schema.name.startswith("c10d::")
        self.host_outputs = _HOST_OUTPUTS.get(self.name, frozenset())
        self.moves = self.name in _MOVES
        self.may_resize = self.name in _RESIZES or any(
            it.is_out for it in (schema.arguments if schema else ())
        )
        self.is_composite = _is_composite(function)
        """Whether it is made of smaller operations, and none has its own kernel on the host (`inference_mode`
        hands them over whole)."""


def measure_made(args: Any, kwargs: Any) -> int:
    """Return the bytes of the tensor that a factory is about to make, by its sizes; 0 for anything else."""
    if not args or not isinstance(args[0], (list, tuple)) or not all(isinstance(it, int) for it in args[0]):
        return 0
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return int(prod(args[0]) * dtype.itemsize)


def _is_composite(function: Any) -> bool:
    try:
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        name = function.name()
        return bool(has_kernel(name, "CompositeImplicitAutograd")) and not has_kernel(name, "CPU")
    except (AttributeError, RuntimeError):
        return False
