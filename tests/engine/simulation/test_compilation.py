"""What `torch.compile` makes a card allocate, next to what the same compiler really allocates on the host."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.simulation.simulated import answers, plain_answers, run_script
from tests.once import make_once

MODEL = """
import json, sys, torch
from torch import nn
torch.manual_seed(0)
def make_model():
    parts = [nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(256), nn.Linear(256, 64)]
    return nn.Sequential(*parts)
"""

# Runs the kernels: the memory of the host is what PyTorch's profiler sees of it.
ON_HOST = """
import torch._inductor.config
from torch.profiler import ProfilerActivity, profile, record_function
torch._inductor.config.compile_threads = 1
torch._inductor.config.cpp.vec_isa_ok = True  # else it compiles programs to find out
model = torch.compile(make_model())
inputs = torch.randn(128, 64)
model(inputs).square().mean().backward()
model.zero_grad()
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
    with record_function("begins"):
        pass
    output = model(inputs)
    with record_function("is forward"):
        pass
    output.square().mean().backward()
events = profiler.profiler.kineto_results.events()
times = {it.name(): it.start_ns() for it in events}
live = peak = saved = 0
for time, size in sorted((it.start_ns(), it.nbytes()) for it in events if it.name() == "[memory]"):
    if time >= times["begins"]:
        live += size
        peak = max(peak, live)
        if time <= times["is forward"]:
            saved = live
print(json.dumps([saved, peak]))
"""

# Each is run in one process after the other: the compiler takes longer to load than to compile.
JOBS = """
import gc, traceback
def return_something():
    with torch.no_grad():
        output = torch.compile(make_model().cuda())(torch.randn(2, 4, 64, device="cuda"))
    return output._is_view()
def step_wholly():
    def train(is_compiled):
        model = make_model().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        before = torch.cuda.memory_allocated()
        def step(inputs):
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        step = torch.compile(step) if is_compiled else step
        grown = []
        for _ in range(3):
            step(torch.randn(128, 64, device="cuda"))
            grown.append(torch.cuda.memory_allocated() - before)
        return grown
    return [train(False), train(True), len(torch._dynamo.utils.counters["stats"])]
class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([make_model(), make_model()])
    def forward(self, inputs):
        middle = self.parts[0](inputs) + torch.arange(64, device="cuda")
        if middle.sum().item() > 0:
            middle = middle * 2
        assert middle.device.type == "cuda" and middle.is_cuda
        return self.parts[1](middle)
def change_sizes():
    model = Broken().cuda()
    compiled = torch.compile(model)
    def measure(rows, called):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        called(torch.randn(rows, 64, device="cuda")).mul_(2).mean().backward()
        model.zero_grad()
        return torch.cuda.max_memory_allocated() - before
    return [[measure(rows, called) for called in (model, compiled)] for rows in (1024, 2048, 4096)]
# Sizes as they are asked for, before the allocator rounds them.
class Log:
    def __init__(self):
        self.sizes, self.peak = {}, 0
    def note_allocated(self, address, size, stream, stack):
        self.sizes[address] = size
        self.peak = max(self.peak, sum(self.sizes.values()))
    def note_freed(self, address):
        self.sizes.pop(address, None)
    def note_emptied(self):
        pass
def find_card():
    return next(it for it in gc.get_objects() if type(it).__name__ == "Card")
def allocate():
    def measure(model):
        inputs = torch.randn(128, 64, device="cuda")
        model(inputs).square().mean().backward()
        model.zero_grad()
        log = find_card().observer = Log()
        output = model(inputs)
        saved = sum(log.sizes.values())
        output.square().mean().backward()
        return saved, log.peak
    found = [measure(make_model().cuda()), measure(torch.compile(make_model().cuda()))]
    # Lowered for the host, as the real one; last, as it stays so.
    torch._dynamo.reset()
    compilation = sys.modules["vramscope_simulation.compilation"]
    compilation._mark = lambda *_: None
    compilation._ALLOCATING["empty_strided_cpu"] = compilation._empty_on_card
    return [*found, measure(torch.compile(make_model().cuda()))]
def run(job):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    gc.collect()
    try:
        return {"found": job()}
    except Exception:
        return {"error": traceback.format_exc()}
jobs = return_something, step_wholly, change_sizes, allocate
print(json.dumps({job.__name__: run(job) for job in jobs}))
"""


def fake_answers(folder: Path, source: str) -> Any:
    return answers(folder, source, is_fake=True, has_stand_ins=True)


@pytest.fixture(scope="module")
def find(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """Return what tells what a job has found."""

    def run() -> Any:
        return fake_answers(tmp_path_factory.mktemp("jobs"), MODEL + JOBS)

    answered = make_once(tmp_path_factory, "compilation", run)

    def find(job: str) -> Any:
        assert "found" in answered[job], answered[job]["error"]
        return answered[job]["found"]

    return find


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles for the host with g++")
def test_a_compiled_step_allocates_byte_for_byte_what_the_real_one_does_on_the_host(
    tmp_path: Path, find: Callable[[str], Any]
) -> None:
    real = plain_answers(tmp_path, MODEL + ON_HOST)
    eager, compiled, on_host = find("allocate")
    assert on_host == real
    # The program for CUDA sums in other parts, which take a little.
    assert compiled[0] == real[0]
    assert abs(compiled[1] - real[1]) < 0.02 * real[1]
    assert compiled[0] < eager[0]
    assert compiled[1] < eager[1]


def test_a_whole_compiled_step_makes_the_states_of_its_optimizer_on_the_card(
    find: Callable[[str], Any],
) -> None:
    eager, compiled, graphs = find("step_wholly")
    assert graphs
    # Only the counts of steps differ: compiled, they are on the card.
    assert all(0 <= it - eager[0] <= 10 * 512 for it in compiled)
    assert compiled[1] == compiled[2]


def test_a_break_and_a_value_that_is_read_are_passed_and_other_sizes_are_compiled_again(
    find: Callable[[str], Any],
) -> None:
    found = find("change_sizes")
    assert all(compiled < eager for eager, compiled in found)
    assert found[0][1] < found[1][1] < found[2][1]


def test_what_a_compiled_model_returns_is_no_view(find: Callable[[str], Any]) -> None:
    """FSDP2 warns of views."""
    assert find("return_something") is False


def test_what_the_compiler_refuses_runs_as_it_is_and_its_reason_is_said(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        MODEL
        + """
model = make_model().cuda()
compiled = torch.compile(model)
from torch._inductor import graph
def refuse(*_):
    raise RuntimeError("no program for this graph")
graph.GraphLowering.run = refuse
print(compiled(torch.randn(8, 64, device="cuda")).shape)
""",
        {"total_bytes": 1 << 30, "is_fake": True, "has_stand_ins": True},
    )
    assert result.stdout == "torch.Size([8, 64])\n", result.stderr
    assert result.stderr.startswith(
        "vramscope simulate: torch.compile is run eagerly here, so memory is that of eager mode: "
    )
    assert "RuntimeError: no program for this graph" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_compiler_that_is_not_known_is_left_out_and_said(tmp_path: Path) -> None:
    result = run_script(
        tmp_path,
        MODEL
        + """
sys.modules["torch._inductor.scheduler"] = None
print(torch.compile(make_model().cuda())(torch.randn(8, 64, device="cuda")).shape)
""",
        {"total_bytes": 1 << 30, "is_fake": True, "has_stand_ins": True},
    )
    assert result.stdout == "torch.Size([8, 64])\n", result.stderr
    assert "run eagerly here, so memory is that of eager mode: the compiler of PyTorch" in result.stderr
    assert "scheduler" in result.stderr


def test_the_compiler_is_not_loaded_for_those_who_do_not_compile(tmp_path: Path) -> None:
    loaded = fake_answers(
        tmp_path,
        MODEL
        + """
make_model().cuda()(torch.randn(8, 64, device="cuda")).mean().backward()
names = "torch._inductor.compile_fx", "vramscope_simulation.compilation"
print(json.dumps([it for it in names if it in sys.modules]))
""",
    )
    assert loaded == []
