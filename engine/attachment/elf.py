"""Symbols of a program or library file: enough of ELF to find a function without a debugger.

Layout: `elf(5)`. Only 64-bit little-endian files are understood, which are those of x86-64 and AArch64.
"""

import mmap
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAGIC_64_LITTLE = b"\x7fELF\x02\x01"
_SEGMENT_LOADED = 1
_SECTION_DYNAMIC_SYMBOLS = 11


class LoadedSegment(NamedTuple):
    """A part of the file that is mapped to be run."""

    offset: int
    """Bytes from the start of the file."""
    address: int
    """Where it wants to be, before the loader has shifted the whole file."""
    size_bytes: int


class ElfFile:
    """A program or library, open for reading.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not an ELF file of the kind that is understood.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            if self._data[:6] != _MAGIC_64_LITTLE:
                raise ValueError(f"{path}: not a 64-bit little-endian ELF file")
            header = _HEADER.unpack_from(self._data)
            self._segments_at, self._sections_at = header[5], header[6]
            self._segment_count, self._section_count = header[10], header[12]
            self.segments = tuple(self._list_segments())
        except (ValueError, struct.error) as error:
            self._data.close()
            raise ValueError(str(error)) from None

    def __enter__(self) -> "ElfFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._data.close()

    def find_symbols(self, names: Collection[str]) -> dict[str, int]:
        """Return the addresses of functions and data that the file offers to others, as far as it has them.

        Raises:
            ValueError: Its tables lead outside it.
        """
        wanted = {name.encode() + b"\0": name for name in names}
        longest = max(map(len, wanted))
        found: dict[str, int] = {}
        try:
            for symbols, texts in self._list_symbol_tables():
                for place, _, _, section, address, _ in _SYMBOL.iter_unpack(symbols):
                    text = texts[place : place + longest]
                    name = wanted.get(text[: text.find(b"\0") + 1])
                    if name is not None and section != 0:
                        found[name] = address
        except struct.error as error:
            raise ValueError(f"broken symbol table: {error}") from None
        return found

    def read_word(self, address: int) -> int | None:
        """Return the 64-bit word that the file holds for an address, or None where it holds none."""
        for segment in self.segments:
            place = address - segment.address
            if 0 <= place <= segment.size_bytes - 8:
                return int.from_bytes(
                    self._data[segment.offset + place : segment.offset + place + 8], "little"
                )
        return None

    def _list_segments(self) -> Iterator[LoadedSegment]:
        for index in range(self._segment_count):
            place = self._segments_at + index * _PROGRAM_HEADER.size
            kind, _, offset, address, _, size, _, _ = self._unpack(_PROGRAM_HEADER, place)
            if kind == _SEGMENT_LOADED:
                yield LoadedSegment(offset, address, size)

    def _list_symbol_tables(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield each table of dynamic symbols with the texts that it names them by."""
        for index in range(self._section_count):
            _, kind, _, _, offset, size, linked, _, _, _ = self._section(index)
            if kind == _SECTION_DYNAMIC_SYMBOLS and linked < self._section_count:
                _, _, _, _, texts_at, texts_size, _, _, _, _ = self._section(linked)
                yield self._data[offset : offset + size], self._data[texts_at : texts_at + texts_size]

    def _section(self, index: int) -> tuple[int, ...]:
        return self._unpack(_SECTION_HEADER, self._sections_at + index * _SECTION_HEADER.size)

    def _unpack(self, layout: struct.Struct, place: int) -> tuple[int, ...]:
        """Return the numbers at a place in the file.

        Raises:
            ValueError: The place is outside it.
        """
        if place + layout.size > len(self._data):
            raise ValueError(f"a table of the file leads outside it (byte {place} of {len(self._data)})")
        numbers: tuple[int, ...] = layout.unpack_from(self._data, place)
        return numbers
