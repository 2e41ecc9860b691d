"""Reads the log of one configuration: why it failed, how fast it was, what the theory was made of.

The lines are those of Megatron-LM and torchrun. A log may be long: of one that ran only both ends are read.
"""

import os
import re
from pathlib import Path

from ...errors import InputFileError
from ...text import make_printable
from ..base.input_file import open_input_file
from ..memory_trace.records import logged_bytes
from .model import ConfigurationLog

FILE_NAME = "global_rank_0.log"
FOLDER = re.compile(r"TP([0-9]{1,9})_PP([0-9]{1,9})_DP([0-9]{1,9})(?:_.*)?")
_FILE_LIMIT_BYTES = 1 << 40
_MOST_BYTES = 16 << 20
_END_BYTES = 1 << 18
_MOST_CAUSE = 200
_OUT_OF_MEMORY = re.compile(rb"out of memory|OutOfMemoryError")
_ERROR = re.compile(rb"^.*?\b([A-Za-z_][\w.]{0,100}(?:Error|Exception)): *(\S[^\r\n]*)", re.MULTILINE)
_ABOUT_OTHERS = b"ChildFailedError"
_SIGNAL = re.compile(rb"exitcode *: *-([0-9]+)")
_LAUNCHER = re.compile(r"^\[[\w ]+\]: ?")
"""What torchrun puts before each line of a rank."""
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
_NUMBER = rb"(-?[0-9]+(?:\.[0-9]+)?)"
_ITERATION = re.compile(rb"elapsed time per iteration \(ms\): *" + _NUMBER)
_SPEED = re.compile(rb"throughput per GPU \(TFLOP/s/GPU\): *" + _NUMBER)
_STOPPED = re.compile(rb"peak memory: *" + _NUMBER + rb" MB, theoretical memory: *" + _NUMBER + rb" MB")
_PARTS = re.compile(rb"weight and optimizer=" + _NUMBER + rb" MB, activation=" + _NUMBER + rb" MB")


def read_configuration_log(path: Path, *, has_failed: bool) -> ConfigurationLog:
    """Return what the log of one configuration says.

    Args:
        path: The log.
        has_failed: Look for the cause in all of it, up to its last 16 MiB.

    Raises:
        InputFileError: It cannot be read.
    """
    data = _COLOUR.sub(b"", _read(path, is_whole=has_failed))
    is_out_of_memory, cause = _find_cause(data) if has_failed else (False, None)
    iteration_ms = _find_last(_ITERATION, data)
    tflops = _find_last(_SPEED, data)
    peak, theory = _find_pair(_STOPPED, data)
    states, activations = _find_pair(_PARTS, data)
    return ConfigurationLog(
        path=path,
        is_out_of_memory=is_out_of_memory,
        cause=cause,
        iteration_s=None if iteration_ms is None else iteration_ms / 1000,
        tflops_per_gpu=tflops,
        peak_allocated_bytes=peak,
        theoretical_bytes=theory,
        states_bytes=states,
        activations_bytes=activations,
    )


def _read(path: Path, *, is_whole: bool) -> bytes:
    with open_input_file(path, _FILE_LIMIT_BYTES) as (file, size_bytes):
        most_bytes = _MOST_BYTES if is_whole else 2 * _END_BYTES
        if size_bytes <= most_bytes:
            return file.read(most_bytes)
        head = b"" if is_whole else file.read(_END_BYTES)
        file.seek(len(head) - most_bytes, os.SEEK_END)
        return head + b"\n" + file.read(most_bytes)


def _find_cause(data: bytes) -> tuple[bool, str | None]:
    """Return whether the device ran out of memory, and the line by which the run failed."""
    found = _OUT_OF_MEMORY.search(data)
    if found is not None:
        start = data.rfind(b"\n", 0, found.start()) + 1
        end = data.find(b"\n", found.end())
        return True, _as_text(data[start : end if end >= 0 else len(data)])
    errors = [match for match in _ERROR.finditer(data) if _ABOUT_OTHERS not in match[1]]
    if errors:
        return False, _as_text(errors[-1][1].rpartition(b".")[2] + b": " + errors[-1][2])
    signal = _SIGNAL.search(data)
    if signal is not None:
        hint = ", often for the memory of the host" if signal[1] == b"9" else ""
        return False, f"ended by signal {signal[1].decode()}{hint}"
    return False, None


def _as_text(line: bytes) -> str:
    text = _LAUNCHER.sub("", " ".join(line.decode("utf-8", "replace").split()))
    return make_printable(text, _MOST_CAUSE)


def _find_last(pattern: re.Pattern[bytes], data: bytes) -> float | None:
    found = pattern.findall(data)
    return float(found[-1]) if found and float(found[-1]) > 0 else None


def _find_pair(pattern: re.Pattern[bytes], data: bytes) -> tuple[int | None, int | None]:
    """Return two figures in bytes; None where they are not told, or are -1."""
    found = pattern.findall(data)
    if not found:
        return None, None
    try:
        first, second = (logged_bytes(float(text)) for text in found[-1])
    except ValueError:
        return None, None
    return first, second


def find_configuration_logs(folder: Path) -> dict[tuple[int, int, int], Path]:
    """Return the logs below a log folder by TP, PP and DP.

    Raises:
        InputFileError: The folder cannot be read.
    """
    found: dict[tuple[int, int, int], Path] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda it: it.name):
                match = FOLDER.fullmatch(entry.name)
                path = Path(entry.path, FILE_NAME)
                if match is not None and path.is_file():
                    found[int(match[1]), int(match[2]), int(match[3])] = path
    except OSError as error:
        raise InputFileError(f"{folder}: cannot be read: {error.strerror}") from error
    return found
