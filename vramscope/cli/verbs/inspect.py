"""`vramscope inspect`: a memory snapshot or a flight record explained, on a screen, as text or as JSON."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError
from vramscope.engine.settings import Settings

from ..frame.emit import can_draw, complain, emit_fitted, emit_json
from ..frame.flags import CAPACITY, add_format_flags, add_old_flag, build_look_flags, refuse, whole
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import read_settings

if TYPE_CHECKING:
    from vramscope.engine.files.flight_record import MemoryFile
    from vramscope.exporters.device_profile import DeviceProfileReport
    from vramscope.exporters.inspect.moment import MomentReport
    from vramscope.exporters.serving.start_log import ServingLogReport

PROGRAM = "vramscope inspect"
DESCRIPTION = (
    "Explain a memory snapshot, flight record or server log: what filled memory, and why it ran out."
)
EXAMPLES = """\
vramscope inspect                     # the newest flight record
vramscope inspect snapshot.pickle --top 20
vramscope inspect train.log --format text
vramscope inspect snapshot.pickle --capacity 79GiB
vramscope inspect snapshot.pickle --at peak
vramscope inspect snapshot.pickle --at 10s --and peak --json
vramscope inspect server.log"""
NOTES = """\
FILE is a snapshot as torch.cuda.memory._dump_snapshot writes it (of any PyTorch, also compressed), a flight
record that vramscope wrote at an out-of-memory error, or a log that contains such an error ("CUDA out of
memory. Tried to allocate ...").

Of the start-up log of vLLM, SGLang or llama.cpp it explains the plan: weights, cache, what is outside of it,
and why it did not start.

Of a device memory profile of JAX (jax.profiler.save_device_memory_profile) it lists what lives, by line.

For a profile by module (memory.log) it prints the tables of `vramscope modules`; for runs by phase (of
Opacus's phase profilers or `vramscope phases --json`) those of `vramscope phases --read`.

With --at it says what lived at one moment of a snapshot with history, by line, module and part of the
program; of a recording, what filled each device. With --and it compares a second moment.

A terminal gets a screen, a pipe gets text."""
EXIT_CODES: dict[int | str, str] = {
    0: "done",
    2: "wrong flags, or a file that cannot be read",
    4: "a package of an extra is not installed",
}
MOST = 10_000


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parents = [build_look_flags(), *common]
    parser = add_verb(
        subparsers, parents, "inspect", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        nargs="?",
        help="snapshot, flight record or log, also of a server (default: the newest flight record)",
    )
    output = parser.add_argument_group("output")
    add_format_flags(
        output,
        text="text: print the report, also in a terminal",
        json="print one JSON object that names its schema",
        old=("--text",),
    )
    output.add_argument(
        "--top",
        metavar="N",
        type=whole(1, MOST, f"a whole number from 1 to {MOST}"),
        default=10,
        help="number of stacks to print (default 10)",
    )
    output.add_argument(
        "--at",
        metavar="T",
        help="only what lived then: start, end, peak, oom, #1234 (an event), 35%%, 1h20m or a time of day",
    )
    output.add_argument("--and", metavar="T", dest="second", help="compare with this moment")
    number = whole(0, MOST, f"a whole number from 0 to {MOST}")
    output.add_argument(
        "--devices", metavar="N", dest="device", type=number, help="show only device N of a snapshot"
    )
    add_old_flag(output, "--device", use="--devices", dest="device", type=number)
    output.add_argument(
        "--capacity",
        metavar="SIZE",
        type=CAPACITY,
        help="replay the trace of a snapshot with so much for the allocator, for example 79GiB: what the "
        "device has, less context and other processes (default: what the trace shows)",
    )


def run(arguments: Namespace) -> int:
    top = arguments.top
    device = arguments.device
    path = arguments.file or _find_newest()
    settings = read_settings(arguments)
    capacity = arguments.capacity
    if arguments.at is not None:
        refuse({"--capacity": capacity}, "does not go with --at: a moment is as it was recorded")
        _show_moments(path, arguments, settings)
        return 0
    refuse({"--and": arguments.second}, "needs --at: the first of the two moments")
    refuse_recording(path)
    if capacity is not None and _has_no_moments(path):
        from vramscope.exporters.inspect.text import NEEDS_TRACE

        refuse({"--capacity": capacity}, NEEDS_TRACE)
    if _is_module_memory(path):
        _show_modules(path, settings, is_json=arguments.json)
    elif _is_phase_file(path):
        _show_phases(path, settings, is_json=arguments.json)
    elif _is_device_profile(path):
        _show_device_profile(path, settings, is_json=arguments.json, top=top)
    elif _is_serving_log(path):
        from vramscope.engine.files.flight_record import has_oom_text

        _show_serving_log(path, settings, is_json=arguments.json)
        if not arguments.json and has_oom_text(path):
            # A log of a trainer and its server, or of a server that ended: also what the error itself says.
            print_text(path, top=top, device=device, settings=settings)
    elif arguments.json:
        print_json(path, top=top, device=device, capacity_bytes=capacity)
    else:
        wants_screen = arguments.format != "text" and can_draw(settings)
        if wants_screen and find_spec("numpy") is not None:
            from vramscope.tui.inspect.screen import inspect_file

            return inspect_file(path, settings=settings, device=device, capacity_bytes=capacity)
        # A flight record is the answer to an error that has just ended a job: never refuse it for a package.
        print_text(path, top=top, device=device, settings=settings, capacity_bytes=capacity)
        if wants_screen:
            complain("printed as text: the screen needs numpy: pip install 'vramscope[figures]'")
    return 0


def _show_moments(path: Path, arguments: Namespace, settings: Settings) -> None:
    from vramscope.exporters.inspect.moment import describe_moments

    at = [text for text in (arguments.at, arguments.second) if text is not None]
    report = report_moments(path, at, top=arguments.top, device=arguments.device)
    if arguments.json:
        emit_json(report)
    else:
        emit_fitted(settings, lambda width: describe_moments(report, width))


def report_moments(path: Path, at: Sequence[str], *, top: int, device: int | None) -> "MomentReport":
    """Return what lived in a snapshot or recording at one moment, or at two.

    Raises:
        InputFileError: It cannot be read, or has no moments.
        UsageError: It does not have the device, or a text is no moment of it.
    """
    from vramscope.engine.errors import Setting, SettingError
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.files.detect import identify
    from vramscope.engine.files.flight_record import read_memory_file
    from vramscope.engine.model.memory_snapshot import MemorySnapshot
    from vramscope.engine.recording import Recording
    from vramscope.exporters.inspect.moment import report_recording, report_snapshot

    if _is_recording(path):
        with Recording(path) as recording:
            return report_recording(recording, at, top=top, device=device)
    needed = Setting("--at"), " needs a memory snapshot with history, or a recording"
    if _has_no_moments(path):
        kind = identify(path)
        words = "this file" if kind is None else kind.words
        raise SettingError(f"{show_path(path)}: {words} has no moments; ", *needed)
    content = read_memory_file(path)
    if not isinstance(content, MemorySnapshot):
        raise SettingError(f"{show_path(path)}: a flight record has the moment of its error alone; ", *needed)
    return report_snapshot(content, at, top=top, device=device)


def refuse_recording(path: Path) -> None:
    """Refuse a recording as a whole: it has a state at each moment."""
    from vramscope.engine.errors import Setting, SettingError
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.files.detect import identify

    if _is_recording(path):
        kind = identify(path)
        raise SettingError(
            f"{show_path(path)}: a recording: name a moment with ",
            Setting("--at"),
            f", for example peak{'' if kind is None else f', or give it to {kind.list_readers()}'}",
        )


def report_other_file(path: Path, *, top: int) -> "DeviceProfileReport | ServingLogReport | None":
    """Return the report on a device memory profile of JAX or a server's start-up log; None for other files.

    Raises:
        InputFileError: It is one, and cannot be read.
    """
    if _is_device_profile(path):
        return _report_device_profile(path, top=top)
    return _report_serving_log(path) if _is_serving_log(path) else None


def _has_no_moments(path: Path) -> bool:
    others = (_is_module_memory, _is_phase_file, _is_device_profile, _is_serving_log)
    return any(is_other(path) for is_other in others)


def _is_recording(path: Path) -> bool:
    """Return whether a file is a recording; a file that cannot be read is refused later."""
    from vramscope.engine.files.detect import is_recording

    try:
        return path.is_file() and is_recording(path)
    except OSError:
        return False


def _is_module_memory(path: Path) -> bool:
    """Return whether a file is a profile by module; a file that cannot be read is refused later."""
    from vramscope.engine.errors import InputFileError
    from vramscope.engine.files.module_memory import is_module_memory

    try:
        return is_module_memory(path)
    except InputFileError:
        return False


def _show_modules(path: Path, settings: "Settings", *, is_json: bool) -> None:
    from .modules import print_modules, print_modules_as_json, read_named

    profiles = read_named(path)
    if is_json:
        print_modules_as_json(profiles)
        return
    print_modules(profiles, settings, depth=2)
    complain(f"for charts and more levels: vramscope modules {path}")


def _is_phase_file(path: Path) -> bool:
    """Return whether a file is of runs by phase; a file that cannot be read is refused later."""
    from vramscope.engine.errors import InputFileError
    from vramscope.engine.files.phases import is_phase_file

    try:
        return is_phase_file(path)
    except InputFileError:
        return False


def _show_phases(path: Path, settings: "Settings", *, is_json: bool) -> None:
    from .phases import print_phase_file, print_phase_file_as_json

    if is_json:
        print_phase_file_as_json(path)
    else:
        print_phase_file(path, settings)


def _is_serving_log(path: Path) -> bool:
    """Return whether a file is a server's start-up log; a file that cannot be read is refused later."""
    from vramscope.engine.errors import InputFileError
    from vramscope.engine.files.serving_log import recognize_serving_log

    try:
        return recognize_serving_log(path) is not None
    except InputFileError:
        return False


def _show_serving_log(path: Path, settings: "Settings", *, is_json: bool) -> None:
    from vramscope.exporters.serving.start_log import describe_serving_log

    report = _report_serving_log(path)
    if is_json:
        emit_json(report)
    else:
        emit_fitted(settings, lambda width: describe_serving_log(report, width))


def _report_serving_log(path: Path) -> "ServingLogReport":
    from vramscope.engine.files.serving_log import read_serving_log
    from vramscope.exporters.serving.start_log import summarize_serving_log

    return summarize_serving_log(read_serving_log(path))


def _is_device_profile(path: Path) -> bool:
    from vramscope.engine.files.device_profile import is_device_profile

    return is_device_profile(path)


def _show_device_profile(path: Path, settings: "Settings", *, is_json: bool, top: int) -> None:
    from vramscope.exporters.device_profile import describe_device_profile

    report = _report_device_profile(path, top=top)
    if is_json:
        emit_json(report)
    else:
        emit_fitted(settings, lambda width: describe_device_profile(report, width))


def _report_device_profile(path: Path, *, top: int) -> "DeviceProfileReport":
    from vramscope.engine.files.base.input_file import show_name
    from vramscope.engine.files.device_profile import read_device_profile
    from vramscope.exporters.device_profile import summarize_device_profile

    return summarize_device_profile(read_device_profile(path), show_name(path), top=top)


def _find_newest() -> Path:
    from vramscope.engine.files.flight_record import find_newest_flight_record, list_flight_folders

    folders = list_flight_folders()
    path = find_newest_flight_record(folders)
    if path is None:
        raise UsageError(
            f"no FILE is given, and there is no flight record in {' or '.join(map(str, folders))}: a job "
            "under `vramscope run` writes one there when it runs out of device memory"
        )
    complain(f"newest flight record: {path}")
    return path


def _read_memory_file(path: Path) -> "MemoryFile":
    from vramscope.engine.files.flight_record import read_memory_file

    from ..frame.progress import ProgressLine

    with ProgressLine(PROGRAM) as progress:
        return read_memory_file(path, progress.show_share)


def print_text(
    path: Path, *, top: int, device: int | None, settings: Settings, capacity_bytes: int | None = None
) -> None:
    """Print the report on a file, as wide as the terminal, or 80 cells into a pipe.

    Args:
        device: The only device to report; None for all.
        capacity_bytes: What the allocator can reserve where settings are compared; None for what the trace
            shows.
    """
    from vramscope.exporters.inspect.text import describe_memory_file

    content = _read_memory_file(path)
    emit_fitted(
        settings,
        lambda width: describe_memory_file(
            content, top=top, device=device, capacity_bytes=capacity_bytes, width=width
        ),
    )


def print_json(path: Path, *, top: int, device: int | None, capacity_bytes: int | None = None) -> None:
    """Print the report on a file as one JSON object that names its schema.

    Args:
        device: The only device to report; None for all.
        capacity_bytes: What the allocator can reserve where settings are compared; None for what the trace
            shows.
    """
    from vramscope.exporters.inspect.text import summarize_memory_file

    content = _read_memory_file(path)
    summary = summarize_memory_file(content, top=top, device=device, capacity_bytes=capacity_bytes)
    emit_json(summary)
