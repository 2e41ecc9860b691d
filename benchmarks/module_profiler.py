"""What memory by module costs a training step: ours and the method of InternLM's profiler, in one process.

That method keeps the sizes of the leaves' outputs in forward hooks, writes totals after each forward and
backward pass, and at each step goes through the optimizer's state and writes its tree. It measures nothing.
It is written here from its description; rounds of the three take turns on models of one size.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .measure.tables import format_number, format_table

ROUNDS = 4
STEPS = 12
METHODS = ("plain", "original", "ours")
_STEPPER = """
import json, statistics, sys, time, torch
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from small_gpt import SmallGPT
from vramscope.engine.probe.module_memory.memory_log import ProfileFiles
from vramscope.engine.probe.module_memory.profiler import ModuleMemoryProfiler
torch.set_num_threads(1)
MIB = 1 << 20

class Original:
    def __init__(self, model, optimizer, folder):
        self.optimizer, self.path, self.sizes, self.live = optimizer, folder + "/original.log", {}, 0
        self.params = sum(p.numel() * p.element_size() for p in model.parameters())
        self.state, self.handles, self.is_known = {}, [], False
        for name, module in model.named_modules():
            if not any(module.children()):
                self.handles.append(module.register_forward_hook(self.note(name)))
        self.handles.append(model.register_forward_hook(self.after_forward))
        self.handles.append(model.register_full_backward_hook(self.after_backward))
    def note(self, name):
        def hook(module, arguments, output):
            if not self.is_known:
                self.sizes[name] = output.element_size() * output.nelement()
        return hook
    def after_forward(self, *_):
        self.is_known = True
        self.live += sum(self.sizes.values())
        self.write()
    def after_backward(self, *_):
        self.live -= sum(self.sizes.values())
        self.write()
    def write(self, layout=""):
        state = sum(self.state.values())
        total = 2 * self.params + state + self.live
        with open(self.path, "a") as file:
            file.write(f"Memory State:\\ntime: {time.time()}\\n---summary---\\n"
                       f"total_memory: {total / MIB:.2f} MB\\n"
                       f"params_memory: {self.params / MIB:.2f} MB, os_state_memory: {state / MIB:.2f} MB\\n"
                       f"{layout}\\n")
    def end_step(self):
        self.state = {f"{number}.{key}": tensor.element_size() * tensor.nelement()
                      for number, held in self.optimizer.state_dict()["state"].items()
                      for key, tensor in held.items()}
        self.write("".join(f"layer: os_state_mem.{path}, layer_mem: {size / MIB:.2f} MB\\n"
                           for path, size in self.state.items()))
    def close(self):
        for handle in self.handles:
            handle.remove()

def make(method, model, optimizer, folder):
    if method == "original":
        return Original(model, optimizer, folder)
    if method == "plain":
        return None
    return ModuleMemoryProfiler(model, optimizer, ProfileFiles(folder), 1 << 30)

folder, rounds, steps = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
models = {}
for method in ("plain", "original", "ours"):
    torch.manual_seed(0)
    model = SmallGPT(1000, 256, 12, 4, 64)
    models[method] = (model, torch.optim.AdamW(model.parameters()))
costs = {method: [] for method in models}
tokens = torch.randint(0, 1000, (2, 64))
for turn in range(rounds + 1):
    for method, (model, optimizer) in models.items():
        profiler = make(method, model, optimizer, folder)
        for step in range(steps):
            begun = time.process_time()
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()
            if profiler:
                profiler.end_step()
            optimizer.zero_grad()
            if turn:  # the first round warms up
                costs[method].append(time.process_time() - begun)
        if profiler:
            profiler.close()
tensors = sum(1 for _ in models["ours"][0].parameters())
medians = {method: statistics.median(taken) for method, taken in costs.items()}
print(json.dumps({**medians, "tensors": tensors}))
"""


@dataclass(frozen=True)
class ProfilerCost:
    """CPU of one step of a GPT of 12 layers: medians over all rounds."""

    tensors: int
    """Parameters of the model."""
    plain_s: float
    original_s: float
    ours_s: float


def measure_module_profiler(rounds: int = ROUNDS) -> ProfilerCost:
    """Return what a step costs without a profile, with the original's method, and with ours.

    Args:
        rounds: Turns of each, of some steps; one more warms up.
    """
    workloads = Path(__file__).resolve().parents[1] / "engine" / "workloads"
    with tempfile.TemporaryDirectory(prefix="modules-") as folder:
        command = [sys.executable, "-c", _STEPPER, str(workloads), folder, str(rounds), str(STEPS)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    measured = json.loads(done.stdout)
    return ProfilerCost(measured["tensors"], *(measured[method] for method in METHODS))


def format_module_profiler(cost: ProfilerCost) -> str:
    """Return the costs as a table."""
    rows = [
        [name, f"{1e3 * taken:.1f}", format_number(100 * (taken / cost.plain_s - 1), 1)]
        for name, taken in (
            ("without a profile", cost.plain_s),
            ("the original's method: shapes", cost.original_s),
            ("SimpleMemoryProfiler: shapes, storages, saved tensors", cost.ours_s),
        )
    ]
    title = f"Memory by module: a training step of a model with {cost.tensors} parameters"
    return format_table(title, ["method", "ms of CPU", "% more"], rows)


def as_profiler_figures(cost: ProfilerCost) -> Mapping[str, object]:
    """Return the cost as it stands in the JSON."""
    return asdict(cost)
