"""Process groups of CUDA, run on the host: gloo in place of NCCL, DDP's buckets, sharded tensors."""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

import torch

from . import collectives
from .alone import Post
from .devices import HOST, inside, targeting
from .generators import seed_host
from .patching import replace
from .storages import StorageRegistry

# Groups that are never freed, by their identity.
_kept: set[int] = set()


def install(registry: StorageRegistry, post: Post | None) -> None:
    """Run process groups of CUDA on the host; do nothing if torch was built without them.

    Args:
        registry: The storages of this process.
        post: The rank that it is if no other rank runs; else None.
    """
    distributed = torch.distributed
    if not distributed.is_available():
        return
    from torch.distributed import device_mesh, distributed_c10d

    for name in ("init_process_group", "new_group"):
        replace(distributed_c10d, name, functools.partial(_make_group, post=post))
        # Modules of torch that imported the function before have it under a name of their own.
        for owner in (distributed, device_mesh):
            if hasattr(owner, name):
                setattr(owner, name, getattr(distributed_c10d, name))
    for owner in (distributed, distributed_c10d):
        replace(owner, "is_nccl_available", lambda original: lambda: True)
        replace(owner, "barrier", _make_barrier)
        for name in ("broadcast_object_list", "send_object_list", "recv_object_list"):
            replace(owner, name, _make_object_transfer)
        replace(owner, "_coalescing_manager", _make_coalescing)
    collectives.install()
    if post is not None:
        post.install(distributed, distributed_c10d)
    _place_buckets(distributed, registry)
    replace(torch.nn.parallel.DistributedDataParallel, "_register_builtin_comm_hook", _make_builtin_hook)
    replace(device_mesh.DeviceMesh, "__init__", _make_mesh)


def _make_group(original: Any, *, post: Post | None) -> Any:
    backend = "gloo" if post is None else "fake"
    is_world = original.__name__ == "init_process_group"
    # The backend is the first argument of one and the third of the other; both take it by name.
    position = 0 if is_world else 2

    def make(*args: Any, **kwargs: Any) -> Any:
        if is_world and post is not None:
            return post.join(original)
        given = list(args)
        kwargs["device_id"] = None
        named = given[position] if len(given) > position else kwargs.get("backend")
        # A group of any backend has no other member where the others do not run.
        is_replaced = isinstance(named, str) and ("nccl" in named.lower() or post is not None)
        if is_replaced and len(given) > position:
            given[position] = backend
        elif is_replaced or (is_world and not given and named is None):
            kwargs["backend"] = backend
        if "pg_options" in kwargs:
            kwargs["pg_options"] = None
        made = original(*given, **kwargs)
        _keep_groups()
        return made

    return make


def _keep_groups() -> None:
    """Keep the groups of this process for as long as it lives.

    The last reference of a group of gloo is dropped with the GIL, and its destructor joins its threads. One
    of them needs the GIL to drop the work that it did last, which refers to the mode of the simulation: both
    would wait for each other at the end of a job with DDP.
    """
    from torch.distributed.distributed_c10d import _world

    for group in _world.pg_map:
        if id(group) not in _kept:
            _kept.add(id(group))
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _make_barrier(original: Any) -> Any:
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return original(group, async_op)

    return barrier


def _make_object_transfer(original: Any) -> Any:
    """Send objects over the host: their bytes are values, which a card without storage does not have."""

    def transfer(
        object_list: Any, peer: Any = None, group: Any = None, device: Any = None, **others: Any
    ) -> Any:
        peer = others.pop("src", others.pop("dst", peer))
        return original(object_list, peer, group, torch.device("cpu"), **others)

    return transfer


def _make_coalescing(original: Any) -> Any:
    """Send what is collected as one operation of the host, which has no groups of launches."""

    def coalesce(group: Any = None, device: Any = None, async_ops: bool = False) -> Any:
        return original(group, None, async_ops)

    return coalesce


def _make_builtin_hook(original: Any) -> Any:
    """Let DDP call the hook in Python that does the same: that of C++ cannot read our results."""

    def register(model: Any, kind: Any) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        is_plain = kind == torch.distributed.BuiltinCommHookType.ALLREDUCE
        hook = default_hooks.allreduce_hook if is_plain else default_hooks.fp16_compress_hook
        torch.distributed._register_comm_hook(model.reducer, model.process_group, hook)

    return register


def _make_mesh(original: Any) -> Any:
    """Load the module of sharded tensors with the first mesh, not sooner."""

    def make(*args: Any, **kwargs: Any) -> None:
        _load_sharding()
        original(*args, **kwargs)

    return make


@functools.cache
def _load_sharding() -> None:
    from torch._prims import rng_prims
    from torch.distributed.tensor import DTensor, _random, _sharding_prop

    DTensor.device = property(lambda tensor: tensor._local_tensor.device)
    DTensor.is_cuda = property(lambda tensor: tensor._local_tensor.is_cuda)
    replace(_sharding_prop.ShardingPropagator, "_propagate_tensor_meta_non_cached", _only_shapes)
    tracker = getattr(_random, "OffsetBasedRNGTracker", None)
    # The state of a generator is read and compared: it stays on the host.
    replace(tracker, "_get_device_state", lambda original: lambda it: it._device_handle.get_rng_state())
    replace(tracker, "_distribute_region", _make_region)
    with suppress(ImportError):  # older versions of PyTorch
        collectives = import_module("torch.distributed.fsdp._fully_shard._fsdp_collectives")
        replace(collectives, "_get_gradient_divide_factors", _make_divide)
    with suppress(ImportError):  # older versions of PyTorch
        _shard_attention(import_module("torch.distributed.tensor.experimental").register_sharding)
    kernels = getattr(getattr(rng_prims, "run_dtensor_rng_op", None), "py_kernels", {})
    draw = kernels.get(torch._C.DispatchKey.BackendSelect)
    if draw is not None:
        kernels[torch._C.DispatchKey.BackendSelect] = _make_draw(draw)


def _shard_attention(register: Any) -> None:
    """Let the host's fused attention take sharded tensors as CUDA's does: whole, by samples, or by heads."""
    from torch.distributed.tensor import Replicate, Shard

    def divide(outputs: int, inputs: int) -> Any:
        ways = (Replicate(), Shard(0), Shard(1))
        return lambda *_, **__: [([way] * outputs, [way] * inputs) for way in ways]

    for name, outputs, inputs in (("_for_cpu", 2, 3), ("_for_cpu_backward", 3, 6)):
        packet = getattr(torch.ops.aten, f"_scaled_dot_product_flash_attention{name}")
        register(packet.default)(divide(outputs, inputs))


def _make_divide(original: Any) -> Any:
    """Let FSDP divide gradients itself where it would have NCCL multiply them: gloo can only add."""
    forced = "force_sum_reduction_for_comms"

    def get_factors(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        if given.get("factor") is not None and forced in inspect.signature(original).parameters:
            return original(**{**given, forced: True})
        return original(*args, **kwargs)

    return get_factors


def _make_region(original: Any) -> Any:
    """Draw the numbers of a shard from the state that the card's generator has for it."""

    @contextmanager
    def distribute(tracker: Any, spec: Any, generator: Any = None) -> Iterator[None]:
        with original(tracker, spec, generator):
            if tracker.distribute_region_enabled:
                seed_host()
            yield

    return distribute


def _make_draw(original: Any) -> Any:
    def draw(start: int, end: int, operation: Any, *args: Any, **kwargs: Any) -> Any:
        def draw_seeded(*args: Any, **kwargs: Any) -> Any:
            seed_host()
            return operation(*args, **kwargs)

        return original(start, end, draw_seeded, *args, **kwargs)

    return draw


def _only_shapes(original: Any) -> Any:
    """Compute the shape of a sharded result with tensors of PyTorch's own that are on no card."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        with inside(), targeting(HOST):
            return original(*args, **kwargs)

    return compute


def _place_buckets(distributed: Any, registry: StorageRegistry) -> None:
    """DDP's reducer makes its buckets in C++, and again after the first step: on the card of its parameters.

    Left alone they would be nowhere until a gradient is copied, when part of the step is freed already.
    """
    places: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def make_reducer(original: Any) -> Any:
        def make(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            place = registry.where_is(parameters[0]) if parameters else None
            target = HOST if place is None else place
            with targeting(target):
                reducer = original(parameters, *args, **kwargs)
            places[reducer] = target
            return reducer

        return make

    def make_rebuild(original: Any) -> Any:
        def rebuild(reducer: Any) -> bool:
            # Without a target: it also sends numbers of the host, whose values count.
            known = set(registry.records)
            is_rebuilt = bool(original(reducer))
            if is_rebuilt and places.get(reducer, HOST) != HOST:
                registry.decide(places[reducer], known)
            return is_rebuilt

        return rebuild

    replace(distributed.Reducer, "_rebuild_buckets", make_rebuild)
    replace(distributed, "Reducer", make_reducer)
