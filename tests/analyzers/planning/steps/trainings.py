"""Training steps that the tests trace, as a user's module would make them."""

import gc
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WORDS, TOKENS = 500, 32


class Block(nn.Module):  # type: ignore[misc,no-any-unimported]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        parts = self.project(self.first(x)).view(batch, tokens, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mix(self.second(x))


class GPT(nn.Module):  # type: ignore[misc,no-any-unimported]
    def __init__(self, layers: int, width: int = 64, is_checkpointed: bool = False) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(WORDS, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, WORDS, bias=False)
        self.is_checkpointed = is_checkpointed

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        return self.head(self.norm(x))


def make_step(model: Any, optimizer: Any, batch_size: int, is_mixed: bool = False) -> Callable[[], None]:
    def step() -> None:
        tokens = torch.zeros(batch_size, TOKENS, dtype=torch.long).to("cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=is_mixed):
            loss = functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def plain(layers: int = 2, batch_size: int = 4, is_mixed: bool = False, is_checkpointed: bool = False) -> Any:
    model = GPT(layers, is_checkpointed=is_checkpointed).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer, make_step(model, optimizer, batch_size, is_mixed)


def graphed() -> Any:
    model = torch.compile(GPT(2).cuda(), mode="reduce-overhead")
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer, make_step(model, optimizer, 4)


def compiled_else() -> Any:
    model = torch.compile(GPT(2).cuda(), backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer, make_step(model, optimizer, 4)


def mixed(batch_size: int = 4) -> Any:
    return plain(batch_size=batch_size, is_mixed=True)[2]


def scaled(batch_size: int = 4) -> Any:
    model, optimizer, _ = plain()
    scaler = torch.amp.GradScaler("cuda")

    def step() -> None:
        tokens = torch.zeros(batch_size, TOKENS, dtype=torch.long, device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def tied(batch_size: int = 4) -> Any:
    model = GPT(2)
    model.head.weight = model.embed.weight
    optimizer = torch.optim.AdamW(model.parameters())
    return make_step(model.cuda(), optimizer, batch_size)


def checkpointed(batch_size: int = 4) -> Any:
    return plain(batch_size=batch_size, is_checkpointed=True)


def private(batch_size: int = 4) -> Any:
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    model = GPT(2).cuda()
    data = DataLoader(TensorDataset(torch.zeros(16, TOKENS, dtype=torch.long)), batch_size=batch_size)
    model, optimizer, _ = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.AdamW(model.parameters()),
        data_loader=data,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )
    return make_step(model, optimizer, batch_size)


def needs_depth(batch_size: int, depth: int) -> Any:
    return None


def square(device: str) -> Any:
    return nn.Linear(1024, 1024, bias=False, device=device)


def convolving(device: str) -> Any:
    layers = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 32, 3, padding=1), nn.Conv2d(32, 4, 1)
    return nn.Sequential(*layers).to(device)


def convolving_compiled(device: str) -> Any:
    return torch.compile(convolving(device))


class Convolution(nn.Module):  # type: ignore[misc,no-any-unimported]
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 8, 3, 3))

    def forward(self, images: Any) -> Any:
        return nn.functional.conv2d(images, self.weight, padding=1)


def convolving_by_a_function(device: str) -> Any:
    return Convolution().to(device)


def benchmarking(device: str) -> Any:
    torch.backends.cudnn.benchmark = True
    return convolving(device)


def dropping_its_output() -> Any:
    def step() -> None:
        torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")

    return step


def returning_its_output() -> Any:
    return lambda: torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")


def reading(layers: int) -> Any:
    model, _, step = plain(layers)

    def read() -> Any:
        step()
        return model.head.weight.sum().item()

    return read


def choosing(layers: int) -> Any:
    model, _, step = plain(layers)

    def choose() -> Any:
        step()
        weight = model.head.weight.detach()
        return weight[weight > 0].numel()

    return choose


def left_on_host() -> Callable[[], None]:
    model = nn.Linear(4, 4)
    return lambda: model(torch.zeros(2, 4)).sum().backward()


def broken() -> Any:
    settings: dict[str, int] = {}
    return settings["depth"]


def join() -> tuple[int, int]:
    """Make the group of all ranks; return the own rank and their number."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl")
        # Of the host, as for checkpoints.
        everyone = list(range(torch.distributed.get_world_size()))
        torch.distributed.barrier(torch.distributed.new_group(everyone, None, "gloo"))
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


MEASURED_STEPS = 3


def measure(names: tuple[str, ...]) -> dict[str, list[tuple[int, int]]]:
    """Make steps of a rank among all; return allocated and reserved peaks of each but the first."""
    peaks = {}
    for name in names:
        gc.collect()
        torch.cuda.empty_cache()
        step = globals()[name]()
        kept = step()
        seen = []
        for _ in range(MEASURED_STEPS):
            torch.cuda.reset_peak_memory_stats()
            kept = step()
            seen.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
        peaks[name] = seen
        del step, kept
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return peaks


def repeat(model: Any, *shape: int) -> Callable[[], Any]:
    """Return a step that trains a model on one batch of a shape, and gives the loss."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> Any:
        loss = model(torch.zeros(*shape, device="cuda")).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


class Widening(nn.Module):  # type: ignore[misc,no-any-unimported]
    """Two layers and a norm."""

    def __init__(self, width: int = 64, is_checkpointed: bool = False) -> None:
        super().__init__()
        self.is_checkpointed = is_checkpointed
        self.norm = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        return checkpoint(self.compute, x, use_reentrant=False) if self.is_checkpointed else self.compute(x)

    def compute(self, x: Any) -> Any:
        return self.narrow(functional.relu(self.widen(self.norm(x))))


def replicated() -> Any:
    """DDP, with a number for each channel that it sends before each step."""
    join()
    model = nn.Sequential(Widening(), nn.BatchNorm1d(64), Widening()).cuda()
    return repeat(nn.parallel.DistributedDataParallel(model, [torch.cuda.current_device()]), 32, 64)


def sharded() -> Any:
    from torch.distributed.fsdp import fully_shard

    join()
    model = nn.Sequential(nn.Linear(64, 250), nn.ReLU(), nn.Linear(250, 63)).cuda()
    for layer in model:
        fully_shard(layer)
    return repeat(fully_shard(model), 8, 64)


def sharded_checkpointed() -> Any:
    from torch.distributed.fsdp import fully_shard

    join()
    model = nn.Sequential(*(Widening(63, is_checkpointed=True) for _ in range(3))).cuda()
    for block in model:
        fully_shard(block)
    return repeat(fully_shard(model), 64, 63)


def split() -> Any:
    """Tensor parallelism, with sequence parallelism around it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cuda", (join()[1],))
    model = nn.Sequential(Widening(), Widening()).cuda()
    for block in model:
        ways = {
            "norm": SequenceParallel(sequence_dim=1),
            "widen": ColwiseParallel(input_layouts=Shard(1)),
            "narrow": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(block, mesh, ways)
    return repeat(model, 1, 16, 64)


def overlapping() -> Any:
    """Sends what nothing else holds, and makes other tensors before it waits."""
    from torch.distributed._functional_collectives import all_gather_tensor

    ranks = join()[1]

    def step() -> None:
        work = torch.distributed.all_reduce(torch.zeros(1 << 15, device="cuda"), async_op=True)
        gathered = torch.zeros(ranks << 15, device="cuda")
        given = torch.zeros(1 << 15, device="cuda")
        gathering = torch.distributed.all_gather_into_tensor(gathered, given, async_op=True)
        del given
        made = torch.zeros(1 << 16, device="cuda")
        work.wait()
        gathering.wait()
        del work, gathering
        pending = all_gather_tensor(torch.zeros(1 << 17, device="cuda"), 0, torch.distributed.group.WORLD)
        made = torch.zeros(1 << 16, device="cuda") + made[0]
        made[0] = pending[0]

    return step


def staged() -> Any:
    """One stage a rank, 1F1B."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, ranks = join()
    device = torch.device("cuda", torch.cuda.current_device())
    module = Widening().cuda()
    schedule = Schedule1F1B(
        PipelineStage(module, rank, ranks, device),
        2 * ranks,
        loss_fn=lambda made, target: (made - target).square().mean(),
    )
    return feed(schedule, 64 * ranks, torch.optim.AdamW(module.parameters()))


def feed(schedule: Any, rows: int, optimizer: Any) -> Callable[[], Any]:
    """Return a step of a pipeline."""
    rank, ranks = join()

    def step() -> Any:
        given = (torch.zeros(rows, 64, device="cuda"),) if rank == 0 else ()
        wanted = torch.zeros(rows, 64, device="cuda") if rank == ranks - 1 else None
        kept = schedule.step(*given, target=wanted)
        optimizer.step()
        optimizer.zero_grad()
        return kept

    return step


def pipelined() -> Any:
    """Two stages a rank, which ask the stage before and the stage after for shapes."""
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B

    rank, ranks = join()
    modules = [nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).cuda() for _ in range(2)]
    device = torch.device("cuda", torch.cuda.current_device())
    stages = [
        PipelineStage(module, piece * ranks + rank, 2 * ranks, device) for piece, module in enumerate(modules)
    ]
    schedule = ScheduleInterleaved1F1B(
        stages, max(4, ranks), loss_fn=lambda made, target: (made - target).square().mean()
    )
    optimizer = torch.optim.AdamW([each for module in modules for each in module.parameters()])
    return feed(schedule, 8, optimizer)


class Routed(nn.Module):  # type: ignore[misc,no-any-unimported]
    """An expert on each rank, which takes as many rows of each rank, or those that are routed to it."""

    def __init__(self, ranks: int, takes_all: bool) -> None:
        super().__init__()
        self.ranks, self.takes_all = ranks, takes_all
        self.router = nn.Linear(64, ranks, bias=False)
        self.expert = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

    def forward(self, x: Any) -> Any:
        weights, chosen = self.router(x).softmax(-1).max(-1)
        order = chosen.argsort()
        sent = received = [len(x) // self.ranks] * self.ranks
        if self.takes_all:
            counts = chosen.new_zeros(self.ranks).scatter_add_(0, chosen, torch.ones_like(chosen))
            others = torch.empty_like(counts)
            torch.distributed.all_to_all_single(others, counts)
            sent, received = counts.tolist(), others.tolist()
        made = exchange(self.expert(exchange(x[order], received, sent)), sent, received)
        return x + torch.zeros_like(x).index_copy(0, order, made) * weights[:, None]


def exchange(x: Any, received: list[int], sent: list[int]) -> Any:
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    return all_to_all_single_autograd(x, received, sent, torch.distributed.group.WORLD)


def routed(takes_all: bool = False) -> Any:
    ranks = join()[1]
    torch.manual_seed(0)
    model = Routed(ranks, takes_all).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> Any:
        loss = model(torch.randn(256, 64, device="cuda")).square().mean()
        loss.backward()
        torch.distributed.all_reduce(model.router.weight.grad)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def unlimited() -> Any:
    return routed(takes_all=True)


def counted() -> Any:
    """Ranks say how many rows they send, as counters know them, before they send the rows."""
    ranks, device = join()[1], "cuda"
    weight = nn.Linear(64, 64).to(device)

    def step() -> None:
        chosen = torch.arange(256, device=device) % ranks
        counts = torch.stack([(chosen == other).sum() for other in range(ranks)])
        every = torch.zeros(ranks * ranks, dtype=counts.dtype, device=device)
        torch.distributed.all_gather_into_tensor(every, counts)
        torch.distributed.broadcast(counts, ranks - 1)
        rank = torch.distributed.get_rank()
        received = every.view(ranks, ranks)[:, rank].tolist()
        made = exchange(weight(torch.randn(256, 64, device=device)), received, counts.tolist())
        made.sum().backward()

    return step


def unevenly_gathered() -> Any:
    """Gathers nothing, gathers parts of different sizes, and gets numbers that another rank knows."""
    ranks, device = join()[1], "cuda"
    weight = nn.Linear(64, 64).to(device)

    def step() -> None:
        nothing = [torch.zeros(0, dtype=torch.long, device=device) for _ in range(ranks)]
        torch.distributed.all_gather(nothing, torch.zeros(0, dtype=torch.long, device=device))
        parts = [torch.zeros(2 + at, dtype=torch.long, device=device) for at in range(ranks)]
        torch.distributed.all_gather(parts, torch.zeros(3, dtype=torch.long, device=device))
        rows = torch.tensor([4096 if torch.distributed.get_rank() == 0 else 0], device=device)
        torch.distributed.broadcast(rows, 0)
        weight(torch.randn(int(rows.item()), 64, device=device)).sum().backward()

    return step


class Wrapper(nn.Module):  # type: ignore[misc,no-any-unimported]
    """Has a list under the name of a method, as Megatron-LM's DistributedDataParallel."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers = [1]
        self.module = nn.Linear(64, 64)
        self.register_buffer("shift", torch.zeros(256))

    def forward(self, x: Any) -> Any:
        return self.module(x)


def wrapped() -> Any:
    model = Wrapper().cuda()

    def step() -> None:
        model(torch.randn(16, 64, device="cuda")).sum().backward()

    return step


def naming() -> Any:
    """A step that says on stderr which GPU it finds."""
    major, minor = torch.cuda.get_device_capability()
    count = torch.cuda.get_device_properties(0).multi_processor_count
    print(f"capability {major}.{minor} of {count}", file=sys.stderr)
    return plain()
