"""Record training with faults on the simulated device: python -m benchmarks.record_verdict_runs [NAME ...].

Each job runs under `vramscope run --simulate` with an agent of its own, whose samples are written to
benchmarks/verdict_runs/recorded. Steps, floors and peaks are what the probe reported of a real program; the
card and its allocator are modelled.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from vramscope.engine.errors import HubUnreachableError
from vramscope.engine.model import RankSample, Sample
from vramscope.engine.viewer.client import Client, connect

from .programs import ENVIRONMENT, ROOT
from .verdict_runs.recorded import FOLDER, write_recording

PROGRAM = str(ENVIRONMENT / "vramscope")
INTERVAL_S = 1.0
PATIENCE_S = 60.0


class Job(NamedTuple):
    """One recording to be made."""

    fault: str
    card: str
    onset_s: float
    seconds: float = 1500.0


JOBS = {
    "kept_losses": Job("kept_losses", "1280MiB", 60),
    "variable_lengths": Job("variable_lengths", "880MiB", 90),
    "retained_hooks": Job("retained_hooks", "112MiB", 60),
    "growing_cache": Job("growing_cache", "192MiB", 45),
    "eval_with_grad": Job("eval_with_grad", "640MiB", 60),
    "grad_sample_kept": Job("grad_sample_kept", "1280MiB", 60),
    "healthy_lengths": Job("variable_lengths", "128MiB", 1e9, 480),
    "healthy_cache": Job("growing_cache", "128MiB", 1e9, 480),
    "healthy_private": Job("grad_sample_kept", "128MiB", 1e9, 480),
}
"""About a thousand steps fill each card."""


class Heard(NamedTuple):
    """What a job did: its samples, and what it printed."""

    samples: list[Sample]
    printed: dict[str, float]


def main() -> None:
    """Record what is asked for, one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(JOBS), choices=[*JOBS, []], metavar="NAME")
    for name in parser.parse_args().names:
        heard = leave_out_the_end(run_job(JOBS[name]))
        path = FOLDER / f"{name}.csv.gz"
        FOLDER.mkdir(exist_ok=True)
        write_recording(path, label(name, heard), make_rows(heard.samples))
        print(f"{path.name}: {len(heard.samples)} samples, {path.stat().st_size} bytes, {heard.printed}")


def run_job(job: Job) -> Heard:
    """Run a job under an agent of its own and return what was heard of it."""
    with tempfile.TemporaryDirectory(prefix="vs-record-") as folder:
        env = {**os.environ, "VRAMSCOPE_RUNTIME_DIR": folder}
        agent = subprocess.Popen([PROGRAM, "agent"], env=env, stderr=subprocess.DEVNULL)
        try:
            return _follow(job, Path(folder), env)
        finally:
            agent.terminate()
            agent.wait(10)


def _follow(job: Job, folder: Path, env: dict[str, str]) -> Heard:
    train = [sys.executable, "-m", "benchmarks.faulty_training", job.fault]
    train += ["--onset", str(job.onset_s), "--seconds", str(job.seconds)]
    command = [PROGRAM, "run", "--simulate", job.card, "--context", "64MiB", "--", *train]
    samples: list[Sample] = []
    with _connect(folder) as client:
        process = subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        deadline_s = time.monotonic() + job.seconds + PATIENCE_S
        for sample in client.samples():
            if any(_is_training(rank) for rank in sample.ranks):
                samples.append(sample)
            if process.poll() is not None or time.monotonic() > deadline_s:
                break
        process.kill()
        lines = process.communicate()[0].split("\n")
    printed = {word: float(at) for word, _, at in (line.partition(" ") for line in lines) if at}
    return Heard(samples, printed)


def leave_out_the_end(heard: Heard) -> Heard:
    """Return what was heard before memory ran out.

    The program sees the error only once its flight record is written, which takes seconds on a busy machine.
    It came within the step after the last one that ended, and is taken to have come at the end of that.
    """
    if "oom" not in heard.printed:
        return heard
    steps = [rank.step for rank in heard.samples[-1].ranks if rank.step is not None]
    end_s = min(heard.printed["oom"], *(step.ended_s + (step.duration_s or 0.0) for step in steps))
    samples = [sample for sample in heard.samples if sample.time_s < end_s]
    return Heard(samples, {**heard.printed, "oom": end_s})


def _connect(folder: Path) -> Client:
    """Return a client once the agent serves."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return connect(folder)
        except HubUnreachableError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.2)


def _is_training(rank: RankSample) -> bool:
    return rank.state == "ok" and rank.allocator is not None


def label(name: str, heard: Heard) -> dict[str, object]:
    """Return the labels of a recording: what the program printed, in seconds from the first sample."""
    start_s = heard.samples[0].time_s
    onset, oom = heard.printed.get("onset"), heard.printed.get("oom")
    onset_s = None if onset is None else round(onset - start_s, 3)
    oom_s = None if oom is None else round(oom - start_s, 3)
    last_s = heard.samples[-1].time_s - start_s + INTERVAL_S if oom_s is None else oom_s
    leaks = [] if onset_s is None else [{"onset_s": onset_s, "end_s": round(last_s, 3)}]
    return {
        "name": name,
        "what": "training on a simulated device, recorded by benchmarks/record_verdict_runs.py",
        "interval_s": INTERVAL_S,
        "duration_s": round(last_s, 3),
        "leaks": leaks,
        "oom_s": oom_s,
        "growth_s": onset_s if oom_s is not None else None,
    }


def make_rows(samples: Sequence[Sample]) -> Iterator[dict[str, int | float | None]]:
    """Yield the row of each sample; see `COLUMNS`."""
    start_s = samples[0].time_s
    for sample in samples:
        rank = next(rank for rank in sample.ranks if _is_training(rank))
        device = next(device for device in sample.devices if device.uuid == rank.device_uuid)
        allocator, step = rank.allocator, rank.step
        if allocator is None:
            continue
        yield {
            "time_s": round(sample.time_s - start_s, 3),
            "total_bytes": device.memory.total_bytes,
            "used_bytes": device.memory.used_bytes,
            "allocated_bytes": allocator.allocated_bytes,
            "allocated_max_bytes": allocator.allocated_max_bytes,
            "reserved_bytes": allocator.reserved_bytes,
            "requested_bytes": allocator.requested_bytes,
            "active_bytes": allocator.active_bytes,
            "inactive_split_bytes": allocator.inactive_split_bytes,
            "retries": allocator.retries,
            "resident_bytes": rank.resident_bytes,
            "step": None if step is None else step.index,
            "step_ended_s": None if step is None else round(step.ended_s - start_s, 3),
            "step_duration_s": _round(None if step is None else step.duration_s),
            "step_floor_bytes": None if step is None else step.floor_bytes,
            "step_peak_bytes": None if step is None else step.peak_bytes,
            "steps_within": rank.steps_within,
            "floor_min_bytes": rank.floor_min_bytes,
            "peak_max_bytes": rank.peak_max_bytes,
        }


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


if __name__ == "__main__":
    main()
