"""Process groups: what asks for NCCL gets gloo, which moves the same bytes through the host; sharding."""

from __future__ import annotations

import functools
from typing import Any

import torch

from .dispatch_mode import SHARDED
from .patching import replace
from .storages import StorageRegistry
from .thread_state import HOST, inside, targeting


def install(registry: StorageRegistry) -> None:
    """Let process groups of CUDA be made on the host; do nothing where torch was built without them."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    for name in ("init_process_group", "new_group"):
        replace(distributed_c10d, name, _make_group)
        setattr(distributed, name, getattr(distributed_c10d, name))
    for owner in (distributed, distributed_c10d):
        replace(owner, "is_nccl_available", lambda original: lambda: True)
        replace(owner, "barrier", _make_barrier)
    replace(distributed, "Reducer", lambda original: _make_reducer(original, registry))
    from torch.distributed.device_mesh import DeviceMesh

    replace(DeviceMesh, "__init__", _make_mesh)


def _make_group(original: Any) -> Any:
    def make(*args: Any, **kwargs: Any) -> Any:
        # The backend is the first argument of one and the fourth of the other; both take it by name.
        given = [_choose_backend(it) if isinstance(it, str) and "nccl" in it else it for it in args]
        kwargs["device_id"] = None
        if original.__name__ == "init_process_group" and not given and kwargs.get("backend") is None:
            kwargs["backend"] = "gloo"
        elif isinstance(kwargs.get("backend"), str):
            kwargs["backend"] = _choose_backend(kwargs["backend"])
        if "pg_options" in kwargs:
            kwargs["pg_options"] = None
        return original(*given, **kwargs)

    return make


def _choose_backend(name: str) -> str:
    """Return the backend of the host for one that a script names."""
    return "gloo" if "nccl" in name.lower() else name


def _make_barrier(original: Any) -> Any:
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return original(group, async_op)

    return barrier


def _make_mesh(original: Any) -> Any:
    """Return what makes a mesh: who has one has sharded tensors, whose module is loaded no sooner."""

    def make(*args: Any, **kwargs: Any) -> None:
        _load_sharding()
        original(*args, **kwargs)

    return make


@functools.cache
def _load_sharding() -> None:
    from torch.distributed.tensor import DTensor, _sharding_prop

    SHARDED.add(DTensor)
    DTensor.device = property(lambda tensor: tensor._local_tensor.device)
    DTensor.is_cuda = property(lambda tensor: tensor._local_tensor.is_cuda)
    replace(_sharding_prop.ShardingPropagator, "_propagate_tensor_meta_non_cached", _only_shapes)


def _only_shapes(original: Any) -> Any:
    """Return what computes the shape of a sharded result: by tensors of PyTorch's own that are on no card."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        with inside(), targeting(HOST):
            return original(*args, **kwargs)

    return compute


def _make_reducer(original: Any, registry: StorageRegistry) -> Any:
    """Return what makes DDP's reducer, whose buckets are made in C++, on the device of the parameters."""

    def make(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        place = registry.where_is(parameters[0]) if parameters else None
        with targeting(HOST if place is None else place):
            return original(parameters, *args, **kwargs)

    return make
