"""Ranks of one job: each on its card, or all on one that they share; DDP through gloo."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.simulation.simulated import GIB, MIB, run_ranks

RANK = """
import hashlib, json, os, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024, bias=False), nn.GELU(), nn.Linear(1024, 256, bias=False)).cuda()
weights_bytes = torch.cuda.memory_allocated()
parallel = DistributedDataParallel(model, device_ids=[local])
optimizer = torch.optim.AdamW(parallel.parameters())
torch.manual_seed(local)
for _ in range(3):
    parallel(torch.randn(8, 256, device="cuda")).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
# Weights, and two moments of each, are not DDP's.
buckets_bytes = torch.cuda.memory_allocated() - 3 * weights_bytes
total = torch.full((2,), float(local), device="cuda")
dist.all_reduce(total)
dist.barrier()
free_bytes, _ = torch.cuda.mem_get_info()
content = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
digest = hashlib.sha256(content).hexdigest()
print(json.dumps({"local": local, "device": str(total.device),
    "card": torch.cuda._vramscope_simulated["index"],
    "weights": weights_bytes, "buckets": buckets_bytes, "reserved": torch.cuda.memory_reserved(),
    "free": free_bytes, "total": total.tolist(), "digest": digest}) + "\\n", end="", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def _run_ranks(folder: Path, devices: int) -> list[dict[str, Any]]:
    """Train on two ranks and return what each said, by local rank."""
    config = {
        "total_bytes": GIB,
        "devices": devices,
        "ledger_dir": str(folder / "cards"),
        "context_bytes": MIB,
    }
    printed = run_ranks(folder, RANK, config, 2)
    return [json.loads(it.splitlines()[-1]) for it in printed]


@pytest.mark.parametrize("devices", [1, 2])
def test_two_ranks_train_on_one_or_two_cards(tmp_path: Path, devices: int) -> None:
    first, second = _run_ranks(tmp_path, devices)
    assert first["digest"] == second["digest"]
    assert first["total"] == second["total"] == [1.0, 1.0]
    assert [first["device"], second["device"]] == ["cuda:0", "cuda:1"]
    assert [first["card"], second["card"]] == [0, devices - 1]
    # DDP keeps a bucket for each gradient beside the weights.
    assert first["buckets"] == first["weights"] == 2 * MIB
    each = first["reserved"] + MIB
    assert first["free"] == GIB - (2 * each if devices == 1 else each)


def test_a_rank_runs_out_of_what_the_other_holds(tmp_path: Path) -> None:
    config = {"total_bytes": GIB, "ledger_dir": str(tmp_path / "cards")}
    first, second = run_ranks(
        tmp_path,
        """
        import os, time, torch
        def wait_for(name):
            while not os.path.exists(name):
                time.sleep(0.01)
        if os.environ["RANK"] == "0":
            held = torch.empty(700 << 20, dtype=torch.uint8, device="cuda")
            open("held", "w").close()
            wait_for("tried")
            del held
            torch.cuda.empty_cache()
            print(torch.cuda.mem_get_info()[0])
        else:
            wait_for("held")
            try:
                torch.empty(400 << 20, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                print("324.00 MiB is free" in str(error), "has 700.00 MiB memory in use" in str(error))
            open("tried", "w").close()
        """,
        config,
        2,
    )
    assert second.split() == ["True", "True"]
    assert first.split() == [str(GIB)]
