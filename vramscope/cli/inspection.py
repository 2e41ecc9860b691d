"""The headless output of `vramscope inspect`."""

import sys
from pathlib import Path

from vramscope.engine.settings import Settings


def print_text(path: Path, *, top: int, device: int | None, settings: Settings) -> None:
    """Print what a file says, as wide as the terminal, or 80 cells into a pipe.

    Args:
        path: The file.
        top: Stacks to print.
        device: The only device to tell of; None for all.
        settings: What the user set.

    Raises:
        InputFileError: The file cannot be read or understood.
        UsageError: It does not tell of the device.
    """
    from vramscope.engine.files.memory_file import read_memory_file
    from vramscope.exporters.inspect import describe_memory_file

    from .frame.printing import choose_style, emit

    style = choose_style(settings)
    text = describe_memory_file(read_memory_file(path), top=top, device=device, width=style.width)
    emit(text, is_ascii=style.is_ascii)


def print_json(path: Path, *, top: int, device: int | None) -> None:
    """Print what a file says as one JSON object that names its schema.

    Args:
        path: The file.
        top: Stacks to print.
        device: The only device to tell of; None for all.

    Raises:
        InputFileError: The file cannot be read or understood.
        UsageError: It does not tell of the device.
    """
    from vramscope.engine.files.memory_file import read_memory_file
    from vramscope.exporters.inspect import summarize_memory_file
    from vramscope.exporters.json_lines import write_line

    summary = summarize_memory_file(read_memory_file(path), top=top, device=device)
    write_line(summary, sys.stdout.buffer)
