"""A real job, its probe and a simulated card, through the agent to a viewer, and let go again."""

import sys
from pathlib import Path

import pytest

from vramscope.analyzers.gap import explain_gap
from vramscope.engine.model import RankSample
from vramscope.engine.model.sample import ALLOCATED
from vramscope.engine.viewer.client import Client
from vramscope.engine.viewer.snapshot import Snapshot

from ...vramscope.cli.running import no_library, run, start
from .running import see
from .test_agent import running_agent

START_WITHIN_S = 120.0
"""Importing torch takes long where other tests do the same."""
MIB = 1024**2

SCRIPT = """
import pathlib, sys, time
import torch
torch.set_num_threads(1)
phase = sys.modules["vramscope_probe"].phase
with phase("create the model"):
    model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.AdamW(model.parameters())
torch.empty(64 << 20, dtype=torch.uint8, device="cuda")  # is cached from here on
obey = lambda action, reason: f"notes that {reason}" if action == "skip_long_batch" else None
sys.modules["vramscope_probe"].on_advice(obey)
until = pathlib.Path(sys.argv[1])
while until.exists():
    optimizer.zero_grad(set_to_none=False)  # at every moment there are gradients
    with phase("forward"):
        loss = model(torch.ones(8, 512, device="cuda")).square().mean()
    with phase("backward"):
        loss.backward()
    with phase("optimizer"):
        optimizer.step()
    time.sleep(0.05)
print("trained to the end")
"""

PHASES = ("create the model", "forward", "backward", "optimizer")


def _has_trained(snapshot: Snapshot) -> bool:
    return any(
        rank.step is not None and rank.step.index > 3 and len(rank.phases) == len(PHASES)
        for rank in _ranks(snapshot)
    )


def _ranks(snapshot: Snapshot) -> tuple[RankSample, ...]:
    return () if snapshot.sample is None else snapshot.sample.ranks


@pytest.mark.waits
def test_a_job_is_seen_from_the_inside_and_goes_on_when_let_go(tmp_path: Path) -> None:
    script, running = tmp_path / "train.py", tmp_path / "running"
    script.write_text(SCRIPT)
    running.touch()
    words = ("run", "--simulate", "2GiB", "--", sys.executable, str(script), str(running))
    with running_agent("--interval", "0.2", **no_library(tmp_path)) as folder, Client(folder) as client:
        job = start(*words)
        try:
            rank = _check_rank(see(client, _has_trained, "the job to train", timeout_s=START_WITHIN_S))
            _check_map(client, rank)
            _check_advice(client, rank)
            client.detach(rank.pid, timeout_s=60.0)
            ended = see(client, lambda s: any(r.state == "ended" for r in _ranks(s)), "the rank to end")
            assert _ranks(ended)[0].reason == "its probe was detached"
            assert job.poll() is None
            running.unlink()
            output, _ = job.communicate(timeout=60)
        finally:
            job.kill()
            job.wait()
    assert (job.returncode, output) == (0, "trained to the end\n")


def _check_rank(snapshot: Snapshot) -> RankSample:
    """Return the only rank, once it is proven to fit its card."""
    (rank,) = _ranks(snapshot)
    assert snapshot.sample is not None
    (card,) = snapshot.sample.devices
    assert (rank.is_simulated, rank.device_uuid, rank.state) == (True, card.uuid, "ok")
    assert rank.model_state is not None
    assert rank.model_state.parameters_bytes == 4 * (512 * 512 + 512)
    assert rank.allocator is not None
    assert rank.allocator.reserved_bytes is not None
    assert card.memory.total_bytes == 2048 * MIB
    assert card.memory.used_bytes == rank.allocator.reserved_bytes + (rank.context_bytes or 0)
    assert rank.step is not None
    assert card.step == rank.step.index
    _check_phases(rank)
    gap = explain_gap(card, [rank])
    assert gap.is_consistent
    assert (gap.size_of("context"), gap.size_of("unattributed")) == (rank.context_bytes, 0)
    return rank


def _check_phases(rank: RankSample) -> None:
    """Hold what each part changed against what the model holds."""
    assert tuple(phase.name for phase in rank.phases) == PHASES
    created, _forward, _backward, optimizer = rank.phases
    model_bytes = 4 * (512 * 512 + 512)
    assert (created.calls, created.allocated_before_bytes, created.allocated_after_bytes) == (
        1,
        0,
        model_bytes,
    )
    assert (created.peak_bytes, created.is_peak_exact) == (model_bytes, True)
    assert optimizer.calls > 1
    assert optimizer.most_bytes is not None
    assert optimizer.most_bytes >= 4 * model_bytes
    for phase in rank.phases:
        assert (phase.reserved_after_bytes or 0) >= (phase.allocated_after_bytes or 0) > 0
        assert (phase.most_bytes or 0) >= (phase.peak_bytes or 0) >= (phase.allocated_after_bytes or 0)


def _check_map(client: Client, rank: RankSample) -> None:
    """Ask for the segments of a rank and hold them against its readings."""
    client.ask_segments(rank.pid)
    asked = see(client, lambda s: s.segment_maps or s.segments_refused, "the map", timeout_s=60.0)
    assert asked.segments_refused == ()
    (found,) = asked.segment_maps
    assert (found.pid, found.device_uuid, found.segments_left_out) == (rank.pid, rank.device_uuid, 0)
    assert rank.allocator is not None
    assert sum(segment.total_bytes for segment in found.segments) == rank.allocator.reserved_bytes
    blocks = [block for segment in found.segments for block in segment.blocks]
    assert sum(size for size, state in blocks if state == ALLOCATED) >= 4 * 512 * 512 * 4


def _check_advice(client: Client, rank: RankSample) -> None:
    """Advise a rank from the command line and from a program; what came of it is seen by every viewer."""
    freed_bytes = client.advise_and_wait(rank.pid, "empty_cache").freed_bytes
    assert freed_bytes is not None
    assert freed_bytes >= 64 * MIB
    before = rank.allocator.reserved_bytes if rank.allocator is not None else None
    assert before is not None
    told = (
        f"process {rank.pid} was advised to empty_cache: it emptied its cache; {freed_bytes / MIB:,.1f} MiB"
    )
    see(
        client, lambda s: s.sample is not None and any(it.startswith(told) for it in s.sample.notes), "a note"
    )
    see(client, lambda s: (_reserved(s) or before) <= before - 48 * MIB, "the cache to be given back")
    obeyed = run("advise", str(rank.pid), "skip_long_batch", "--reason", "4,096 tokens would not fit")
    outcome = "did it with its callback: notes that 4,096 tokens would not fit"
    assert (obeyed.code, obeyed.stdout) == (0, f"process {rank.pid} {outcome}\n")
    declined = run("advise", str(rank.pid), "checkpoint", "--json")
    (report,) = declined.lines
    assert (declined.code, report["is_obeyed"], report["freed_bytes"]) == (3, False, 0)
    assert report["outcome"] == "has a callback that did nothing about checkpoint"
    refused = run("advise", "1", "empty_cache")
    assert (refused.code, refused.stdout) == (2, "")
    assert f"no training process 1 reports to this agent; those that do: {rank.pid}" in refused.stderr


def _reserved(snapshot: Snapshot) -> int | None:
    (rank,) = _ranks(snapshot)
    return None if rank.allocator is None else rank.allocator.reserved_bytes
