"""Which file of a profile is which, and where the files of a run lie."""

from collections.abc import Callable
from pathlib import Path

from ...errors import InputFileError
from ...model.module_memory import ModuleMemory
from ..input_file import open_input_file, show_path
from ..packed_file import PackedFile
from .chart import OPTION_MARK, read_chart, read_charts
from .exact import SCHEMA_MARK, read_exact
from .log import STATE_MARK, read_log

EXACT_NAME = "module_memory.jsonl"
LOG_NAME = "memory.log"
_CHART_PATTERN = "*_sunburst.html"
_HEAD_BYTES = 1 << 16
_MOST_BYTES = 1 << 30
_MOST_FOLDERS = 100_000
_EXPECTED = (
    f"expected {LOG_NAME} as SimpleMemoryProfiler writes it, {EXACT_NAME} beside it, or a chart as "
    "params_memory_sunburst.html"
)


def is_module_memory(path: Path) -> bool:
    """Tell by its content whether a file is of a profile.

    Raises:
        InputFileError: It cannot be read.
    """
    return _find_reader(path) is not None


def read_module_memory(path: Path) -> ModuleMemory:
    """Read a file of a profile, whichever it is, or the folder of its charts.

    Raises:
        InputFileError: It cannot be read or understood.
    """
    if path.is_dir():
        return read_charts(list_charts(path))
    read = _find_reader(path)
    if read is None:
        raise InputFileError(f"{show_path(path)}: no memory by module; {_EXPECTED}")
    return read(path)


def find_profiles(path: Path) -> list[Path]:
    """Return the profile of each rank below a folder, or the file itself; exact bytes before rounded ones.

    Where there are only charts, the folder that holds those of a rank is its profile.

    Raises:
        InputFileError: There is none, or the folder cannot be read.
    """
    if not path.is_dir():
        return [path]
    try:
        found = {file.parent: file for file in _list_files(path, LOG_NAME)}
        found |= {file.parent: file for file in _list_files(path, EXACT_NAME)}
        if not found:
            folders = {file.parent for file in _list_files(path, _CHART_PATTERN)}
            found = {folder: folder for folder in folders if list_charts(folder)}
    except OSError as error:
        raise InputFileError(f"{show_path(path)}: cannot be read: {error.strerror or error}") from error
    if not found:
        raise InputFileError(f"{show_path(path)}: no profile by module in this folder; {_EXPECTED}")
    return [found[folder] for folder in sorted(found, key=_order)]


def list_charts(folder: Path) -> list[Path]:
    """Return the charts in a folder by their names."""
    return [file for file in sorted(folder.glob(_CHART_PATTERN)) if file.is_file() and _is_chart(file)]


def _is_chart(path: Path) -> bool:
    try:
        return _find_reader(path) is read_chart
    except InputFileError:
        return False


def _list_files(folder: Path, name: str) -> list[Path]:
    return [file for _, file in zip(range(_MOST_FOLDERS), folder.rglob(name), strict=False) if file.is_file()]


def _order(folder: Path) -> tuple[str, int, str]:
    """Return what folders are ordered by: rank 2 before rank 10."""
    digits = folder.name.removeprefix("rank").partition("_")[0]
    return str(folder.parent), int(digits) if digits.isdecimal() and len(digits) < 10 else 0, folder.name


def _find_reader(path: Path) -> Callable[[Path], ModuleMemory] | None:
    with open_input_file(path, _MOST_BYTES):
        head = PackedFile(path).read()[:_HEAD_BYTES]
    if SCHEMA_MARK in head.partition(b"\n")[0]:
        return read_exact
    if any(line.strip() == STATE_MARK for line in head.splitlines()):
        return read_log
    return read_chart if OPTION_MARK in head else None
