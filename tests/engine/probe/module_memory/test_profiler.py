"""SimpleMemoryProfiler in a real training: what it writes, and that the training is as without it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.engine.simulation.simulated import plain_answers
from vramscope.analyzers.modules import find_node, make_breakdown, make_point_tree
from vramscope.engine.files.module_memory import read_module_memory
from vramscope.engine.model.sample import ModuleMemory

TRAINING = """
import json, os, sys, torch, vramscope
from contextlib import nullcontext
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.func import grad

torch.manual_seed(0)
unraised = []
sys.unraisablehook = unraised.append
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)
    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(32, 64)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(64, 32, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.ones(64))
        self.buffers = [1]  # as Megatron-LM's DistributedDataParallel has a list of this name
    def forward(self, x):
        x = self.embedding(x) * self.scale
        for block in self.blocks:
            x = block(x)
        return self.head(x)

def train(profile):
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    profiler = vramscope.SimpleMemoryProfiler(model, optimizer, "rank0_dp0_tp0", 3) if profile else None
    tokens, losses = torch.arange(32).reshape(4, 8), []
    for step in range(4):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        grad(lambda x: (x**2).sum())(torch.ones(2))  # raises where hooks on saved tensors are in its way
        loss.backward()
        optimizer.step()
        if profiler:
            profiler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert not profile or not profiler.is_running
    return model, losses

before = torch.autograd.graph.disable_saved_tensors_hooks
_, plain = train(False)
model, profiled = train(True)
hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
top = torch._C._autograd._top_saved_tensors_default_hooks(True)

with torch.no_grad():
    serving = vramscope.SimpleMemoryProfiler(model, log_folder="serving", total_steps=1)
    model(torch.zeros(1, 8, dtype=torch.long))
    serving.step()
flat = torch.zeros(48)
pair = nn.ParameterList([nn.Parameter(flat[:16]), nn.Parameter(flat[16:32])])
sharing = vramscope.SimpleMemoryProfiler(pair, torch.optim.SGD([nn.Parameter(torch.zeros(32))]), "sharing")
sharing.point("all", tag="mine")
try:
    sharing.point("weights")
except vramscope.VramscopeError as error:
    refusal = str(error)
sharing.close()
def save_apart(mode):
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))
    profiler = vramscope.SimpleMemoryProfiler(model, log_folder=mode, total_steps=1)
    run = torch.compile(model, backend="eager") if mode == "compiled" else model
    with torch.autograd.graph.save_on_cpu() if mode == "offloaded" else nullcontext():
        loss = run(torch.ones(8, 64)).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    profiler.step()
for mode in ("kept", "offloaded", "compiled"):
    save_apart(mode)
open("file", "w").close()
try:
    vramscope.SimpleMemoryProfiler(model, log_folder="file/below")
except vramscope.VramscopeError as error:
    refusal += "; " + str(error)
store = f"file://{os.getcwd()}/store"
torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
sharded = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))
for part in (sharded[0], sharded[2], sharded):
    fully_shard(part)
profiler = vramscope.SimpleMemoryProfiler(sharded, torch.optim.SGD(sharded.parameters()), "sharded", 1)
sharded(torch.ones(8, 64)).sum().backward()
profiler.step()
torch.distributed.destroy_process_group()
is_restored = before is torch.autograd.graph.disable_saved_tensors_hooks
print(json.dumps([plain == profiled, hooks + len(unraised), top is None, is_restored, refusal]))
"""
LAYER = re.compile(r"layer: (\S+), layer_mem: (-?\d+\.\d{2}) MB, total_mem: (-?\d+\.\d{2}) MB")
EMBEDDING, UP, DOWN = 32 * 64 * 4, (64 + 1) * 256 * 4, (256 + 1) * 64 * 4
TOKENS = 32


def test_a_profile_of_a_training(tmp_path: Path) -> None:
    """One run of the script is looked at from all sides: a process with torch costs seconds."""
    answers = plain_answers(tmp_path, TRAINING)
    profile = tmp_path / "rank0_dp0_tp0"
    memory = read_module_memory(profile / "module_memory.jsonl")
    check_training_is_as_without_a_profile(answers)
    check_moments_follow_the_training(memory)
    check_measured_beside_computed_by_module(memory)
    check_memory_log_has_the_grammar_and_the_computed_figures(profile / "memory.log", memory)
    check_charts_are_drawn_after_the_last_step(profile)
    check_use_without_an_optimizer_and_without_gradients(tmp_path / "serving")
    check_shared_storages_are_counted_once_and_masters_apart(tmp_path / "sharing")
    check_what_is_unseen_is_not_told(tmp_path)
    check_pieces_of_wrapped_tensors_count(tmp_path / "sharded")


def check_training_is_as_without_a_profile(answers: Any) -> None:
    is_same, hooks, is_bare, is_restored, refusal = answers
    assert (is_same, hooks, is_bare, is_restored) == (True, 0, True, True)
    assert refusal.startswith("with_options: unknown 'weights'; expected params, grads")
    assert refusal.endswith("file/below: cannot be written: Not a directory")


def check_moments_follow_the_training(memory: ModuleMemory) -> None:
    passes = ["forward of activations_0", "backward of activations_0"]
    steps = [tag for number in (1, 2, 3) for tag in (*passes, f"step {number}")]
    assert [moment.tag for moment in memory.moments] == ["creation", *steps]
    assert (memory.device, memory.is_simulated) == ("cpu", False)
    assert memory.rank is not None
    assert (memory.rank.rank, memory.rank.source) == (0, "trace")
    live = [moment.kinds["activation"].measured_bytes for moment in memory.moments[1:4]]
    assert live[0] is not None
    assert live[0] > 0
    assert live[1:] == [0, 0]
    assert memory.moments[1].kinds["grads"].measured_bytes == 0
    assert memory.moments[2].kinds["grads"].measured_bytes == EMBEDDING + 2 * (UP + DOWN)


def check_measured_beside_computed_by_module(memory: ModuleMemory) -> None:
    breakdown = make_breakdown(memory)
    params, state = breakdown.find("params"), breakdown.find("os_state")
    assert params.computed_bytes == params.measured_bytes == EMBEDDING + 2 * (UP + DOWN)
    assert params.tree is not None
    up = find_node(params.tree, ("blocks", "1", "up"))
    assert up is not None
    assert up.measured_bytes == UP
    assert state.measured_bytes == 2 * params.measured_bytes + 9 * 4  # and a step of 4 bytes each
    assert breakdown.find("os_params").measured_bytes == 0
    gradients = make_point_tree(memory, ("grads",), None, "")  # the step ends without them
    assert gradients is not None
    up = find_node(gradients, ("blocks", "1", "up"))
    assert up is not None
    assert (gradients.measured_bytes, up.measured_bytes) == (params.measured_bytes, UP)
    activation = breakdown.find("activation")
    assert activation.tree is not None
    leaves = TOKENS * 4 * (64 + 2 * (256 + 64) + 32)
    assert activation.computed_bytes == leaves
    # Of a block its input is saved by `up`, the output of tanh (which `down` reads too) by the block itself.
    saved = [find_node(activation.tree, ("activations_0", "blocks", "0", *rest)) for rest in ((), ("up",))]
    assert [node and node.measured_bytes for node in saved] == [TOKENS * 4 * (64 + 256), TOKENS * 4 * 64]
    inside = find_node(activation.tree, ("activations_0",))
    assert inside is not None
    tokens = TOKENS * 8  # the indices, which the embedding saves; the buffer `scale` is there without a step
    assert inside.measured_bytes == tokens + TOKENS * 4 * (2 * (64 + 256) + 64)
    outside = find_node(activation.tree, ("(outside of modules)",))
    assert outside is not None
    assert outside.measured_bytes
    assert outside.measured_bytes >= TOKENS * 4 * 32  # the loss keeps its log-probabilities


def check_memory_log_has_the_grammar_and_the_computed_figures(path: Path, memory: ModuleMemory) -> None:
    text = path.read_text(encoding="utf-8")
    states = text.removesuffix("\n\n").split("\n\n")
    assert len(states) == len(memory.moments)
    for state, moment in zip(states, memory.moments, strict=True):
        lines = state.splitlines()
        assert lines[0] == "Memory State:"
        assert float(lines[1].removeprefix("time: ")) == moment.time_s
        computed = moment.kinds["params"].computed_bytes
        assert computed is not None
        assert f"params_memory: {computed / 2**20:.2f} MB, grads_memory: " in lines[4]
        layers = [line for line in lines[5:] if not re.fullmatch(r"---Layout---|\w+_layout:", line)]
        assert all(LAYER.fullmatch(line) for line in layers)
    sections = re.findall(r"^(\w+)_layout:$", states[-1], re.MULTILINE)
    assert sections == ["params", "grads", "os_params", "os_state", "activation_base"]
    rounded = make_breakdown(read_module_memory(path))
    exact = make_breakdown(memory)
    for kind in rounded.kinds:
        assert kind.computed_bytes == pytest.approx(exact.find(kind.kind).computed_bytes, abs=5243)
        assert kind.measured_bytes is None


def check_charts_are_drawn_after_the_last_step(folder: Path) -> None:
    names = {path.name for path in folder.glob("*.html")}
    kinds = ("params_memory", "grads_memory", "os_memory", "activation_memory", "summary")
    assert names == {f"{kind}_sunburst.html" for kind in kinds}


def check_use_without_an_optimizer_and_without_gradients(folder: Path) -> None:
    memory = read_module_memory(folder / "module_memory.jsonl")
    assert [moment.tag for moment in memory.moments] == ["creation", "forward of activations_0", "step 1"]
    breakdown = make_breakdown(memory)
    assert breakdown.find("os_state").measured_bytes == breakdown.find("os_params").computed_bytes == 0
    assert breakdown.find("activation").measured_bytes == 0
    assert breakdown.find("activation").computed_bytes == 8 * 4 * (64 + 2 * (256 + 64) + 32)
    assert memory.moments[-1].kinds["activation"].computed_bytes == 0


def check_shared_storages_are_counted_once_and_masters_apart(folder: Path) -> None:
    memory = read_module_memory(folder / "module_memory.jsonl")
    assert memory.moments[-1].tag == "mine"
    breakdown = make_breakdown(memory)
    params = breakdown.find("params")
    assert (params.computed_bytes, params.measured_bytes) == (128, 192)
    assert params.tree is not None
    assert [(node.name, node.measured_bytes) for node in params.tree.children] == [
        ("0", 64),
        ("1", 64),
        ("(rest of shared storages)", 64),
    ]
    masters = breakdown.find("os_params").tree
    assert masters is not None
    assert json.dumps([node.name for node in masters.children]) == '["0"]'
    assert masters.measured_bytes == 128


def check_what_is_unseen_is_not_told(folder: Path) -> None:
    found = {}
    for mode in ("kept", "offloaded", "compiled"):
        memory = read_module_memory(folder / mode / "module_memory.jsonl")
        kind = make_breakdown(memory).find("activation")
        found[mode] = kind.computed_bytes, kind.measured_bytes
        last = memory.moments[-1].kinds["activation"]
        # The second backward pass through one graph takes nothing away a second time.
        assert (last.computed_bytes or 0, last.measured_bytes) == (0, 0)
    computed, measured = 4 * 8 * (64 + 64 + 8), 4 * 8 * (64 + 64)
    assert found == {
        "kept": (computed, measured),
        "offloaded": (computed, 0),
        "compiled": (None, measured),
    }


def check_pieces_of_wrapped_tensors_count(folder: Path) -> None:
    memory = read_module_memory(folder / "module_memory.jsonl")
    assert memory.rank is not None
    assert (memory.rank.rank, memory.rank.world_size) == (0, 1)
    breakdown = make_breakdown(memory)
    sizes = {kind: breakdown.find(kind).measured_bytes for kind in ("params", "grads", "activation")}
    parameters = 4 * (65 * 64 + 65 * 8)
    # The weights that FSDP gathers are saved for the backward pass too, and are no activations.
    assert sizes == {"params": parameters, "grads": parameters, "activation": 4 * 8 * (64 + 64)}
