"""`vramscope phases --read` and `vramscope inspect`: files of runs by phase, read instead of trained."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from vramscope.engine.errors import UsageError
from vramscope.engine.settings import Settings

from .frame.printing import choose_style, emit


def print_read(arguments: Namespace) -> int:
    """Print the files of `--read` in the format that was asked for, and return the exit code.

    Args:
        arguments: With `read`, the paths; `format`, one of text, json and original, None for text; and
            `output`, a path.

    Raises:
        UsageError: A file that is asked for in the original's words was not written by vramscope.
        InputFileError: A file cannot be read or understood.
        OutputFileError: The output cannot be written.
    """
    from .frame.configuration import read_settings
    from .phases import deliver

    content: str | bytes

    if arguments.format == "json":
        content = _encode(arguments.read)
    elif arguments.format == "original":
        content = _describe_as_original(arguments.read)
    else:
        content = _describe(arguments.read, read_settings(arguments))
    deliver(content, arguments.output)
    return 0


def print_phase_file(path: Path, settings: Settings) -> None:
    """Print the tables of a file, as wide as the terminal, or 80 cells into a pipe.

    Args:
        path: The file.
        settings: What the user set.

    Raises:
        InputFileError: It cannot be read or understood.
    """
    emit(_describe([path], settings))


def print_phase_file_as_json(path: Path) -> None:
    """Print one JSON object a training of ours, or one of all that a file of another profiler tells.

    Args:
        path: The file.

    Raises:
        InputFileError: It cannot be read or understood.
    """
    sys.stdout.buffer.write(_encode([path]))
    sys.stdout.buffer.flush()


def _describe(paths: Sequence[Path], settings: Settings) -> str:
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.files.phases import read_phase_file
    from vramscope.engine.text import make_ascii
    from vramscope.exporters.phases.text import describe_phase_file

    style = choose_style(settings)
    heads = [f"{show_path(path)}\n" if len(paths) > 1 else "" for path in paths]
    texts = [describe_phase_file(read_phase_file(path), style.width) for path in paths]
    text = "\n".join(head + each for head, each in zip(heads, texts, strict=True))
    return make_ascii(text) if style.is_ascii else text


def _encode(paths: Sequence[Path]) -> bytes:
    from vramscope.engine.files.phases import read_phase_file
    from vramscope.exporters.json_lines import encode_line
    from vramscope.exporters.phases.report import report_phase_records, report_phases

    lines = []
    for file in [read_phase_file(path) for path in paths]:
        lines += [encode_line(report_phases(runs)) for runs in file.trainings]
        lines += [encode_line(report_phase_records(file))] if file.records else []
    return b"".join(lines)


def _describe_as_original(paths: Sequence[Path]) -> str:
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.files.phases import read_phase_file
    from vramscope.exporters.phases.report import describe_as_original

    texts = []
    for path in paths:
        file = read_phase_file(path)
        if file.records:
            raise UsageError(
                f"--format original: {show_path(path)} is of another profiler already; expected what "
                "`vramscope phases --json` prints: leave --format out for tables"
            )
        texts += [describe_as_original(run) for runs in file.trainings for run in runs]
    return "\n".join(texts)
