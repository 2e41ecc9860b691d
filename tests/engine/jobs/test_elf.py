"""Symbols are found in real files, and garbage is refused by one kind of error."""

import contextlib
import ctypes
import os
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.engine.jobs.interpreter import ElfFile, find_interpreter
from vramscope.engine.sources.processes import list_mapped_files, read_status

NAMES = ("mmap", "Py_Version")


def _own_libc() -> bytes:
    path = next(
        file.path for file in list_mapped_files(os.getpid()) if Path(file.path).name.startswith("libc")
    )
    return Path(path).read_bytes()


def test_the_functions_of_this_very_process_are_where_the_loader_says() -> None:
    found = find_interpreter(read_status(os.getpid())).functions
    library = ctypes.pythonapi
    for name in ("Py_AddPendingCall", "PyRun_SimpleString"):
        assert found[name] == ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert found["mmap"] == ctypes.cast(ctypes.CDLL(None).mmap, ctypes.c_void_p).value


@given(st.binary(min_size=1, max_size=300))
def test_what_is_no_program_is_refused(data: bytes) -> None:
    _expect_an_answer_or_refusal(data)


@settings(max_examples=60, deadline=None)
@given(
    place=st.integers(0, 63),
    word=st.sampled_from([0, 1, 0xFF, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF]),
    kept=st.integers(64, 4096),
)
def test_a_program_with_a_broken_header_is_refused(place: int, word: int, kept: int) -> None:
    data = bytearray(_own_libc()[: kept * 512])
    data[place : place + 8] = struct.pack("<Q", word)
    _expect_an_answer_or_refusal(bytes(data))


def _expect_an_answer_or_refusal(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(ValueError), ElfFile(Path(file.name)) as elf:
            assert set(elf.find_symbols(NAMES)) <= set(NAMES)


def test_a_file_that_is_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(ValueError, match="empty"):
        ElfFile(tmp_path / "empty")
