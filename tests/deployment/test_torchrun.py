"""The example of docs/torchrun.md, started as that page says and recorded: each rank on its device."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.components import require_package
from tests.engine.ranks.running import await_steps, list_ranks
from tests.structure.tree import ROOT
from tests.vramscope.cli.running import environment
from tests.vramscope.cli.test_run_record import is_whole
from tests.waiting import wait_until
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.recording import Recording
from vramscope.engine.wire.endpoints import holder_pid

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
EXAMPLE = str(ROOT / "examples/torchrun_train.py")


@pytest.mark.waits
def test_the_example_trains_two_ranks_each_on_its_device_and_is_recorded_until_it_is_killed(
    tmp_path: Path,
) -> None:
    """One job for all: what takes long is to start its three processes with torch."""
    require_package("torch")
    card = ("--simulate", "2GiB", "--device-count", "2", "--host-reserve", "128MiB")
    words = ("run", "--job", "gpt", "--record", *card, "--", *TORCHRUN, EXAMPLE, "--steps", "1000000")
    job = subprocess.Popen(
        [sys.executable, "-m", "vramscope", *words],
        env=environment(OMP_NUM_THREADS="1"),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        # The optimizer's state exists from the end of step 1, so the second step is the first at full size;
        # from then on the allocator of each rank reserves no more and frees nothing.
        await_steps(of=2, index=2)
        _check_ranks()
        (path,) = tmp_path.glob("gpt-*.vscope")
    finally:
        for each in [*psutil.Process(job.pid).children(recursive=True), psutil.Process(job.pid)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        _, said = job.communicate(timeout=60)
    try:
        assert f"vramscope run: recording into {path} until the job has ended\n" in said
        wait_until(lambda: is_whole(path), 30.0, "the end of the recording")
        _check_recording(path)
    finally:
        agent = holder_pid(locate_runtime_folder())
        if agent is not None:
            os.kill(agent, signal.SIGTERM)
            wait_until(lambda: not Path(f"/proc/{agent}").exists(), what="the end of the agent")


def _check_ranks() -> None:
    ranks = sorted(list_ranks(), key=lambda it: it["coordinates"]["rank"])
    coordinates = [(it["coordinates"]["rank"], it["coordinates"]["world_size"]) for it in ranks]
    assert coordinates == [(0, 2), (1, 2)]
    assert {it["job"] for it in ranks} == {"gpt"}
    assert len({it["device_uuid"] for it in ranks}) == 2
    reserved = [it["allocator"]["reserved_bytes"] for it in ranks]
    assert reserved[0] < reserved[1], "the last rank has longer sequences"


def _check_recording(path: Path) -> None:
    with Recording(path) as recording:
        assert recording.damage.sentence is None
        assert recording.identity.jobs == ("gpt",)
        kinds = [event.kind for event in recording.events()]
        assert kinds.count("rank_attached") == kinds.count("rank_ended") == 2
        assert [event.text for event in recording.events()][-1] == "the job ended"
        ranks = [rank for sample in recording.samples() for rank in sample.ranks]
        assert {rank.coordinates.rank for rank in ranks if rank.coordinates is not None} == {0, 1}
        assert all(sample.ranks == () for sample in list(recording.samples())[:1]), "from before its start"
