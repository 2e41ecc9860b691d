"""Folders of a profile carry the place that a device mesh gives to a rank."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vramscope.engine.probe.module_memory.torch_trace import NoProfile, RankPlace, initialize_llm_profile

pytestmark = pytest.mark.loads_torch


@contextmanager
def joined_world(rank: int, size: int) -> Iterator[None]:
    """Be one rank of a world whose other ranks do not exist: torch's own fake process group."""
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("rank", range(4))
def test_a_rank_of_a_mesh_by_data_and_tensors_is_named_by_both(rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    with joined_world(rank, 4):
        init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        place = RankPlace()
    dp, tp = divmod(rank, 2)
    assert place.memory_folder() == f"memory_trace/rank{rank}_dp{dp}_tp{tp}"
    assert place.is_traced == (rank == 0)


@pytest.mark.parametrize("rank", range(4))
def test_the_first_rank_of_each_pipeline_stage_is_traced(rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    with joined_world(rank, 4):
        init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
        place = RankPlace()
        profile = initialize_llm_profile(profiling=True, start_time="now", job_name="job")
    pp, tp = divmod(rank, 2)
    assert place.trace_folder("job/now") == f"job/now/traces/rank{rank}_dp0_tp{tp}_pp{pp}"
    assert isinstance(profile, NoProfile) == (tp != 0)


def test_a_mesh_over_all_ranks_is_seen_by_parameters_behind_plain_ones() -> None:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate

    with joined_world(3, 4):
        mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
        laid_out = DTensor.from_local(torch.zeros(4), mesh, [Replicate()], run_check=False)
        place = RankPlace([torch.zeros(4), laid_out])
    assert place.memory_folder() == "memory_trace/rank3_dp0_tp3"
