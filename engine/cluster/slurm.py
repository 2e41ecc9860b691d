"""The nodes of a Slurm job, as `squeue` and `scontrol` of the user tell them."""

import re
import subprocess
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

from ..errors import HubUnreachableError, UsageError
from ..text import make_printable_lines

ANSWERS_WITHIN_S = 10.0
"""Longer than a busy controller takes; a command that has not answered by then is ended."""
MOST_ANSWER_BYTES = 1024**2
WITH_NODES = {
    "RUNNING",
    "CONFIGURING",
    "COMPLETING",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
}
"""States in which nodes are the job's."""
WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
"""States from which a job may get nodes."""
_JOB = re.compile(r"([1-9]\d{0,8})(?:[_+]\d{1,8})?", re.ASCII)
"""Slurm counts jobs up to 67,043,328 and takes larger numbers than 32 bits for others."""
_FIELDS = "%i|%T|%N|%r"
"""Job, state, nodes and why it waits."""


class Answer(NamedTuple):
    """What a command said."""

    code: int
    output: str
    complaint: str


class JobPart(NamedTuple):
    """A job, a task of an array or a component of a heterogeneous job."""

    name: str
    state: str
    nodes: str
    """As Slurm writes lists of them: `n[1-3,7]`; empty where it has none."""
    reason: str
    """Why it waits."""


Runner = Callable[[Sequence[str]], Answer]
"""Runs a command to its end; raises UsageError where there is none, HubUnreachableError where it hangs."""


def run_command(words: Sequence[str]) -> Answer:
    """Run a command of Slurm and return what it said, as far as that is of a sane length.

    Raises:
        UsageError: There is no such command here.
        HubUnreachableError: It did not answer in time.
    """
    from tempfile import TemporaryFile

    with TemporaryFile() as output, TemporaryFile() as complaint:
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=complaint,
                timeout=ANSWERS_WITHIN_S,
                check=False,
            )
        except OSError as error:
            raise UsageError(
                f"{words[0]}: {error.strerror or error}; --slurm asks it for the nodes of a job: type it "
                "on a machine of the cluster, or name the nodes with --connect or --ssh"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise HubUnreachableError(
                f"{words[0]} did not answer within {ANSWERS_WITHIN_S:g} s; `scontrol ping` tells whether the "
                "controller of Slurm does"
            ) from error
        return Answer(done.returncode, _read(output), _read(complaint))


def find_job_nodes(job: str, run: Runner = run_command) -> list[str]:
    """Return the names of the nodes that a job has, in the order in which Slurm lists them.

    Args:
        job: As it was typed: `1234`, `1234_5` of an array, `1234+1` of a heterogeneous job.
        run: Runs a command.

    Raises:
        UsageError: It is no job, Slurm knows none of that number, or there is no Slurm here.
        HubUnreachableError: The job has no nodes yet, or no longer; or Slurm does not answer.
    """
    parts = _list_parts(job, run)
    lists = [part.nodes for part in parts if part.state in WITH_NODES and part.nodes]
    if not lists:
        raise HubUnreachableError(_explain_absence(job, parts))
    answer = run(["scontrol", "show", "hostnames", ",".join(lists)])
    names = list(dict.fromkeys(answer.output.split()))
    if answer.code or not names:
        raise HubUnreachableError(f"scontrol show hostnames failed: {_last_line(answer)}")
    return names


def _list_parts(job: str, run: Runner) -> list[JobPart]:
    typed = _JOB.fullmatch(job)
    if typed is None:
        raise UsageError(
            f"--slurm {job}: expected a job as squeue shows it: 1234, 1234_5 of an array, 1234+1 of a "
            "heterogeneous job"
        )
    # By itself squeue leaves out jobs that have ended. It takes no component of a heterogeneous job.
    asked = typed[1] if "+" in job else job
    answer = run(["squeue", "--noheader", "--states=all", f"--jobs={asked}", f"--format={_FIELDS}"])
    parts = [
        JobPart(*(word.strip() for word in line.split("|", 3)))
        for line in answer.output.splitlines()
        if line.count("|") >= _FIELDS.count("|")
    ]
    if answer.code and "invalid job id" not in answer.complaint.lower():
        raise HubUnreachableError(f"squeue failed: {_last_line(answer)}")
    parts = [part for part in parts if "+" not in job or part.name == job]
    if not parts:
        raise UsageError(f"--slurm {job}: Slurm knows no such job, or no longer; `squeue --me` lists yours")
    return parts


def _explain_absence(job: str, parts: Sequence[JobPart]) -> str:
    waiting = next((part for part in parts if part.state in WAITING), None)
    if waiting is not None:
        reason = "" if waiting.reason == "None" else f", {waiting.reason}"
        return f"job {job} has no nodes yet: {waiting.state}{reason}"
    return f"job {job} has no nodes any more: {parts[-1].state}"


def _last_line(answer: Answer) -> str:
    lines = f"{answer.output}\n{answer.complaint}".strip().splitlines()
    return lines[-1].strip() if lines else f"exit code {answer.code}, and not a word"


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return make_printable_lines(file.read(MOST_ANSWER_BYTES).decode(errors="replace"))
