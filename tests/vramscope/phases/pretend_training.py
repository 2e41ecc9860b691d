"""Stands for the process that trains, without torch: reports two phases, then ends as a variable says."""

import os
import signal
import sys

import msgspec

from vramscope.engine.model.phase_memory import MemoryLevels, PhaseDevice, PhaseMemory
from vramscope.engine.workloads.phases.updates import PhaseRequest, RunUpdate, UpdateWriter
from vramscope.engine.workloads.settings import PRIVACY


def main() -> None:
    """Report, then end."""
    writer = UpdateWriter(int(sys.argv[2]))
    request = msgspec.json.decode(sys.argv[3], type=PhaseRequest)
    level = MemoryLevels(allocated_bytes=1, reserved_bytes=2)
    if request.kind == "cuda":
        writer.send(RunUpdate(obstacle="no_cuda", error="PyTorch finds no CUDA device"))
        return
    name = f"{'fake' if request.is_fake else 'real'} {request.training.model_size}"
    device = PhaseDevice(kind=request.kind, name=name, is_fake=request.is_fake, note=request.note)
    writer.send(RunUpdate(device=device))
    for phase in ("Model Creation", "DP Setup"):
        writer.send(RunUpdate(began=phase))
        writer.send(RunUpdate(phase=PhaseMemory(phase=phase, before=level, after=level, peak=level)))
    writer.send(RunUpdate(began="Forward", began_step=1))
    _end(writer, os.environ["PRETEND_END"], is_fake=request.is_fake)


def _end(writer: UpdateWriter, how: str, *, is_fake: bool) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "waiting":
        signal.pause()
    elif how == "refused":
        writer.send(
            RunUpdate(
                obstacle="refused",
                refusal=("Opacus cannot train this model; ", PRIVACY, " none trains without Opacus"),
            )
        )
    elif how == "no_package":
        writer.send(RunUpdate(obstacle="no_package", error="Opacus is not installed"))
    elif how == "host_full" and not is_fake:
        writer.send(RunUpdate(end="failed", obstacle="host_full", error="this host has 1 GiB"))
    elif how != "silent":
        writer.send(RunUpdate(end="finished"))


if __name__ == "__main__":
    main()
