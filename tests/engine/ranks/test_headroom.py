"""The advice of a real job on a simulated card, tried by that job: what should fit does, and the rest not."""

import json
import sys
from pathlib import Path

import pytest

from vramscope.engine.model import HeadroomEstimate
from vramscope.engine.viewer.client import Client
from vramscope.engine.viewer.snapshot import Snapshot

from ...vramscope.cli.running import no_library, start
from ..uncompiled import UNCOMPILED
from .running import see
from .test_agent import running_agent

START_WITHIN_S = 120.0
SIZES = 5
"""Of a batch that the job tries."""
SCRIPT = (
    UNCOMPILED
    + """
import json, pathlib, sys, time
import torch, vramscope
torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.ones(16384, device="cuda"))
optimizer = torch.optim.AdamW([weight])
answer = pathlib.Path(sys.argv[1])

def train(batch):
    optimizer.zero_grad()
    x = torch.ones(batch, 16384, device="cuda") * weight
    for _ in range(16):
        x = x.relu()
    x.mean().backward()
    optimizer.step()
    vramscope.step(tokens=batch * 16, batch=batch)

def fits(batch):
    try:
        for _ in range(3):
            train(batch)
    except torch.OutOfMemoryError:
        return False
    return True

sizes = [32, 64, 96, 128, 160]
for batch in sizes:
    for _ in range(2):
        train(batch)
while not answer.exists():
    train(32)
    time.sleep(0.1)
print(json.dumps([fits(batch) for batch in json.loads(answer.read_text())]))
"""
)


def _estimates(snapshot: Snapshot) -> tuple[HeadroomEstimate, ...]:
    return tuple(estimate for word in snapshot.assessments for estimate in word.headroom)


def _has_advice(snapshot: Snapshot) -> bool:
    found = _estimates(snapshot)
    return len(found) == 2 and all(
        estimate.sizes == SIZES and estimate.too_large_size is not None for estimate in found
    )


@pytest.mark.waits
def test_a_job_tries_what_it_was_told(tmp_path: Path) -> None:
    script, answer = tmp_path / "train.py", tmp_path / "answer"
    script.write_text(SCRIPT)
    words = ("run", "--simulate", "1GiB", "--", sys.executable, str(script), str(answer))
    with running_agent("--interval", "0.2", **no_library(tmp_path)) as folder, Client(folder) as client:
        job = start(*words)
        try:
            by_tokens, by_samples = _estimates(see(client, _has_advice, "advice", timeout_s=START_WITHIN_S))
            whole = tmp_path / "whole"
            whole.write_text(json.dumps([by_samples.largest_size, by_samples.too_large_size]))
            whole.rename(answer)
            output, errors = job.communicate(timeout=60)
        finally:
            job.kill()
            job.wait()
    assert json.loads(output or "null") == [True, False], errors
    _check_estimates(by_tokens, by_samples)


def _check_estimates(by_tokens: HeadroomEstimate, by_samples: HeadroomEstimate) -> None:
    """Check both estimates against what 18 tensors of 64 KiB a sample take.

    A block with a rest too small to split off, 1 MiB at most, shifts the line through five sizes a little.
    """
    assert (by_tokens.unit, by_samples.unit) == ("tokens", "samples")
    assert by_samples.per_unit_bytes == pytest.approx(18 * 64 * 1024, rel=0.015)
    assert by_tokens.per_unit_bytes == pytest.approx(18 * 4 * 1024, rel=0.015)
    assert by_samples.limit_bytes == 512 * 1024**2, "the other half of the card is its context"
    assert by_samples.is_extrapolated
    # 512 MiB hold 455 samples, if nothing were lost.
    assert 200 < (by_samples.largest_size or 0) < 455 < (by_samples.too_large_size or 0) < 500
