"""`MemoryProfiler` in a training script: the sizes that `vramscope.step` is told become an estimate."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.components import require_package
from tests.warm.starter import write_warm_python

from ..cli.running import no_library

MIB = 1 << 20
SCRIPT = """
import json, sys, time
import torch, vramscope
weight = torch.nn.Parameter(torch.ones(16384, device="cuda"))
profiler = vramscope.MemoryProfiler(sampling_interval=0.05)

def train(batch):
    x = torch.ones(batch, 16384, device="cuda") * weight
    for _ in range(16):
        x = x.relu()
    x.mean().backward()
    vramscope.step(batch=batch)
    time.sleep(0.06)

def is_told():
    return any(it.largest_size is not None for found in profiler.get_headroom().values() for it in found)

with profiler:
    end = time.monotonic() + 60
    while not profiler.devices:
        time.sleep(0.02)
    sizes = [16, 16, 32, 48, 64]
    while not is_told():
        assert time.monotonic() < end, profiler.get_headroom()
        train(sizes.pop(0) if sizes else 16)
(found,) = profiler.get_headroom()[0]
report = profiler.generate_report()
from vramscope.engine.jobs.in_code import step_takers
told = [found.unit, found.per_unit_bytes, found.sizes, found.largest_size]
result = [*told, report["headroom"], len(step_takers)]
with open(sys.argv[1], "w") as file:
    json.dump(result, file)
"""


def test_the_sizes_of_steps_become_an_estimate_within_the_program(tmp_path: Path) -> None:
    require_package("torch")
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "vramscope", "run", "--no-hub", "--simulate", "1GiB", "--"]
    done = subprocess.run(
        [*command, write_warm_python(tmp_path), str(tmp_path / "train.py"), str(tmp_path / "out")],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(REPOSITORY),
            "XDG_RUNTIME_DIR": str(tmp_path),
            **no_library(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    unit, per_unit_bytes, sizes, largest, told, takers = json.loads((tmp_path / "out").read_text())
    assert (unit, sizes) == ("samples", 4)
    assert per_unit_bytes == pytest.approx(18 * 64 * 1024, rel=0.03)
    assert 64 < largest <= 4 * 64
    assert told["0"][0]["estimates"][0]["largest_size"] == largest
    assert takers == 0, "nothing listens once the profiler has stopped"
