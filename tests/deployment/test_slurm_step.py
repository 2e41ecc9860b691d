"""`srun vramscope agent`: an agent in a step of a job, and what becomes of a second one on the node."""

import signal
from pathlib import Path

from tests.engine.cluster.remote import free_port
from tests.vramscope.cli.running import run, start

STEP = {"SLURM_JOB_ID": "1234", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}


def test_an_agent_of_a_step_is_no_rank_is_one_a_node_and_ends_with_the_step() -> None:
    words = ("agent", "--listen", str(free_port()))
    agent = start(*words, **STEP)
    assert agent.stderr is not None
    told = "".join(agent.stderr.readline() for _ in range(2))
    assert "listening on 127.0.0.1" in told
    second = run(*words, **STEP | {"SLURM_PROCID": "4"})
    assert (second.code, f"process {agent.pid}" in second.stderr) == (2, True)
    status = run("--json", "--duration", "1s").lines[0]
    assert (status["agent"]["pid"], status["ranks"]) == (agent.pid, [])
    agent.send_signal(signal.SIGTERM)  # which is what scancel and the end of a batch script come to
    agent.communicate(timeout=60)
    assert agent.returncode == 0


def test_the_folder_of_a_job_is_gone_with_its_agent(private_environment: Path) -> None:
    folder = private_environment / "vramscope-job-1234"  # at a short path, as sockets need it
    agent = start(
        *("agent", "--listen", str(free_port()), "--private-folder"),
        VRAMSCOPE_RUNTIME_DIR=str(folder),
        **STEP,
    )
    assert agent.stderr is not None
    assert "listening" in "".join(agent.stderr.readline() for _ in range(2))
    assert folder.is_dir()
    agent.send_signal(signal.SIGTERM)
    agent.communicate(timeout=60)
    assert agent.returncode == 0
    assert not folder.exists()
