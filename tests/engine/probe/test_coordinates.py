"""Ranks, and their place in the parallel layout, as the launchers and frameworks tell them."""

from types import SimpleNamespace
from typing import Any

import pytest

from vramscope.engine.probe.base.coordinates import find_coordinates

pytestmark = pytest.mark.loads_torch


def refuse() -> int:
    raise RuntimeError("the group is not initialized")


def make_megatron(**ranks: int) -> SimpleNamespace:
    """Return a stand-in for `megatron.core.parallel_state`."""
    return SimpleNamespace(
        model_parallel_is_initialized=lambda: True,
        **{f"get_{name}_rank": (lambda rank=rank: rank) for name, rank in ranks.items()},
    )


def make_mesh(**dimensions: int) -> SimpleNamespace:
    """Return a stand-in for a device mesh with the rank in each dimension."""
    return SimpleNamespace(mesh_dim_names=tuple(dimensions), get_local_rank=dimensions.__getitem__)


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, (3, 1, 8)),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "6"}, (5, 1, 6)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, None, 4)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, None, 2)),
        ({"RANK": "1", "SLURM_PROCID": "0"}, (1, None, None)),
    ],
)
def test_launchers_tell_by_the_environment(environ: dict[str, str], found: tuple[int | None, ...]) -> None:
    coordinates = find_coordinates((), {}, environ) or {}
    assert tuple(coordinates.get(name) for name in ("rank", "local_rank", "world_size")) == found
    assert coordinates["source"] == "environment"


@pytest.mark.parametrize("environ", [{}, {"RANK": ""}, {"RANK": "-1"}, {"RANK": "x"}, {"LOCAL_RANK": "0"}])
def test_a_process_that_is_no_rank_has_no_coordinates(environ: dict[str, str]) -> None:
    assert find_coordinates((), {}, environ) is None


def test_an_initialised_process_group_is_right_where_the_environment_differs() -> None:
    modules = {
        "torch.distributed": SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            get_rank=lambda: 6,
            get_world_size=lambda: 16,
        )
    }
    assert find_coordinates((), modules, {"RANK": "0", "LOCAL_RANK": "2"}) == {
        "rank": 6,
        "world_size": 16,
        "local_rank": 2,
        "source": "torch.distributed",
    }
    modules["torch.distributed"].is_initialized = lambda: False
    coordinates = find_coordinates((), modules, {"RANK": "0"}) or {}
    assert coordinates["rank"] == 0


def test_megatron_tells_the_layout() -> None:
    state = make_megatron(
        tensor_model_parallel=1, pipeline_model_parallel=2, data_parallel=0, context_parallel=0
    )
    state.get_expert_model_parallel_rank = refuse
    modules = {"megatron.core.parallel_state": state}
    assert find_coordinates((), modules, {"RANK": "9"}) == {
        "rank": 9,
        "tp": 1,
        "pp": 2,
        "dp": 0,
        "cp": 0,
        "source": "Megatron",
    }
    state.model_parallel_is_initialized = lambda: False
    assert find_coordinates((), modules, {"RANK": "9"}) == {"rank": 9, "source": "environment"}


def test_deepspeed_tells_what_it_knows_and_the_rest_is_asked_of_its_mpu() -> None:
    groups = SimpleNamespace(
        _get_data_parallel_rank=lambda: 3,
        _get_sequence_parallel_rank=refuse,
        get_tensor_model_parallel_rank=refuse,
        mpu=SimpleNamespace(get_model_parallel_rank=lambda: 1, get_pipeline_model_parallel_rank=lambda: 0),
    )
    found = find_coordinates((), {"deepspeed.utils.groups": groups}, {"RANK": "7"})
    assert found == {"rank": 7, "dp": 3, "tp": 1, "pp": 0, "source": "DeepSpeed"}


class StandInDeepSpeed:
    """Answers as `deepspeed.utils.groups`: where it has no group of data parallelism it makes one."""

    def __init__(self) -> None:
        self.mpu: object = None
        self.mesh_device: object = None
        self._WORLD_GROUP: object = None
        self.made: list[str] = []

    def _get_data_parallel_rank(self) -> int:
        if self.mpu is None and self.mesh_device is None and self._WORLD_GROUP is None:
            # A new group is made by all ranks at once; alone one would wait here.
            self._WORLD_GROUP = object()
            self.made.append("a clone of the world")
        return 5

    def _get_sequence_parallel_rank(self) -> int:
        return 0


def test_deepspeed_that_is_imported_and_not_used_is_neither_asked_nor_named() -> None:
    groups = StandInDeepSpeed()
    modules = {"deepspeed.utils.groups": groups}
    for _ in range(3):
        assert find_coordinates((), modules, {"RANK": "7"}) == {"rank": 7, "source": "environment"}
    assert groups.made == []


@pytest.mark.parametrize("name", ["mpu", "mesh_device", "_WORLD_GROUP"])
def test_deepspeed_tells_the_rank_of_data_where_its_group_stands(name: str) -> None:
    groups = StandInDeepSpeed()
    setattr(groups, name, SimpleNamespace())
    found = find_coordinates((), {"deepspeed.utils.groups": groups}, {"RANK": "7"}) or {}
    assert (found.get("dp"), groups.made) == (5, [])


def test_asking_torch_and_a_mesh_makes_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import distributed
    from torch.distributed import distributed_c10d
    from torch.distributed.device_mesh import init_device_mesh

    made: list[object] = []
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("pp", "tp"))
        groups = len(distributed_c10d._world.pg_map)
        for name in ("new_group", "_new_process_group_helper", "split_group"):
            monkeypatch.setattr(distributed_c10d, name, lambda *_, **__: made.append(1))
        found = find_coordinates((mesh["tp"],), None, {}) or {}
        assert (found["tp"], found["pp"]) == (0, 0)
        assert (made, len(distributed_c10d._world.pg_map)) == ([], groups)
    finally:
        distributed.destroy_process_group()


def test_a_device_mesh_of_the_parameters_tells_by_the_names_of_its_dimensions() -> None:
    whole = make_mesh(pp=1, dp_replicate=2, fsdp=3, tp=0)
    part: Any = make_mesh(fsdp=3)
    part._get_root_mesh = lambda: whole
    found = find_coordinates((part,), {}, {"RANK": "4"})
    assert found == {"rank": 4, "tp": 0, "pp": 1, "dp": 2, "source": "device mesh"}


def test_a_mesh_without_names_tells_nothing() -> None:
    unnamed = SimpleNamespace(mesh_dim_names=None, get_local_rank=refuse)
    assert find_coordinates((unnamed,), {}, {"RANK": "4"}) == {"rank": 4, "source": "environment"}


def test_a_real_device_mesh_is_understood() -> None:
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh

    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
        found = find_coordinates((mesh["tp"],), None, {})
        assert found == {"rank": 0, "world_size": 1, "tp": 0, "dp": 0, "source": "device mesh"}
    finally:
        distributed.destroy_process_group()
