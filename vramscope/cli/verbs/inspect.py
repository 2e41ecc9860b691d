"""`vramscope inspect`: what a memory snapshot or a flight record says, as a screen, as text or as JSON."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from ..drawing import can_draw
from ..frame.configuration import read_settings
from ..frame.diagnostics import complain
from ..frame.flag_words import add_format_flags, add_old_flag
from ..frame.parser_flags import build_look_flags
from ..frame.registry import SubParsers
from ..inspection import print_json, print_text

if TYPE_CHECKING:
    from vramscope.engine.settings import Settings

SUMMARY = "open a PyTorch memory snapshot or a flight record: what held the memory, and why it ran out"
DESCRIPTION = """\
Show what a file of device memory says: a snapshot as torch.cuda.memory._dump_snapshot writes it (in any
dialect, compressed or not), a flight record that vramscope wrote at an out-of-memory error, or a text with
such an error in it, as "CUDA out of memory. Tried to allocate ...". Of a profile by module (memory.log) the
tables of `vramscope modules` are printed, of runs by phase (what Opacus's phase profilers print and write,
what `vramscope phases --json` prints) those of `vramscope phases --read`.
A terminal gets a screen; a pipe gets the text."""
DEFAULT_TOP = 10
MOST_TOP = 10_000


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    from argparse import RawDescriptionHelpFormatter

    parser = subparsers.add_parser(
        "inspect",
        help=SUMMARY,
        description=DESCRIPTION,
        formatter_class=RawDescriptionHelpFormatter,
        parents=[build_look_flags(), *common],
        allow_abbrev=False,
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        nargs="?",
        help="snapshot, flight record or log; without one the newest flight record",
    )
    output = parser.add_argument_group("output")
    add_format_flags(
        output,
        text="text: print the report, also in a terminal",
        json="print one JSON object with its schema's name",
        old=("--text",),
    )
    output.add_argument("--top", metavar="N", default=str(DEFAULT_TOP), help="stacks to print (default 10)")
    output.add_argument("--devices", metavar="N", dest="device", help="only this device of a snapshot")
    add_old_flag(output, "--device", use="--devices", dest="device")


def run(arguments: Namespace) -> int:
    """Show the file.

    Raises:
        UsageError: There is no flight record to fall back on, or a flag has a value that cannot be used.
        InputFileError: The file cannot be read or understood.
    """
    top = _read_count("--top", arguments.top, 1)
    device = None
    if arguments.device is not None:
        device = _read_count("--devices", arguments.device, 0)
    path = arguments.file or _find_newest()
    settings = read_settings(arguments)
    if _is_module_memory(path):
        _show_modules(path, settings, is_json=arguments.json)
    elif _is_phase_file(path):
        _show_phases(path, settings, is_json=arguments.json)
    elif arguments.json:
        print_json(path, top=top, device=device)
    elif arguments.format != "text" and can_draw(settings):
        from vramscope.tui.inspect.app import inspect_file

        return inspect_file(path, settings=settings, device=device)
    else:
        print_text(path, top=top, device=device, settings=settings)
    return 0


def _is_module_memory(path: Path) -> bool:
    """Tell whether a file is a profile by module; what cannot be read is for its own reader to refuse."""
    from vramscope.engine.errors import InputFileError
    from vramscope.engine.files.module_memory import is_module_memory

    try:
        return is_module_memory(path)
    except InputFileError:
        return False


def _show_modules(path: Path, settings: "Settings", *, is_json: bool) -> None:
    from ..modules import print_modules, print_modules_as_json, read_named

    profiles = read_named(path)
    if is_json:
        print_modules_as_json(profiles)
        return
    print_modules(profiles, settings, depth=2)
    complain("charts and more levels are with `vramscope modules`")


def _is_phase_file(path: Path) -> bool:
    """Tell whether a file is of runs by phase; what cannot be read is for its own reader to refuse."""
    from vramscope.engine.errors import InputFileError
    from vramscope.engine.files.phases import is_phase_file

    try:
        return is_phase_file(path)
    except InputFileError:
        return False


def _show_phases(path: Path, settings: "Settings", *, is_json: bool) -> None:
    from ..phase_reading import print_phase_file, print_phase_file_as_json

    if is_json:
        print_phase_file_as_json(path)
    else:
        print_phase_file(path, settings)


def _read_count(flag: str, text: str, least: int) -> int:
    """Return a number that a flag was given.

    Raises:
        UsageError: It is no whole number, or out of range.
    """
    if text.isdecimal() and least <= int(text) <= MOST_TOP:
        return int(text)
    raise UsageError(f"{flag} {text}: expected a whole number from {least} to {MOST_TOP}")


def _find_newest() -> Path:
    """Return the newest flight record.

    Raises:
        UsageError: There is none; the text says where they would be and what writes them.
    """
    from vramscope.engine.files.flight_record import find_newest_flight_record, list_flight_folders

    folders = list_flight_folders()
    path = find_newest_flight_record(folders)
    if path is None:
        raise UsageError(
            f"no FILE, and no flight record in {' or '.join(map(str, folders))}: a job under `vramscope run` "
            "leaves one there when it runs out of device memory"
        )
    complain(f"the newest flight record is {path}")
    return path
