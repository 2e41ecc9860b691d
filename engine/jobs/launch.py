"""Starting a job: its environment, the simulated device, and `run` becoming the command."""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

import msgspec

from ..child_processes import LEDGERS_NAME, command_of, own_environment
from ..errors import UsageError
from ..paths import PROBE, SHIM, SIMULATION, locate_allocator_model
from ..units import GIB, MIB, format_bytes, format_gib

JOB_VARIABLE = "VRAMSCOPE_JOB"
PROBE_VARIABLE = "VRAMSCOPE_PROBE"
PROFILING_VARIABLE = "VRAMSCOPE_PROFILING"
RUNTIME_VARIABLE = "VRAMSCOPE_RUNTIME_DIR"
SIMULATE_VARIABLE = "VRAMSCOPE_SIMULATE"
SUMMARY_VARIABLE = "VRAMSCOPE_SUMMARY_DIR"
MOST_JOB_CHARACTERS = 64


def make_environment(
    base: Mapping[str, str],
    *,
    runtime_dir: Path,
    job: str,
    simulate: str | None = None,
    profiling: Path | None = None,
    summary: Path | None = None,
) -> dict[str, str]:
    """Return the environment of a job.

    Args:
        simulate: Description of the simulated device as JSON.
        profiling: Folder of profiles by module.
        summary: Folder in which each process that trains keeps its peaks.
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
        SUMMARY_VARIABLE: None if summary is None else str(summary),
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
    """Return this process's environment without the additions of its own interpreter.

    In the C locale Python sets LC_CTYPE for its children (PEP 538); /proc has the original.
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
    """A short random name."""
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
    """Put a folder first in a search path, once; an empty entry means the current folder."""
    rest = [] if not path else [entry for entry in path.split(os.pathsep) if entry != folder]
    return os.pathsep.join([folder, *rest])


# A job may start one process after another; a younger folder is left alone.
UNTOUCHED_S = 3600.0


def sweep_ledgers(folder: Path, *, now_s: float | None = None) -> None:
    """Remove the folders of jobs that have ended by `now_s` (epoch); what cannot be read or removed stays."""
    from ..simulation.ledger import list_living

    before_s = (time.time() if now_s is None else now_s) - UNTOUCHED_S
    with suppress(OSError):
        for job in tuple(folder.iterdir()):
            with suppress(OSError):
                is_old = job.stat().st_mtime < before_s
                if is_old and not any(list_living(ledger) for ledger in job.glob("*.ledger")):
                    rmtree(job, ignore_errors=True)


DEFAULT_CONTEXT_BYTES = 512 * MIB
DEFAULT_HOST_RESERVE_BYTES = GIB
MOST_DEVICES = 64
# Settings of the caching allocator: today's name, and that before PyTorch 2.9.
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


class SimulatedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The cards that a job finds instead of those of its node."""

    # Capacity of one card.
    total_bytes: int
    # Kind of card, its compute capability and its multiprocessors; None for a card of a size alone.
    kind: str | None = None
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    devices: int = 1
    # Store nothing: shapes and bytes are followed, values are not computed.
    is_fake: bool = False
    # What reads a value without storage gets a number instead of being stopped.
    has_stand_ins: bool = False
    # Used by the context of each process, as with CUDA.
    context_bytes: int = DEFAULT_CONTEXT_BYTES
    # Whether the user has given that size: then it is no range.
    is_context_given: bool = False
    # Host memory that tensors may not use.
    host_reserve_bytes: int = DEFAULT_HOST_RESERVE_BYTES


class SimulationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """JSON that a process of the job reads from its environment."""

    total_bytes: int
    kind: str | None
    capability: tuple[int, int] | None
    multiprocessors: int | None
    devices: int
    is_fake: bool
    has_stand_ins: bool
    context_bytes: int
    host_reserve_bytes: int
    job: str
    # Folder in which the job's processes share the memory of a card.
    ledger_dir: str
    allocator_settings: str | None
    simulation_path: str
    allocator_path: str


def describe_for_job(
    device: SimulatedDevice, *, job: str, runtime_dir: Path, environ: Mapping[str, str]
) -> str:
    """Return the variable that describes the simulated device to a job's processes."""
    settings = next((environ[name] for name in ALLOCATOR_VARIABLES if environ.get(name)), None)
    config = SimulationConfig(
        total_bytes=device.total_bytes,
        kind=device.kind,
        capability=device.capability,
        multiprocessors=device.multiprocessors,
        devices=device.devices,
        is_fake=device.is_fake,
        has_stand_ins=device.has_stand_ins,
        context_bytes=device.context_bytes,
        host_reserve_bytes=device.host_reserve_bytes,
        job=job,
        ledger_dir=str(runtime_dir / LEDGERS_NAME / job),
        allocator_settings=settings,
        simulation_path=str(SIMULATION),
        allocator_path=str(locate_allocator_model()),
    )
    return msgspec.json.encode(config).decode()


class CardWords(NamedTuple):
    """What the user can change about a card, in the words of the place where it was given."""

    size: str = "--simulate"
    devices: str = "--device-count"
    enlarge: str = "give a larger card or a smaller --context"
    reserve: str = "--host-reserve"
    use_fake: str = "add --fake"


RUN_WORDS = CardWords()


def check_device(
    device: SimulatedDevice, *, host_available_bytes: int | None, words: CardWords = RUN_WORDS
) -> None:
    """Refuse impossible cards, and real storage that this host has not got.

    Raises:
        UsageError: There is no such card, or its tensors would not fit into host memory.
    """
    if not 1 <= device.devices <= MOST_DEVICES:
        raise UsageError(f"{words.devices} {device.devices}: expected 1 to {MOST_DEVICES} simulated cards")
    if device.context_bytes >= device.total_bytes:
        raise UsageError(
            f"{words.size} {format_bytes(device.total_bytes)}: expected more than the "
            f"{format_bytes(device.context_bytes)} context of each process; {words.enlarge}"
        )
    if device.is_fake or host_available_bytes is None:
        return
    needed_bytes = device.devices * (device.total_bytes - device.context_bytes)
    free_bytes = max(0, host_available_bytes - device.host_reserve_bytes)
    if needed_bytes > free_bytes:
        raise UsageError(
            f"{words.size}: real tensors on {_count_cards(device)} may need {format_bytes(needed_bytes)} "
            f"of host memory, but {format_bytes(free_bytes)} are free ({words.reserve} keeps "
            f"{format_bytes(device.host_reserve_bytes)} more): {words.use_fake}, which stores nothing, or "
            "simulate less"
        )


def describe_for_people(device: SimulatedDevice) -> str:
    how = "without storage, so values are not computed" if device.is_fake else "on the CPU"
    each = "it" if device.devices == 1 else "each"
    return (
        f"simulating {_count_cards(device)} {how}; {format_gib(device.context_bytes)} GiB of {each} "
        "stands for the CUDA context; memory is modelled, not measured"
    )


def _count_cards(device: SimulatedDevice) -> str:
    size = f"{format_gib(device.total_bytes)} GiB"
    if device.kind is not None:
        size += f" ({device.kind})"
    return f"1 card of {size}" if device.devices == 1 else f"{device.devices} cards of {size} each"
