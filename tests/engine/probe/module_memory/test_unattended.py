"""`vramscope run --profiling`: a training whose code knows nothing of it, on a simulated card."""

import json
import sys
from pathlib import Path

import pytest

from tests.vramscope.cli.running import run
from tests.waiting import wait_until
from vramscope.analyzers.modules import make_breakdown
from vramscope.engine.files.module_memory import find_profiles, read_module_memory

TRAINING = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 16)
    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

teacher, model = nn.Linear(64, 16).requires_grad_(False).cuda(), Model().cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(8):
    x = torch.randn(32, 64, device="cuda")
    nn.functional.mse_loss(model(x), teacher(x)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PARAMETERS = 4 * ((64 + 1) * 128 + (128 + 1) * 16)
SAVED_BY_LAYERS = 4 * 32 * (64 + 128)
"""The input of the first layer, and the output of relu, which the second reads."""


@pytest.mark.waits
def test_a_job_is_profiled_without_its_knowledge(tmp_path: Path) -> None:
    script, folder = tmp_path / "train.py", tmp_path / "profile"
    script.write_text(TRAINING)
    words = ("run", "--no-hub", "--simulate", "64MiB", "--context", "0", f"--profiling={folder}", "--")
    outcome = run(*words, sys.executable, str(script), OMP_NUM_THREADS="1")
    assert outcome.code == 0, outcome.stderr
    assert (
        f"vramscope run: profiling into {folder}; afterwards: vramscope modules {folder}\n" in outcome.stderr
    )
    (path,) = find_profiles(folder)
    summary = path.parent / "summary_sunburst.html"
    wait_until(summary.exists, 60.0, "the charts")
    pages = {page.name for page in path.parent.glob("*.html")}
    assert {"params_memory_sunburst.html", "grads_memory_sunburst.html", "os_memory_sunburst.html"} <= pages
    assert path.parent == folder / "memory_trace" / "rank0_dp0_tp0"
    memory = read_module_memory(path)
    assert (memory.moments[0].tag, memory.moments[-1].tag) == ("after the first step", "step 5")
    assert (memory.device, memory.is_simulated) == ("cuda:0", True)
    breakdown = make_breakdown(memory)
    sizes = [kind.measured_bytes for kind in breakdown.kinds]
    assert sizes[:4] == [PARAMETERS, PARAMETERS, 0, 2 * PARAMETERS]
    assert sizes[4] is not None
    assert sizes[4] >= SAVED_BY_LAYERS
    # Between steps the card holds what is counted, teacher and input, and less than 512 bytes a tensor more.
    held = memory.moments[-1].allocated_bytes
    assert held is not None
    others = 4 * (65 * 16 + 32 * 64 + 1)
    assert 0 <= held - 4 * PARAMETERS - others < 512 * 4 * 5
    (trace,) = (folder / "traces" / "rank0_dp0_tp0_pp0").glob("*.pt.trace.json")
    assert any(
        "Optimizer.step" in event.get("name", "") for event in json.loads(trace.read_text())["traceEvents"]
    )
