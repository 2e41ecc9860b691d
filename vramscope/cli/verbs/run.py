"""`vramscope run`: start a job with the probe, wait for it, and print how it ended."""

from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import RuntimeFolderError, UsageError, VramscopeError
from vramscope.planning.card import Card, read_card

from ..frame.emit import complain
from ..frame.flags import Reading, add_old_flag, pick, refuse, size
from ..frame.parse import SubParsers, add_verb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vramscope.analyzers.planning.steps import GpuKind
    from vramscope.engine.jobs.foreground import Ended
    from vramscope.engine.jobs.launch import SimulatedDevice
    from vramscope.exporters.job_end import FailedAllocation, SizeOutside

DESCRIPTION = (
    "Start a job with the probe, so that its ranks, steps and allocator show in every view of this node."
)
EXAMPLES = """\
vramscope run -- python train.py --lr 3e-4
vramscope run -- torchrun --nproc-per-node 2 train.py
vramscope run --record=run.vscope -- python train.py
vramscope run --profiling -- python train.py       # memory by module
vramscope run --simulate 24GiB -- python train.py  # does it fit in 24 GiB?"""
NOTES = """\
Open `vramscope` in another terminal to watch the job. The code of the job does not change; its output,
signals and exit code are those of CMD. When it has ended, one or two lines on stderr have its peak memory
and, after an out-of-memory error, the line that held most."""
EXIT_CODES: dict[int | str, str] = {
    "CMD": "exit code of CMD, or 128 + the signal that ended it",
    125: "vramscope failed",
    126: "CMD cannot be run",
    127: "CMD not found",
}


# Values of `--fake`, alone and as it may be written.
_STAND_INS = "stand-ins"
_STRICT = "strict"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers,
        common,
        "run",
        DESCRIPTION,
        examples=EXAMPLES,
        notes=NOTES,
        exit_codes=EXIT_CODES,
        usage="vramscope run [flags] [--] CMD [ARG...]",
    )
    parser.add_argument("--job", metavar="NAME", help="name of the job (default: a short random name)")
    _add_files(parser)
    parser.add_argument("--no-hub", action="store_true", help="do not start an agent if none runs")
    parser.add_argument("--quiet", action="store_true", help="print nothing when the job has ended")
    _add_device(parser)


def _add_files(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--record",
        metavar="FILE",
        type=Path,
        nargs="?",
        const=Path(),
        help="record the job from start to end (default FILE: named by job and time)",
    )
    parser.add_argument(
        "--profiling",
        metavar="DIR",
        type=Path,
        nargs="?",
        const=Path(),
        help="profile some steps by module, and one with torch.profiler (default DIR: JOB/TIME)",
    )


def _add_device(parser: ArgumentParser) -> None:
    device = parser.add_argument_group("simulated device")
    device.add_argument(
        "--simulate",
        metavar="GPU",
        type=Reading(read_card),
        help="run on the CPU as on a GPU with this much memory (24GiB), or of this kind (h100, rtx4090)",
    )
    device.add_argument("--device-count", metavar="N", type=int, help="number of simulated GPUs (default 1)")
    add_old_flag(device, "--devices", use="--device-count", dest="device_count", type=int)
    device.add_argument(
        "--fake",
        metavar="strict",
        nargs="?",
        const=_STAND_INS,
        choices=(_STAND_INS, _STRICT),
        help="store no tensors: any size fits the host; values are not computed, and a script that reads one "
        "gets a stand-in (with --fake=strict it is stopped)",
    )
    device.add_argument(
        "--context",
        metavar="SIZE",
        type=size(),
        help="memory of the CUDA context of each process on your GPU, if you have measured it (default: a "
        "range, and 512MiB on the simulated GPU or what is likely for its kind)",
    )
    device.add_argument(
        "--host-reserve",
        metavar="SIZE",
        type=size(),
        help="host memory that tensors must leave free (default 1GiB)",
    )


def run(arguments: Namespace) -> int:
    """Run the command of the job; with `--quiet` this process becomes the command."""
    from vramscope.engine.jobs.foreground import become, end_likewise, exit_code_of, is_runnable
    from vramscope.engine.jobs.job_peaks import summary_folder
    from vramscope.engine.jobs.launch import (
        check_job_name,
        make_environment,
        make_job_name,
        read_original_environment,
    )
    from vramscope.engine.paths import locate_runtime_folder

    command: list[str] = arguments.command
    if not command:
        raise UsageError("CMD is missing; expected for example `vramscope run -- python train.py`")
    job = make_job_name() if arguments.job is None else check_job_name(arguments.job)
    folder = locate_runtime_folder()
    environment = read_original_environment()
    device = _prepare_device(arguments, folder)
    simulate = None
    if device is not None:
        from vramscope.engine.jobs.launch import describe_for_job

        simulate = describe_for_job(device, job=job, runtime_dir=folder, environ=environment)
    is_there = is_runnable(command, environment)
    keep_hub = _provide_hub(folder) if is_there and not arguments.no_hub else _do_nothing
    check_recording = _do_nothing
    if is_there and arguments.record is not None:
        check_recording = _record(folder, arguments.record, job)
    profiling = _prepare_profiling(arguments.profiling, job)

    def prepare(summary: Path | None) -> dict[str, str]:
        return make_environment(
            environment,
            runtime_dir=folder,
            job=job,
            simulate=simulate,
            profiling=profiling,
            summary=summary,
        )

    def meanwhile() -> None:
        keep_hub()
        check_recording()

    try:
        if arguments.quiet or not is_there:
            raise become(command, prepare(None))
        with ExitStack() as stack:
            try:
                summary = stack.enter_context(summary_folder(folder))
            except RuntimeFolderError as error:
                complain(f"peak memory will not be printed: {error}", program="vramscope run")
                summary = None
            ended = _run_and_report(
                command,
                prepare(summary),
                summary,
                device,
                meanwhile=meanwhile,
                at_end=check_recording,
            )
    except OSError as error:
        complain(f"cannot run {command[0]}: {error.strerror or error}")
        return exit_code_of(error)
    return end_likewise(ended)


def _do_nothing() -> None:
    """Stand for what is not asked for."""


def _run_and_report(
    command: list[str],
    environment: "Mapping[str, str]",
    summary: Path | None,
    device: "SimulatedDevice | None",
    *,
    meanwhile: "Callable[[], None]",
    at_end: "Callable[[], None]",
) -> "Ended":
    """Run the command to its end, and print how it ended; raises OSError if it cannot be run."""
    import time

    from vramscope.engine.jobs.foreground import run_in_foreground
    from vramscope.engine.jobs.job_peaks import read_peaks
    from vramscope.engine.paths import locate_root
    from vramscope.engine.sources.host import count_memory_kills
    from vramscope.engine.sources.kernel_log import KernelLog

    log = KernelLog(locate_root())
    kills = count_memory_kills()
    begun_s = time.monotonic()
    ended = run_in_foreground(command, environment, meanwhile)
    at_end()
    passed_s = time.monotonic() - begun_s
    processes = None if summary is None else read_peaks(summary)
    from vramscope.exporters.job_end import describe_job_end

    kills_now = count_memory_kills()
    sentences = describe_job_end(
        ended,
        passed_s=passed_s,
        processes=processes,
        read_failure=_read_failure,
        host_kills=0 if kills is None or kills_now is None else kills_now - kills,
        events=log.read_all(),
        size_outside=None if device is None else _make_size_outside(device),
    )
    log.close()
    for sentence in sentences:
        complain(sentence, program="vramscope run")
    return ended


def _make_size_outside(device: "SimulatedDevice") -> "SizeOutside":
    """Return what says how much a process takes of its card besides its tensors, as for an estimate."""
    from vramscope.analyzers.planning.steps.outside import list_outside
    from vramscope.engine.model.outside import OutsideUse

    return lambda process: list_outside(
        process.uses or OutsideUse(),
        process.reserved_bytes,
        context_bytes=device.context_bytes if device.is_context_given else None,
        gpu=_find_kind(device.kind, device.capability, device.multiprocessors),
        # How much of it a step makes is not known.
        made_bytes=process.allocated_bytes,
    )


def _find_kind(
    name: str | None, capability: tuple[int, int] | None, multiprocessors: int | None
) -> "GpuKind | None":
    from vramscope.analyzers.planning.steps import GpuKind

    return None if name is None else GpuKind(name, capability, multiprocessors)


def _read_failure(name: str) -> "FailedAllocation | None":
    """Return what a flight record has about its error; a record that is gone or broken is left out."""
    from vramscope.analyzers.snapshot_summary.flight import find_shortage, summarize_flight_record
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.files.flight_record import read_flight_record
    from vramscope.exporters.job_end import FailedAllocation

    path = Path(name)
    try:
        record = read_flight_record(path)
    except (VramscopeError, OSError):
        return None
    summary = summarize_flight_record(record)
    places = ((group.headline, group.size_bytes) for group in summary.stacks)
    line, size_bytes = next(((it, size) for it, size in places if it is not None), (None, None))
    shares = summary.shares
    free = (shares.reserved_bytes, shares.free_bytes)
    lacking_bytes = None
    if summary.size_bytes is not None and shares.allocated_bytes is not None and None not in free:
        lacking_bytes = summary.size_bytes + shares.allocated_bytes - sum(it or 0 for it in free)
    return FailedAllocation(
        path=show_path(path),
        size_bytes=summary.size_bytes,
        shortage_bytes=find_shortage(record, shares),
        holder=None if line is None else f"{show_path(Path(line.filename))}:{line.line}",
        holder_bytes=size_bytes,
        lacking_bytes=lacking_bytes,
    )


def _prepare_profiling(given: Path | None, job: str) -> Path | None:
    """Make the folder of the profiles and print its name; return None without `--profiling`."""
    if given is None:
        return None
    from vramscope.engine.errors import OutputFileError
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.probe.module_memory.torch_trace import name_run

    path = Path(name_run(job_name=job)) if given == Path() else given
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputFileError(
            f"{show_path(path)}: cannot make this folder: {error.strerror or error}"
        ) from error
    shown = show_path(path)
    complain(f"profiling into {shown}; afterwards: vramscope modules {shown}", program="vramscope run")
    return path.absolute()


def _provide_hub(folder: Path) -> "Callable[[], None]":
    """Start a hub if none runs, and return what starts another if it ends."""
    from vramscope.engine.jobs.background import HubKeeper

    keeper = HubKeeper(
        folder, lambda why: complain(f"no agent could be started, so the job runs without one: {why}")
    )
    keeper.start()
    return keeper.check


def _record(folder: Path, path: Path, job: str) -> "Callable[[], None]":
    """Start a process that records until this one, which becomes the job, has ended.

    Return what says that it has ended before.
    """
    import os
    import time

    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.jobs.background import JobRecording, name_recording
    from vramscope.engine.paths import open_runtime_folder

    open_runtime_folder(folder)
    output = name_recording(Path.cwd(), job, time.time()) if path == Path() else path
    recording = JobRecording(folder, output, pid=os.getpid(), job=job)
    told = recording.start() or f"recording into {show_path(output)} until the job has ended"
    complain(told, program="vramscope run")

    def check() -> None:
        failure = recording.find_failure()
        if failure is not None:
            complain(failure, program="vramscope run")

    return check


def _prepare_device(arguments: Namespace, folder: Path) -> "SimulatedDevice | None":
    """Check and announce the simulated device; return None without `--simulate`."""
    if arguments.simulate is None:
        refuse(pick(arguments, ("device_count", "fake", "context", "host_reserve")), "needs --simulate GPU")
        return None
    from vramscope.engine.child_processes import LEDGERS_NAME
    from vramscope.engine.jobs.launch import check_device, describe_for_people, sweep_ledgers
    from vramscope.engine.paths import open_runtime_folder
    from vramscope.engine.sources.host import HostReader

    open_runtime_folder(folder)  # the processes of the job share their cards through files there
    device = _read_device(arguments)
    check_device(device, host_available_bytes=HostReader().read().available_bytes)
    sweep_ledgers(folder / LEDGERS_NAME)
    complain(describe_for_people(device), program="vramscope simulate")
    return device


def _read_device(arguments: Namespace) -> "SimulatedDevice":
    from vramscope.analyzers.planning.steps.outside import size_context
    from vramscope.engine.jobs.launch import DEFAULT_HOST_RESERVE_BYTES, SimulatedDevice

    card: Card = arguments.simulate
    kind = _find_kind(card.kind, card.capability, card.multiprocessors)
    return SimulatedDevice(
        total_bytes=card.total_bytes,
        kind=card.kind,
        capability=card.capability,
        multiprocessors=card.multiprocessors,
        devices=1 if arguments.device_count is None else arguments.device_count,
        is_fake=arguments.fake is not None,
        has_stand_ins=arguments.fake == _STAND_INS,
        context_bytes=size_context(arguments.context, kind).likely_bytes,
        is_context_given=arguments.context is not None,
        host_reserve_bytes=DEFAULT_HOST_RESERVE_BYTES
        if arguments.host_reserve is None
        else arguments.host_reserve,
    )
