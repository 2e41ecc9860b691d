"""What training scripts use beside the plain loop: it works, and computes what the host alone computes."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.components import missing
from tests.engine.simulation.simulated import GIB, answers, plain_answers, run_script

OPACUS = """
import hashlib, json, torch, warnings
warnings.simplefilter("ignore")
from opacus import PrivacyEngine
from torch import nn
torch.manual_seed(0)
device = {device!r}
model = nn.Sequential(nn.Embedding(50, 16), nn.Flatten(), nn.Linear(128, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = torch.utils.data.TensorDataset(torch.randint(0, 50, (64, 8)), torch.randint(0, 10, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=16)
options = dict(module=model, optimizer=optimizer, data_loader=loader,
               noise_multiplier=1.0, max_grad_norm=1.0, grad_sample_mode={mode!r})
criterion = nn.CrossEntropyLoss()
if {mode!r} == "ghost":
    model, optimizer, criterion, loader = PrivacyEngine().make_private(**options, criterion=criterion)
else:
    model, optimizer, loader = PrivacyEngine().make_private(**options)
for inputs, labels in loader:
    optimizer.zero_grad()
    criterion(model(inputs.to(device)), labels.to(device)).backward()
    optimizer.step()
content = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
print(json.dumps(hashlib.sha256(content).hexdigest()))
"""


@pytest.mark.parametrize("mode", ["hooks", "ghost", "functorch"])
def test_opacus_trains_to_the_same_weights(tmp_path: Path, mode: str) -> None:
    if find_spec("opacus") is None:
        missing("opacus is not installed (pip install opacus)")
    simulated = answers(tmp_path, OPACUS.format(device="cuda", mode=mode))
    assert simulated == plain_answers(tmp_path, OPACUS.format(device="cpu", mode=mode))


MIXED = """
import hashlib, json, torch
from torch import nn
from torch.utils.checkpoint import checkpoint
device, autocast_device = {device!r}, {device!r}
torch.manual_seed(0)
first, second = nn.Linear(64, 64).to(device), nn.Linear(64, 8).to(device)
parameters = [*first.parameters(), *second.parameters()]
optimizer = torch.optim.AdamW(parameters, 1e-3, fused=True)
scaler = torch.amp.GradScaler(device, init_scale=256.0)
for step in range(3):
    for part in range(2):
        with torch.autocast(device, dtype=torch.bfloat16):
            hidden = checkpoint(lambda x: nn.functional.dropout(first(x), 0.2).relu(),
                                torch.randn(16, 64).to(device), use_reentrant=False)
            loss = second(hidden).float().square().mean() / 2
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
content = b"".join(p.detach().cpu().numpy().tobytes() for p in parameters)
print(json.dumps([hashlib.sha256(content).hexdigest(), scaler.get_scale(), str(hidden.dtype)]))
"""


def test_autocast_scaling_checkpointing_accumulation_and_fused_steps_agree_with_the_host(
    tmp_path: Path,
) -> None:
    simulated = answers(tmp_path, MIXED.format(device="cuda"))
    assert simulated == plain_answers(tmp_path, MIXED.format(device="cpu"))
    assert simulated[1:] == [256.0, "torch.bfloat16"]


SHARDED = """
import json, torch
from torch import nn
from torch.distributed.fsdp import fully_shard
torch.distributed.init_process_group(
    "nccl", init_method="file://" + __file__ + ".store", rank=0, world_size=1)
layer = nn.Linear(64, 64, bias=False, device="cuda")
fully_shard(layer)
optimizer = torch.optim.Adam(layer.parameters())
layer(torch.randn(4, 64, device="cuda")).sum().backward()
before = torch.cuda.memory_allocated()
optimizer.step()
torch.cuda.synchronize()
devices = {str(value.device) for value in optimizer.state[layer.weight].values() if value.dim()}
print(json.dumps([torch.cuda.memory_allocated() - before, sorted(devices)]))
"""


def test_the_state_of_an_optimizer_is_on_the_card_where_parameters_are_sharded(tmp_path: Path) -> None:
    grown_bytes, devices = answers(tmp_path, SHARDED)
    assert devices == ["cuda:0"]
    assert grown_bytes == 2 * 64 * 64 * 4


def test_with_storage_compiling_is_left_out_and_said_once_and_output_is_untouched(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        """
        import torch
        layer = torch.compile(torch.nn.Linear(2, 2).cuda())
        @torch.compile(dynamic=True)
        def double(x):
            return 2 * x
        print(double(layer(torch.ones(1, 2, device="cuda"))).shape)
        """,
        {"total_bytes": 1 << 30},
    )
    assert result.stdout == "torch.Size([1, 2])\n"
    assert result.stderr == (
        "vramscope simulate: torch.compile is run eagerly here, so memory is that of eager mode: it is "
        "compiled only where tensors have no storage (--fake)\n"
    )


def test_a_snapshot_is_dumped_with_its_trace(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, pickle, torch
        torch.cuda.memory._record_memory_history(max_entries=100)
        tensor = torch.ones(1000, device="cuda")
        torch.cuda.memory._dump_snapshot("snapshot.pickle")
        torch.cuda.memory._record_memory_history(enabled=None)
        with open("snapshot.pickle", "rb") as file:
            snapshot = pickle.load(file)
        events = [event["action"] for event in snapshot["device_traces"][0]]
        mark = snapshot["allocator_settings"]["vramscope_simulated"]
        print(json.dumps([events, len(snapshot["segments"]), mark]))
        """,
    )
    assert "alloc" in found[0]
    assert found[2] == {"total_bytes": 2 * GIB, "name": "Simulated 2 GiB GPU"}
    assert found[1] == 1


def test_workers_load_and_pinned_memory_is_counted(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.randn(64, 8))
        held = torch.zeros(1, device="cuda")
        seen = [batch.is_pinned() and batch.cuda().is_cuda for (batch,) in
                DataLoader(data, batch_size=16, num_workers=2, pin_memory=True)]
        kept = torch.zeros(1 << 18).pin_memory()
        stats = torch.cuda.host_memory_stats()
        print(json.dumps([seen, stats["allocated_bytes.current"] >= 1 << 20]))
        """,
    )
    assert found == [[True] * 4, True]


RECORDED = """
import json, torch
torch.cuda.memory._record_memory_history(max_entries=1000)
def work():
    return torch.ones(1 << 20, device="cuda"), (torch.ones(1000, device="cuda") * 2).requires_grad_()
held = work()
(held[1] * held[1]).sum().backward()
snapshot = torch.cuda.memory._snapshot()
def files(things):
    return {frame["filename"] for thing in things for frame in thing.get("frames") or ()}
def first(blocks):
    return [b["frames"][0]["name"] for b in blocks if b["state"] == "active_allocated"]
segments = [torch.cuda.memory_snapshot(), snapshot["segments"]]
blocks = [[b for segment in it for b in segment["blocks"]] for it in segments]
everything = [*segments, *blocks, snapshot["device_traces"][0]]
traced = [it["frames"][0]["name"] for it in snapshot["device_traces"][0] if it["action"] == "alloc"]
print(json.dumps([sorted(set().union(*map(files, everything))), __file__, first(blocks[0]), traced]))
"""


def test_recorded_frames_are_never_those_of_the_simulation(tmp_path: Path) -> None:
    files, script, holders, traced = answers(tmp_path, RECORDED)
    assert script in files
    assert not [it for it in files if "allocator_model" in it or "simulation" in Path(it).parts]
    assert "work" in holders
    assert traced.count("work") >= 2
