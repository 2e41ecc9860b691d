"""The place of this process in the parallel layout, from what the program itself has loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Callable

from .foreign import Foreign, Mesh, Module, Tensor

RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
LOCAL_RANK_VARIABLES = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")

# Names that programs give to the dimensions of a device mesh; the first one that a mesh has counts.
_DIMENSIONS = {
    "tp": ("tp", "tensor", "tensor_parallel", "model_parallel"),
    "pp": ("pp", "pipe", "pipeline", "pipeline_parallel"),
    "dp": ("dp", "data", "data_parallel", "dp_replicate", "replicate", "fsdp", "dp_shard", "shard"),
    "cp": ("cp", "context", "context_parallel", "sp"),
    "ep": ("ep", "expert", "expert_parallel"),
}

_MEGATRON = {
    "tp": "get_tensor_model_parallel_rank",
    "pp": "get_pipeline_model_parallel_rank",
    "dp": "get_data_parallel_rank",
    "cp": "get_context_parallel_rank",
    "ep": "get_expert_model_parallel_rank",
}
_DEEPSPEED = {
    "tp": "get_tensor_model_parallel_rank",
    "dp": "get_data_parallel_rank",
    "cp": "get_sequence_parallel_rank",
}

Coordinates = dict[str, "int | str | None"]


def find_coordinates(
    meshes: tuple[Any, ...] = (),
    modules: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Coordinates | None:
    """Return the fields of `RankCoordinates`, or None if nothing says that this process is a rank."""
    modules = sys.modules if modules is None else modules
    environ = os.environ if environ is None else environ
    found = _from_environment(environ)
    found.update(_from_distributed(modules))
    for source, ask in (
        ("Megatron", _from_megatron),
        ("DeepSpeed", _from_deepspeed),
        ("device mesh", partial(_from_device_meshes, meshes)),
    ):
        layout = ask(modules)
        if layout:
            found.update(layout)
            found["source"] = source
            break
    return found if isinstance(found.get("rank"), int) else None


def _from_environment(environ: Mapping[str, str]) -> Coordinates:
    read = {
        "rank": _first_number(environ, RANK_VARIABLES),
        "world_size": _first_number(environ, WORLD_SIZE_VARIABLES),
        "local_rank": _first_number(environ, LOCAL_RANK_VARIABLES),
    }
    found: Coordinates = {name: value for name, value in read.items() if value is not None}
    if "rank" in found:
        found["source"] = "environment"
    return found


def _from_distributed(modules: Mapping[str, Any]) -> Coordinates:
    distributed = modules.get("torch.distributed")
    if distributed is None or not _ask(lambda: distributed.is_available() and distributed.is_initialized()):
        return {}
    rank = _ask(distributed.get_rank)
    world_size = _ask(distributed.get_world_size)
    if not _is_rank(rank):
        return {}
    return {"rank": rank, "world_size": world_size, "source": "torch.distributed"}


def _from_megatron(modules: Mapping[str, Any]) -> Coordinates:
    for name in ("megatron.core.parallel_state", "megatron.core.mpu", "megatron.mpu"):
        state = modules.get(name)
        is_initialised = getattr(state, "model_parallel_is_initialized", None)
        if is_initialised is None or not _ask(is_initialised):
            continue
        return _ask_all(state, _MEGATRON)
    return {}


def _from_deepspeed(modules: Mapping[str, Any]) -> Coordinates:
    groups = modules.get("deepspeed.utils.groups")
    if groups is None or not _has_data_parallel_group(groups):
        return {}
    found = _ask_all(groups, {name: f"_{function}" for name, function in _DEEPSPEED.items()})
    found.update(_ask_all(groups, {"tp": _DEEPSPEED["tp"], "pp": "get_pipeline_parallel_rank"}))
    found.update(_ask_all(getattr(groups, "mpu", None), {**_MEGATRON, **{"tp": "get_model_parallel_rank"}}))
    found.update(_ask_all(getattr(groups, "mpu", None), {"tp": _MEGATRON["tp"]}))
    return found


def _has_data_parallel_group(groups: Module) -> bool:
    """Return whether DeepSpeed has the group of data parallelism already; before that it knows no layout.

    Other frameworks import it without using it, and it answers 0 for what it never set up. Asked for its
    rank without a group it clones the world, and to make a group every rank must take part
    (`_clone_world_group` in deepspeed/utils/groups.py): ours would wait for the others for ever.
    """
    return any(getattr(groups, name, None) is not None for name in ("mpu", "mesh_device", "_WORLD_GROUP"))


def find_meshes(parameters: Iterable[Tensor]) -> tuple[Mesh, ...]:
    """Return the device meshes of parameters, each once; plain parameters have no mesh."""
    meshes: list[Mesh] = []
    for parameter in parameters:
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None and not any(mesh is known for known in meshes):
            meshes.append(mesh)
    return tuple(meshes)


def _from_device_meshes(meshes: tuple[Mesh, ...], modules: Mapping[str, Any]) -> Coordinates:
    """Ask the meshes of the parameters, then those in a `with` of the program, then groups of meshes."""
    module = modules.get("torch.distributed.device_mesh")
    stack = getattr(getattr(module, "_mesh_resources", None), "mesh_stack", ())
    found: Coordinates = {}
    for mesh in (*meshes, *stack):
        root = _ask(mesh._get_root_mesh) if hasattr(mesh, "_get_root_mesh") else None
        for each in (mesh,) if root is None else (root, mesh):
            names = getattr(each, "mesh_dim_names", None) or ()
            _add_dimensions(found, {name: _ask(each.get_local_rank, name) for name in names})
    _add_dimensions(found, _from_mesh_groups(modules))
    return found


def _from_mesh_groups(modules: Mapping[str, Any]) -> dict[str, Foreign]:
    """Return this rank's place by name of mesh dimension, from the process groups that meshes have made.

    `torch.distributed.device_mesh` describes the group of a dimension as `mesh_` and its name. A pipeline
    stage has plain parameters, so nothing else leads from it to its mesh.
    """
    distributed = modules.get("torch.distributed.distributed_c10d")
    if distributed is None:
        return {}
    groups = _ask(lambda: dict(distributed._world.pg_group_ranks)) or {}
    rank = _ask(distributed.get_rank)
    places: dict[str, Foreign] = {}
    for group, members in groups.items():
        description = getattr(group, "group_desc", "")
        if isinstance(description, str) and description.startswith("mesh_") and rank in members:
            places.setdefault(description[len("mesh_") :], members[rank])
    return places


def _add_dimensions(found: Coordinates, ranks: Mapping[str, Foreign]) -> None:
    """Add places in a mesh by our names of the dimensions; known ones stay."""
    for dimension, spellings in _DIMENSIONS.items():
        name = next((spelling for spelling in spellings if spelling in ranks), None)
        rank = None if name is None else ranks[name]
        if _is_rank(rank):
            found.setdefault(dimension, rank)


def _ask_all(module: Module, functions: Mapping[str, str]) -> Coordinates:
    found: Coordinates = {}
    for name, function in functions.items():
        ask = getattr(module, function, None)
        rank = None if ask is None else _ask(ask)
        if _is_rank(rank):
            found[name] = rank
    return found


def _ask(question: Callable[..., Any], *arguments: Foreign) -> Foreign:
    """Return what a framework answers, or None: before its groups exist it may raise anything.

    Only for questions that read: to make a group is a collective call, and this is not the thread for it.
    """
    try:
        return question(*arguments)
    except Exception:  # noqa: BLE001
        return None


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _first_number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environ.get(name, "")
        if text.isdecimal() and len(text) < 10:
            return int(text)
    return None
