"""Training on several ranks: with storage and without it every rank needs the same bytes."""

import json
from pathlib import Path

from tests.engine.simulation.simulated import GIB, answers, run_ranks

TRAININGS = """
import gc, json, os, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor, randn
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module)
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
mesh = init_device_mesh("cuda", (2,))  # makes the process group
WIDTH = 64
def make():
    first, second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
    return nn.Sequential(nn.LayerNorm(WIDTH), first, nn.ReLU(), second)
def train(model, tokens=32):
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        loss = model(torch.randn(1, tokens, WIDTH, device="cuda")).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return loss
def replicate():
    train(nn.parallel.DistributedDataParallel(make().cuda(), device_ids=[rank]))
def compress():
    model = nn.parallel.DistributedDataParallel(make().cuda(), device_ids=[rank])
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    train(model)
def shard():
    with torch.device("meta"):
        model = make()
    for layer in model:
        fully_shard(layer)
    fully_shard(model).to_empty(device="cuda")
    model.set_gradient_divide_factor(3.0)  # NCCL multiplies while it adds
    for parameter in model.parameters():
        nn.init.trunc_normal_(parameter)
    train(model)
def wrap():
    found = []
    for device in (rank, torch.device("cuda", rank)):
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        train(FullyShardedDataParallel(make(), device_id=device))
        found.append(torch.cuda.max_memory_allocated() - before)
    assert found[0] == found[1], found
def split():
    model = make().cuda()
    parallelize_module(model, mesh, {
        "0": SequenceParallel(sequence_dim=1),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "3": RowwiseParallel(output_layouts=Shard(1)),
    })
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    train(model, 16)
    randn(8, WIDTH, device_mesh=mesh, placements=[Shard(0)])
def exchange():
    piece, whole = torch.ones(256, device="cuda"), torch.ones(512, device="cuda")
    parts = list(whole.chunk(2))
    with dist._coalescing_manager(device=torch.device("cuda")):
        dist.all_reduce(piece)
        dist.all_reduce(whole)
    dist.broadcast(piece, 0)
    dist.all_gather(parts, piece)
    dist.all_gather_into_tensor(whole, piece)
    dist.reduce_scatter_tensor(piece, whole)
    dist.all_to_all_single(torch.empty_like(whole), whole)
    dist.all_reduce(piece, async_op=True).wait()
    dist.gather(piece, parts if rank == 0 else None, 0)
    dist.scatter(piece, parts if rank == 0 else None, 0)
    dist.send(piece, 1) if rank == 0 else dist.recv(piece, 0)
    given = [rank]
    dist.broadcast_object_list(given, 0, device=torch.device("cuda"))
    assert given == [0]
    device = torch.device("cuda", rank)
    given = [{"shape": (rank, 2)}]
    if rank == 0:
        dist.send_object_list(given, 1, device=device)
    else:
        dist.recv_object_list(given, src=0, device=device)
    assert given == [{"shape": (0, 2)}]
peaks = {}
for job in (replicate, compress, shard, wrap, split, exchange):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    job()
    stats = torch.cuda.memory_stats()
    peaks[job.__name__] = [stats[f"{it}_bytes.all.peak"] for it in ("allocated", "requested", "reserved")]
dist.barrier(device_ids=[rank])
dist.destroy_process_group()
print(json.dumps([peaks, torch.cuda._vramscope_simulated["describe_uses"]()["groups"]]))
"""


def test_every_parallel_training_needs_the_same_bytes_without_storage(tmp_path: Path) -> None:
    config = {"total_bytes": GIB, "devices": 2}
    real = [json.loads(it.splitlines()[-1]) for it in run_ranks(tmp_path, TRAININGS, config, 2)]
    fake = [
        json.loads(it.splitlines()[-1])
        for it in run_ranks(tmp_path, TRAININGS, {**config, "is_fake": True, "has_stand_ins": False}, 2)
    ]
    # All groups have both ranks, reduce or gather, and one also sends from one rank to the other.
    groups = fake[0][1]
    assert [it["peers"] for it in groups].count(1) == 1
    assert all(it["ranks"] == 2 and it["is_collective"] for it in groups)
    assert all(found == groups for _, found in (fake[1], *real))
    for peaks, _ in (fake[1], *real):
        assert peaks == fake[0][0]
    # Weights, gradients and two moments of a layer of 64 to 256 to 64: all on each rank, or about half.
    whole_bytes = 4 * 4 * (2 * 64 * 256 + 64 + 256 + 2 * 64)
    for peaks, _ in fake:
        assert peaks["replicate"][1] > whole_bytes
        assert peaks["split"][1] < 0.75 * peaks["replicate"][1]


UNUSED = """
import json, os, torch, warnings
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
warnings.filterwarnings("error", message="Accessing the data pointer")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
WIDTH = 256
def wrap(module):
    return FullyShardedDataParallel(module, device_id=rank)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.unused, self.last = (wrap(nn.Linear(WIDTH, WIDTH)) for _ in range(3))
    def forward(self, x):
        x = self.first(x)
        self.unused(x)
        return self.last(x)
model = wrap(Model())
before = torch.cuda.memory_allocated()
model(torch.randn(8, WIDTH, device="cuda")).sum().backward()
print(json.dumps([before, torch.cuda.memory_allocated()]))
dist.barrier(device_ids=[rank])
dist.destroy_process_group()
"""


def test_fsdp_frees_what_it_gathered_for_a_module_that_the_loss_does_not_use(tmp_path: Path) -> None:
    """It gathers the module ahead in the backward pass, and frees it at the end by where its tensors are."""
    config = {"total_bytes": GIB, "devices": 2}
    real = run_ranks(tmp_path, UNUSED, config, 2)
    fake = run_ranks(tmp_path, UNUSED, {**config, "is_fake": True, "has_stand_ins": False}, 2)
    assert fake == real
    before, after = json.loads(fake[0].splitlines()[-1])
    # Of two of the three modules it has gradients, half of them on each rank.
    gradient_bytes = 4 * (256 * 256 + 256)
    assert after - before < 1.1 * gradient_bytes


WRAPPED = """
import json, torch
class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
    def __init__(self, inner):
        self.inner = inner
    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        made = function(*(it.inner if isinstance(it, Wrapper) else it for it in args), **(kwargs or {}))
        return Wrapper(made) if isinstance(made, torch.Tensor) else made
before = torch.cuda.memory_allocated()
wrapped = Wrapper(torch.ones(1024, device="cuda"))
added = wrapped * 2 + torch.ones(1024, device="cuda")
grown_bytes = torch.cuda.memory_allocated() - before
devices = [str(it.device) for it in (added, added.inner, added.cpu())]
print(json.dumps([*devices, added.is_cuda, grown_bytes]))
"""


def test_a_tensor_made_of_others_is_on_their_device_and_only_they_are_counted(tmp_path: Path) -> None:
    for is_fake in (False, True):
        found = answers(tmp_path, WRAPPED, is_fake=is_fake)
        assert found == ["cuda:0", "cuda:0", "cpu", True, 2 * 4096]


GENERATORS = """
import json, pickle, torch
def draw(generator):
    return torch.rand(3, device="cuda", generator=generator).tolist()
generator = torch.Generator("cuda")
first = draw(generator.manual_seed(5))
state = generator.get_state()
second = draw(generator)
again = draw(generator.set_state(state))
copied = pickle.loads(pickle.dumps(generator))
third = [draw(copied), draw(generator)]
host = torch.rand(3, generator=torch.Generator().manual_seed(5)).tolist()
default = torch.cuda.get_rng_state()
torch.cuda.set_rng_state(default)
print(json.dumps({
    "host": first == host, "sizes": [state.numel(), default.numel()], "restored": second == again,
    "moves": first != second, "copied": third[0] == third[1], "seed": generator.initial_seed(),
    "offset": default[8:].view(torch.int64).item(),
    "unchanged": torch.equal(torch.cuda.get_rng_state(), default),
}))
"""


def test_a_generator_of_the_card_has_a_state_of_seed_and_offset(tmp_path: Path) -> None:
    assert answers(tmp_path, GENERATORS) == {
        "host": True,
        "sizes": [16, 16],
        "restored": True,
        "moves": True,
        "copied": True,
        "seed": 5,
        "offset": 0,
        "unchanged": True,
    }


WHOLE_NUMBERS = """
import json, os, torch
import torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
def make(*numbers):
    return torch.tensor(numbers, device="cuda")
length = torch.tensor(7 if rank == 0 else -1, device="cuda")
dist.broadcast(length, 0)
least, total = make(rank + 3, 5), make(rank, rank + 1)
dist.all_reduce(least, op=dist.ReduceOp.MIN)
dist.all_reduce(total)
parts, joined = [make(0, 0), make(0, 0)], make(0, 0, 0, 0)
dist.all_gather(parts, make(rank, 9))
dist.all_gather_into_tensor(joined, make(rank, 4))
# Rank 1 does not know its own numbers, so that nobody knows the sum; no rank waits for ever.
guess = torch.randint(5, (2,), device="cuda") if rank else make(1, 2)
dist.all_reduce(guess)
print(json.dumps([
    length.item(), least.tolist(), total.tolist(), [it.tolist() for it in parts], joined.tolist(),
    guess.tolist()]))
dist.destroy_process_group()
"""


def test_small_whole_numbers_reach_the_other_ranks_without_storage(tmp_path: Path) -> None:
    config = {"total_bytes": GIB, "devices": 2, "is_fake": True, "has_stand_ins": True}
    for printed in run_ranks(tmp_path, WHOLE_NUMBERS, config, 2):
        found = json.loads(printed.splitlines()[-1])
        assert found == [7, [3, 5], [1, 3], [[0, 9], [1, 9]], [0, 4, 1, 4], [1, 1]]


UNCHOSEN = """
import copy, json, torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.merge = nn.Linear(64, 64), nn.Linear(64, 64)
    def forward(self, hidden):
        heads = self.project(hidden).view(2, 8, 4, 16).transpose(1, 2)
        attended = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return self.merge(attended.transpose(1, 2).flatten(2))
mesh = init_device_mesh("cuda", (2,))  # makes the process group, and chooses the card of this rank
torch.manual_seed(0)
whole = Attention().to("cuda")
split = parallelize_module(copy.deepcopy(whole), mesh, {
    "project": ColwiseParallel(use_local_output=False), "merge": RowwiseParallel()})
hidden = torch.randn(2, 8, 64, device="cuda")
found = []
for model in (whole, split):
    loss = model(hidden).square().mean()
    loss.backward()
    gradient = model.project.weight.grad
    gradient = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
    found.append(torch.stack([loss.detach(), gradient.norm()]))
print(json.dumps([torch.cuda.current_device(), bool(torch.allclose(*found))]))
torch.distributed.destroy_process_group()
"""


def test_a_mesh_chooses_the_card_of_a_rank_and_attention_is_split_by_heads(tmp_path: Path) -> None:
    """PyTorch's tensor-parallel examples choose no card, and give sharded tensors to fused attention."""
    printed = run_ranks(tmp_path, UNCHOSEN, {"total_bytes": GIB, "devices": 2}, 2)
    assert [json.loads(it.splitlines()[-1]) for it in printed] == [[0, True], [1, True]]


REBUILT = """
import json, os, torch
from torch import nn
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.distributed.init_process_group("nccl")
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda()
model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.AdamW(model.parameters())
peaks = []
for _ in range(4):
    torch.cuda.reset_peak_memory_stats()
    model((rank + 1) * torch.randn(512, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    peaks.append(torch.cuda.max_memory_allocated())
print(json.dumps([peaks, model.module[0].weight.double().sum().item()]))
torch.distributed.destroy_process_group()
"""


def test_buckets_that_ddp_makes_again_are_on_the_card_before_the_forward_pass(tmp_path: Path) -> None:
    """Else the second step, which is the last that `estimate --factory` traces, needs less than the third."""
    for is_fake in (False, True):
        config = {"total_bytes": GIB, "devices": 2, "is_fake": is_fake, "has_stand_ins": is_fake}
        printed = run_ranks(tmp_path, REBUILT, config, 2)
        (first, weights), (second, same_weights) = (json.loads(it.splitlines()[-1]) for it in printed)
        # Each rank has data of its own, and gradients are averaged.
        assert weights == same_weights
        assert first == second
        assert first[0] <= first[1] == first[2] == first[3]
