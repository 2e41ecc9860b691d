"""Reading a snapshot file: the decoding process is started, bounded, and its end explained."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from ...child_processes import find_root
from ...errors import InputFileError
from ...model.memory_snapshot import MemorySnapshot
from ...units import GIB, MIB, format_bytes
from ..base.input_file import open_input_file, show_path
from .wire import GZIP_MARK, Reply, decode_reply

SIZE_LIMIT_BYTES = 16 * GIB
"""A larger file is refused before it is read."""
MEMORY_PER_BYTE = 16
"""Bytes of memory a byte of the file may take; a million blocks with stacks were measured at 4."""
MEMORY_PER_PACKED_BYTE = 400
"""The same for a compressed file."""
MEMORY_BASE_BYTES = 256 * MIB
SECONDS_BASE = 60
BYTES_PER_SECOND = MIB
_BOOT = "import sys; sys.path[:] = sys.argv[3:]; from {package}.decoder import main; main()"


def read_memory_snapshot(path: Path) -> MemorySnapshot:
    """Read a PyTorch memory snapshot, in any dialect, compressed by gzip or not.

    The file is unpickled in a process of its own that loads no globals and whose memory is bounded by the
    size of the file.

    Raises:
        InputFileError: The file cannot be read or is no snapshot; the text says where and what was expected.
    """
    with open_input_file(path, SIZE_LIMIT_BYTES) as (file, size_bytes):
        # The position belongs to the process that reads on, so it stays at the start.
        is_packed = os.pread(file.fileno(), 2, 0) == GZIP_MARK
        limit_bytes = MEMORY_BASE_BYTES + size_bytes * (
            MEMORY_PER_PACKED_BYTE if is_packed else MEMORY_PER_BYTE
        )
        reply = _decode(path, file, limit_bytes, SECONDS_BASE + size_bytes // BYTES_PER_SECOND)
    if reply.is_out_of_memory:
        raise InputFileError(
            f"{show_path(path)}: reading it would take more than {format_bytes(limit_bytes)} of memory; "
            f"a snapshot of {format_bytes(size_bytes)} needs less, so the file is damaged, or memory is short"
        )
    if reply.snapshot is None:
        raise InputFileError(f"{show_path(path)}: {reply.refusal}")
    return msgspec.structs.replace(reply.snapshot, path=path)


def _decode(path: Path, file: BinaryIO, limit_bytes: int, limit_s: int) -> Reply:
    command = [sys.executable, "-P", "-E", "-S", "-c", _BOOT.format(package=__package__)]
    places = [place for place in sys.path if Path(place).is_absolute()]
    arguments = [str(limit_bytes), str(limit_s), str(find_root()), *places]
    result = subprocess.run([*command, *arguments], stdin=file, capture_output=True, check=False)
    try:
        return decode_reply(result.stdout)
    except msgspec.DecodeError as error:
        raise InputFileError(f"{show_path(path)}: {_explain_end(result)}") from error


def _explain_end(result: subprocess.CompletedProcess[bytes]) -> str:
    if result.returncode == -signal.SIGSEGV:
        return "reading it ended in a crash of Python's own unpickler; the file is damaged or made to do that"
    if result.returncode == -signal.SIGXCPU:
        return "reading it took longer than a snapshot of that size can take; the file is damaged"
    if result.returncode == -signal.SIGKILL:
        return "reading it was ended by the system, probably for want of memory; free some and try again"
    told = result.stderr.decode(errors="replace").strip().splitlines()
    last = ascii(told[-1])[1:-1] if told else "nothing was said"
    return f"reading it failed with status {result.returncode}: {last}"
