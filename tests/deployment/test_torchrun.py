"""The example of docs/torchrun.md, started as that page says: every rank is seen on its device."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.components import require_package
from tests.engine.ranks.running import await_steps, list_ranks
from tests.structure.tree import ROOT
from tests.vramscope.cli.running import environment
from tests.waiting import wait_until
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.wire.endpoints import holder_pid

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
EXAMPLE = str(ROOT / "examples/torchrun_train.py")


def test_the_example_trains_two_ranks_each_on_its_device() -> None:
    require_package("torch")
    card = ("--simulate", "2GiB", "--device-count", "2", "--host-reserve", "128MiB")
    words = ("run", "--job", "gpt", *card, "--", *TORCHRUN, EXAMPLE, "--steps", "1000000")
    job = subprocess.Popen(
        [sys.executable, "-m", "vramscope", *words],
        env=environment(OMP_NUM_THREADS="1"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        await_steps(of=2)
        ranks = sorted(list_ranks(), key=lambda it: it["coordinates"]["rank"])
        coordinates = [(it["coordinates"]["rank"], it["coordinates"]["world_size"]) for it in ranks]
        assert coordinates == [(0, 2), (1, 2)]
        assert {it["job"] for it in ranks} == {"gpt"}
        assert len({it["device_uuid"] for it in ranks}) == 2
        reserved = [it["allocator"]["reserved_bytes"] for it in ranks]
        assert reserved[0] < reserved[1], "the last rank has longer sequences"
    finally:
        job.terminate()  # torchrun, which ends its ranks; each has a session of its own
        job.wait(timeout=60)
        agent = holder_pid(locate_runtime_folder())
        if agent is not None:
            os.kill(agent, signal.SIGTERM)
            wait_until(lambda: not Path(f"/proc/{agent}").exists(), what="the end of the agent")
