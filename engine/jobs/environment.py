"""The environment of a job: what the probe and the simulated device in its processes need to know."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from ..child_processes import command_of, own_environment
from ..errors import UsageError
from .parts import PROBE, SHIM

JOB_VARIABLE = "VRAMSCOPE_JOB"
PROBE_VARIABLE = "VRAMSCOPE_PROBE"
PROFILING_VARIABLE = "VRAMSCOPE_PROFILING"
RUNTIME_VARIABLE = "VRAMSCOPE_RUNTIME_DIR"
SIMULATE_VARIABLE = "VRAMSCOPE_SIMULATE"
MOST_JOB_CHARACTERS = 64


def make_environment(
    base: Mapping[str, str],
    *,
    runtime_dir: Path,
    job: str,
    simulate: str | None = None,
    profiling: Path | None = None,
) -> dict[str, str]:
    """Return the environment of a job.

    Args:
        base: What the job would get without us.
        runtime_dir: Folder of the hub that it reports to.
        job: What its processes are told apart from other jobs by.
        simulate: Description of the simulated device, as JSON; None for the devices of this node.
        profiling: Folder of the profiles by module; None for no such profile.
    """
    environment = {
        **base,
        "PYTHONPATH": _prepend(str(SHIM), base.get("PYTHONPATH")),
        PROBE_VARIABLE: str(PROBE),
        RUNTIME_VARIABLE: str(runtime_dir),
        JOB_VARIABLE: job,
    }
    wanted = {
        SIMULATE_VARIABLE: simulate,
        PROFILING_VARIABLE: None if profiling is None else _describe_profiling(profiling, base),
    }
    for name, value in wanted.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    return environment


def _describe_profiling(folder: Path, base: Mapping[str, str]) -> str:
    """Return what a process that trains needs to write a profile and have it drawn, as JSON."""
    # What trains may be another Python, without vramscope: the charts are drawn by this one.
    command = [*command_of("modules"), "--pages"]
    python_path = own_environment(base).get("PYTHONPATH")
    return json.dumps({"folder": str(folder), "draw_command": command, "draw_python_path": python_path})


def read_original_environment() -> dict[str, str]:
    """Return this process's environment without what its own interpreter has added.

    In the C locale Python sets LC_CTYPE for its children (PEP 538); /proc keeps what it was started with.
    """
    environment = dict(os.environ)
    try:
        started_with = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return environment
    if not any(entry.startswith(b"LC_CTYPE=") for entry in started_with):
        environment.pop("LC_CTYPE", None)
    return environment


def make_job_name() -> str:
    """Return a short random name for a job."""
    return os.urandom(3).hex()


def check_job_name(name: str) -> str:
    """Return the name of a job as it was given.

    Raises:
        UsageError: It is empty, too long, or has characters that no table can show.
    """
    if not name.strip() or len(name) > MOST_JOB_CHARACTERS or not name.isprintable():
        raise UsageError(
            f"--job {name!r}: expected 1 to {MOST_JOB_CHARACTERS} printable characters, "
            "for example --job gpt-7b"
        )
    return name


def _prepend(folder: str, path: str | None) -> str:
    """Return a search path with a folder at its head, once; an empty entry means the current folder."""
    rest = [] if not path else [entry for entry in path.split(os.pathsep) if entry != folder]
    return os.pathsep.join([folder, *rest])
