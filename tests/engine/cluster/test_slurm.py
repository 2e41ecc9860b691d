"""Jobs of Slurm: what `squeue` and `scontrol` of Slurm 22.05 print, and what is made of it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from vramscope.engine.cluster import addresses as slurm
from vramscope.engine.cluster.addresses import Answer, find_job_nodes, run_command
from vramscope.engine.errors import HubUnreachableError, UsageError, VramscopeError

QUEUE = {
    "1": "1|RUNNING|n[1-2]|None",
    "2": "2|COMPLETED|n[1-3]|None",
    "3": "3_[3-5%2]|PENDING||JobArrayTaskLimit\n3_2|RUNNING|n1|None\n3_1|RUNNING|n3|None",
    "3_1": "3_1|RUNNING|n3|None",
    "3_4": "3_4|PENDING||ReqNodeNotAvail, UnavailableNodes:n3",
    "3_99": "",
    "5": "5+0|RUNNING|n1|None\n5+1|CONFIGURING|n2|None",
    "6": "6|PENDING||None",
}
HOSTS = {"n[1-2]": "n1\nn2\n", "n1,n3": "n1\nn3\n", "n3": "n3\n", "n1,n2": "n1\nn2\n", "n2": "n2\n"}


def _answer(words: Sequence[str]) -> Answer:
    """Return what a real Slurm says; of an unknown job nothing, with exit code 1."""
    if words[0] == "scontrol":
        return Answer(0, HOSTS[words[-1]], "")
    assert "--states=all" in words
    (job,) = (word.partition("=")[2] for word in words if word.startswith("--jobs="))
    if job not in QUEUE:
        return Answer(1, "", "slurm_load_jobs error: Invalid job id specified\n")
    return Answer(0, QUEUE[job] + "\n", "")


@pytest.mark.parametrize(
    ("job", "names"),
    [
        ("1", ["n1", "n2"]),
        ("3", ["n1", "n3"]),
        ("3_1", ["n3"]),
        ("5", ["n1", "n2"]),
        ("5+1", ["n2"]),
    ],
)
def test_a_job_has_the_nodes_of_all_its_parts_that_run(job: str, names: list[str]) -> None:
    assert find_job_nodes(job, _answer) == names


@pytest.mark.parametrize(
    ("job", "kind", "told"),
    [
        ("2", HubUnreachableError, "job 2 no longer has nodes: COMPLETED"),
        ("3_4", HubUnreachableError, "no nodes yet: PENDING, ReqNodeNotAvail, UnavailableNodes:n3"),
        ("6", HubUnreachableError, "job 6 has no nodes yet: PENDING$"),
        ("3_99", UsageError, "Slurm has no such job"),
        ("5+2", UsageError, "Slurm has no such job"),
        ("99", UsageError, "Slurm has no such job"),
        ("12.0", UsageError, "expected a job as squeue shows it: 1234"),
        ("--help", UsageError, "expected a job"),
        ("4294967299", UsageError, "expected a job"),
    ],
)
def test_a_job_without_nodes_is_told_with_its_state(job: str, kind: type[VramscopeError], told: str) -> None:
    with pytest.raises(kind, match=told):
        find_job_nodes(job, _answer)


def test_a_slurm_that_fails_is_told_in_its_words() -> None:
    refused = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    with pytest.raises(HubUnreachableError, match=r"squeue failed: .*Unable to contact slurm controller"):
        find_job_nodes("1", lambda _: Answer(1, "", refused))


def test_a_command_that_is_not_there_or_hangs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "squeue"
    with pytest.raises(UsageError, match=r"No such file.*name the nodes with --connect"):
        run_command([str(program)])
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(slurm, "ANSWERS_WITHIN_S", 0.05)
    with pytest.raises(HubUnreachableError, match=r"did not answer within 0\.05 s"):
        run_command([str(program)])
