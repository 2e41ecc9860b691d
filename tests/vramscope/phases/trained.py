"""Trains by phase in forks of a process that has loaded torch, on a simulated device: many runs a fork."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.engine.simulation.simulated import BOOT, GIB
from tests.structure.tree import ROOT
from tests.warm.starter import run_warm
from vramscope.engine.model.phase_memory import PhaseDevice, PhaseRun, PhaseTraining
from vramscope.engine.workloads.phases.updates import PhaseRequest, RunUpdate, apply_update

TRAIN = f"""
import gc, json, os, sys, torch
sys.path.insert(0, {str(ROOT)!r})
from vramscope.engine.workloads.phases.__main__ import main
torch.set_num_threads(1)
errors = sys.stderr
for name, request in json.loads(sys.argv[1]).items():
    report = os.open(name + ".jsonl", os.O_WRONLY | os.O_CREAT)
    sys.argv = ["phases", "--report", str(report), request]
    main()
    sys.stderr = errors
    gc.collect()
    torch.cuda.empty_cache()
"""
TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Trained:
    """How one training ended."""

    run: PhaseRun
    last: RunUpdate
    errors: str
    """What all trainings of the fork wrote to stderr."""


def train(
    folder: Path,
    trainings: Mapping[str, PhaseTraining],
    *,
    is_fake: bool = False,
    total_bytes: int = 2 * GIB,
) -> dict[str, Trained]:
    """Train one after the other and return how each ended, by name."""
    requests = {
        name: PhaseRequest(training=training, kind="simulated", is_fake=is_fake)
        for name, training in trainings.items()
    }
    boot, script = folder / "boot.py", folder / "run.py"
    boot.write_text(BOOT, encoding="utf-8")
    script.write_text(TRAIN, encoding="utf-8")
    config = {"total_bytes": total_bytes, "is_fake": is_fake}
    variables = {**os.environ, "SIMULATED_CONFIG": json.dumps(config), "SIMULATED_ROOT": str(ROOT)}
    told = json.dumps({name: msgspec.json.encode(it).decode() for name, it in requests.items()})
    done = run_warm((str(boot), str(script), told), folder, variables, TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return {name: _read(folder / f"{name}.jsonl", trainings[name], done.stderr) for name in trainings}


def _read(path: Path, training: PhaseTraining, errors: str) -> Trained:
    run = PhaseRun(training=training, device=PhaseDevice(kind="simulated", name=""), end="failed")
    last = RunUpdate()
    for line in path.read_bytes().splitlines():
        last = msgspec.json.decode(line, type=RunUpdate)
        run = apply_update(run, last)
    return Trained(run, last, errors)
