"""Reader of `module_memory.jsonl`: a header, and a moment a line, as `SimpleMemoryProfiler` writes them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from ...decoders import make_json_decoder
from ...errors import InputFileError
from ...model import RankCoordinates
from ...model.module_memory import KindBytes, MemoryMoment, ModuleMemory
from ..base.input_file import show_path
from ..base.packed_file import CUT_NOTE
from ..base.series_record import MOST_BYTES, MOST_SECONDS, LeftOut
from ..base.text_lines import LineFile
from ..framework.internlm_log import read_rank

SCHEMA = "vramscope.modules/1"
SCHEMA_MARK = b'"schema":"vramscope.modules/'
MOST_DEPTH = 64
"""Names in a path; the deepest models have a dozen."""
_LONGEST_LINE = 1 << 26


class _Header(RankCoordinates, frozen=True, kw_only=True):
    """The first line."""

    rank: int | None = None  # type: ignore[assignment] # a process that is no rank has none
    schema: str = ""
    device: str | None = None
    is_simulated: bool = False


_HEADERS = make_json_decoder(_Header)
_MOMENTS = make_json_decoder(MemoryMoment)


def read_exact(path: Path) -> ModuleMemory:
    """Read the moments of a profile; lines that cannot be used are counted in a note.

    Raises:
        InputFileError: The file cannot be read, is of another version, or has no moment in it.
    """
    file = LineFile(path, longest_line=_LONGEST_LINE)
    memory = _read_lines(file.numbered_lines(), show_path(path))
    notes = (CUT_NOTE, *memory.notes) if file.is_cut else memory.notes
    return msgspec.structs.replace(memory, rank=memory.rank or read_rank(path), notes=notes)


def read_exact_text(text: str, name: str) -> ModuleMemory:
    """Read the moments of a profile that is no file, as a running process tells them.

    Args:
        text: What would stand in the file.
        name: Of what it is, for what is wrong with it.

    Raises:
        InputFileError: It is of another version, or has no moment in it.
    """
    return _read_lines(iter(enumerate(text.splitlines(), 1)), name)


def _read_lines(lines: Iterator[tuple[int, str]], name: str) -> ModuleMemory:
    left_out = LeftOut(name)
    header = _read_header(name, next(lines, (1, ""))[1])
    moments = tuple(_read_moments(lines, left_out))
    if not moments:
        raise InputFileError(f"{name}: no moment in it can be used; {left_out.first or 'it is empty'}")
    return ModuleMemory(
        format="module memory",
        rank=_find_rank(header),
        device=header.device,
        is_simulated=header.is_simulated,
        moments=moments,
        notes=left_out.notes(),
    )


def _find_rank(header: _Header) -> RankCoordinates | None:
    """Return where the process stood, by its own words."""
    if header.rank is None:
        return None
    return RankCoordinates(**{name: getattr(header, name) for name in RankCoordinates.__struct_fields__})


def _read_header(name: str, line: str) -> _Header:
    try:
        header = _HEADERS.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise InputFileError(f"{name}: line 1: {error}; expected the header of {SCHEMA}") from error
    if header.schema != SCHEMA:
        raise InputFileError(f"{name}: line 1: schema is {header.schema!a}; this vramscope reads {SCHEMA}")
    return header


def _read_moments(lines: Iterator[tuple[int, str]], left_out: LeftOut) -> Iterator[MemoryMoment]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            moment = _MOMENTS.decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            left_out.add("syntax", f"line {number}", str(error))
            continue
        if _is_plausible(moment):
            yield moment
        else:
            left_out.add("figures", f"line {number}", "a size, time or path out of range")


def _is_plausible(moment: MemoryMoment) -> bool:
    kinds = [*moment.kinds.values(), KindBytes(moment.allocated_bytes)]
    sizes = [size for kind in kinds for size in (kind.computed_bytes, kind.measured_bytes)]
    for entries in moment.layouts.values():
        sizes += [size for entry in entries for size in (entry.computed_bytes, entry.measured_bytes)]
        if any(entry.path.count(".") >= MOST_DEPTH for entry in entries):
            return False
    is_timely = -MOST_SECONDS < moment.time_s < MOST_SECONDS
    return is_timely and all(size is None or -MOST_BYTES < size < MOST_BYTES for size in sizes)
