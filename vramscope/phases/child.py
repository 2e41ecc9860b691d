"""The process that trains: started, heard, ended."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress

import msgspec

from vramscope.engine.child_processes import LEDGERS_NAME, module_command, user_code_environment
from vramscope.engine.jobs.launch import (
    SimulatedDevice,
    describe_for_job,
    make_environment,
    make_job_name,
    sweep_ledgers,
)
from vramscope.engine.model.phase_memory import PhaseDevice, PhaseRun, PhaseTraining
from vramscope.engine.paths import locate_runtime_folder, open_runtime_folder
from vramscope.engine.workloads.phases.updates import PhaseRequest, RunUpdate, apply_update

from .devices import DeviceChoice
from .rank_runs import RankRuns

_SCRIPT = "vramscope.engine.workloads.phases"
_LEAVING_S = 5.0
"""What a process that is told to end may take for it."""
Told = Callable[[PhaseRun], None]


def train_apart(
    training: PhaseTraining,
    choice: DeviceChoice,
    *,
    environ: Mapping[str, str],
    on_phase: Told | None,
    ranks: RankRuns | None = None,
) -> tuple[PhaseRun, RunUpdate]:
    """Train in a process of its own; return the run as far as it came, and the last that was heard.

    A Ctrl-C, or SIGTERM where it is raised as SystemExit, ends the process and marks the run as interrupted.

    Args:
        training: What is trained.
        choice: What it runs on.
        environ: Environment of this process.
        on_phase: Given the run so far after each phase.
        ranks: Where the other ranks of this node are; None for one process.
    """
    request = PhaseRequest(training=training, kind=choice.kind, is_fake=choice.is_fake, note=choice.note)
    device = PhaseDevice(kind=choice.kind, name=choice.kind, is_fake=choice.is_fake, note=choice.note)
    run = PhaseRun(training=training, device=device, end="failed")
    last = RunUpdate()
    descriptor, given = os.pipe()
    process = _start(request, make_child_environment(choice, environ), given)
    try:
        with nullcontext() if ranks is None else ranks.watched(process):
            for last in _listen(descriptor):
                run = apply_update(run, last)
                if last.phase is not None and on_phase is not None:
                    on_phase(run)
            code = process.wait()
    except (KeyboardInterrupt, SystemExit):
        _end(process)
        return msgspec.structs.replace(run, end="interrupted"), last
    finally:
        os.close(descriptor)
        _end(process)
    if last.end is None and last.obstacle is None:
        run = msgspec.structs.replace(run, end="failed", error=_describe_death(code, ranks))
    return run, last


def make_child_environment(choice: DeviceChoice, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the process that trains: with the probe, and the card that was chosen.

    Raises:
        RuntimeFolderError: The runtime folder, where a simulated card is accounted, is open to others.
    """
    folder = locate_runtime_folder(environ)
    job = f"phases-{environ['MASTER_PORT']}" if "MASTER_PORT" in environ else f"phases-{make_job_name()}"
    simulate = None
    if choice.total_bytes is not None:
        device = SimulatedDevice(
            total_bytes=choice.total_bytes,
            devices=int(environ.get("LOCAL_WORLD_SIZE", "1")),
            is_fake=choice.is_fake,
        )
        open_runtime_folder(folder)  # before the ledger of the card is made in it, with other rights
        sweep_ledgers(folder / LEDGERS_NAME)
        simulate = describe_for_job(device, job=job, runtime_dir=folder, environ=environ)
    return make_environment(user_code_environment(environ), runtime_dir=folder, job=job, simulate=simulate)


def _start(request: PhaseRequest, environment: dict[str, str], given: int) -> subprocess.Popen[bytes]:
    """Start the process, out of reach of the terminal's Ctrl-C: that is for us, and we end it."""
    text = msgspec.json.encode(request).decode()
    command = module_command(_SCRIPT, "--report", str(given), text)
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=2, env=environment, pass_fds=[given], process_group=0
        )
    finally:
        os.close(given)


def _listen(descriptor: int) -> Iterator[RunUpdate]:
    with os.fdopen(os.dup(descriptor), "rb") as reports:
        for line in reports:
            with suppress(msgspec.DecodeError):  # the last line of a process that was killed may be cut
                yield msgspec.json.decode(line, type=RunUpdate)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_LEAVING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _describe_death(code: int, ranks: RankRuns | None) -> str:
    left = None if ranks is None else ranks.find_left()
    if left is not None:
        return f"rank {left.rank} had ended before"
    if code >= 0:
        return f"the process that trained ended with exit code {code} before it was done"
    name = signal.Signals(-code).name
    hint = ": the kernel does that where the host runs out of memory" if name == "SIGKILL" else ""
    return f"the process that trained was ended by {name}{hint}"
