"""Lines of memory that training frameworks print: what each says, in its framework's own units and words.

Megatron-LM's `report_memory`, Megatron-Bridge, torchtitan's metrics, DeepSpeed's `see_memory_usage` and
timers, nanotron, picotron, onnxruntime's training and NeMo. Lines may have colours and what a launcher puts
before them.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from ...units import GIB, MIB
from ..base.series_record import MOST_BYTES, RecordError, show_cell

_GB = 10**9
COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")
"""An escape sequence that colours what follows it."""
_NUMBER = r"(\d[\d.]{0,40})"
_MEGATRON = re.compile(r"\[Rank (\d{1,9})\] ?(.{0,200}?) ?memory \((MB|GB)\) \| (.{1,2000})")
_MEGATRON_STEP = re.compile(r"after (\d{1,15}) iterations")
_TORCHTITAN = re.compile(rf"\bstep:\s*(\d{{1,15}})\s.{{0,200}}?\bmemory:\s*{_NUMBER}GiB\({_NUMBER}%\)")
_DEEPSPEED = re.compile(
    rf"\bMA {_NUMBER} GB\s{{1,80}}Max_MA {_NUMBER} GB\s{{1,80}}CA {_NUMBER} GB\s{{1,80}}Max_CA {_NUMBER} GB"
)
_NANOTRON = re.compile(rf"\bMemory usage: {_NUMBER}MiB\. Peak allocated:? {_NUMBER}MiB")
_PICOTRON = re.compile(rf"\bStep:\s*(\d{{1,15}})\s.{{0,400}}?\bMemory usage:\s*{_NUMBER}GB")
_DEEPSPEED_TIMER = re.compile(
    rf"\bglobal_step=(\d{{1,15}}), .{{0,200}}?\bMemAllocated={_NUMBER}GB, MaxMemAllocated={_NUMBER}GB"
)
_DEEPSPEED_USAGE = re.compile(
    rf"\bmem_allocated: {_NUMBER} GB \| max_mem_allocated: {_NUMBER} GB \| cache_allocated: {_NUMBER} GB"
)
_ONNXRUNTIME = re.compile(
    rf"\[(\d{{1,9}})/\d{{1,9}}\] step (\d{{1,15}}) memory \(MiB\) \| .{{0,200}}?"
    rf"\| allocated: {_NUMBER} \| .{{0,100}}?\| cached: {_NUMBER}(?: |$)"
)
_NEMO = re.compile(rf"\bon_train_batch_end rank: (\d{{1,9}}) mem: {_NUMBER} / {_NUMBER}")
_OOMPTIMIZER = re.compile(rf"\[CUDA RAM CURRENT: {_NUMBER}MB\] \[CUDA RAM MAX: {_NUMBER}MB\]")
_BEFORE_RELEASE = re.compile(
    r"\brank:(\d{1,9}), (?:Before|After) memory release - Allocated: (\d{1,18}), Reserved: (\d{1,18})"
)
_HINTS = ("emory", "mem", "MA ", "MemAllocated", "CUDA RAM")
"""Words of which every line of memory has one; to look for them is much quicker than for the lines."""
_RANK = re.compile(r"\[(?:rank ?|Rank |default)(\d{1,9})\]|^\s*(\d{1,9}): ")


class MemoryLine(NamedTuple):
    """What one line says; None is what it does not."""

    rank: int | None
    step: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    used_bytes: int | None = None


def parse_memory_line(line: str) -> MemoryLine | None:
    """Return what a line says of memory, or None where it is no line of memory of a framework that is known.

    Raises:
        RecordError: It is one, and a figure in it is none.
    """
    if not any(map(line.__contains__, _HINTS)):
        return None
    text = COLOUR.sub("", line)
    for pattern, parse in _PARSERS:
        match = pattern.search(text)
        if match is not None:
            return parse(match)
    return None


def _parse_megatron(match: re.Match[str]) -> MemoryLine:
    """Megatron-LM counts MiB and calls them MB; Megatron-Bridge counts 10^9 and calls them GB."""
    unit = MIB if match[3] == "MB" else _GB
    figures = dict(part.partition(":")[::2] for part in match[4].split("|"))
    known = {name.strip(): value.strip() for name, value in figures.items()}
    step = _MEGATRON_STEP.search(match[2])
    allocated, reserved = (
        known.get(name, known.get(f"mem-{name}-gigabytes")) for name in ("allocated", "reserved")
    )
    if allocated is None and reserved is None:
        raise RecordError("line", f"{show_cell(match[4])} has neither allocated nor reserved")
    return MemoryLine(
        int(match[1]),
        None if step is None else int(step[1]),
        _size(allocated, unit),
        _size(reserved, unit),
        _size(known.get("total device memory used"), unit),
    )


def _parse_torchtitan(match: re.Match[str]) -> MemoryLine:
    """What it calls memory is the most that was reserved since its line before."""
    return MemoryLine(find_rank(match.string), int(match[1]), reserved_bytes=_size(match[2], GIB))


def _parse_deepspeed(match: re.Match[str]) -> MemoryLine:
    return MemoryLine(
        find_rank(match.string), allocated_bytes=_size(match[1], GIB), reserved_bytes=_size(match[3], GIB)
    )


def _parse_nanotron(match: re.Match[str]) -> MemoryLine:
    return MemoryLine(find_rank(match.string), allocated_bytes=_size(match[1], MIB))


def _parse_picotron(match: re.Match[str]) -> MemoryLine:
    """What it calls memory usage is reserved, in 10^9 bytes."""
    return MemoryLine(find_rank(match.string), int(match[1]), reserved_bytes=_size(match[2], _GB))


def _parse_deepspeed_timer(match: re.Match[str]) -> MemoryLine:
    return MemoryLine(find_rank(match.string), int(match[1]), allocated_bytes=_size(match[2], GIB))


def _parse_onnxruntime(match: re.Match[str]) -> MemoryLine:
    """What it calls cached is reserved (`torch.cuda.memory_cached`, an older name)."""
    return MemoryLine(int(match[1]), int(match[2]), _size(match[3], MIB), _size(match[4], MIB))


def _parse_nemo(match: re.Match[str]) -> MemoryLine:
    """The second figure is the most that was reserved since the start, not what is."""
    return MemoryLine(int(match[1]), allocated_bytes=_size(match[2], GIB))


def _parse_oomptimizer(match: re.Match[str]) -> MemoryLine:
    return MemoryLine(find_rank(match.string), allocated_bytes=_size(match[1], MIB))


def _parse_release(match: re.Match[str]) -> MemoryLine:
    return MemoryLine(int(match[1]), allocated_bytes=_size(match[2], 1), reserved_bytes=_size(match[3], 1))


_PARSERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], MemoryLine]], ...] = (
    (_MEGATRON, _parse_megatron),
    (_TORCHTITAN, _parse_torchtitan),
    (_DEEPSPEED, _parse_deepspeed),
    (_NANOTRON, _parse_nanotron),
    (_PICOTRON, _parse_picotron),
    (_ONNXRUNTIME, _parse_onnxruntime),
    (_DEEPSPEED_TIMER, _parse_deepspeed_timer),
    (_DEEPSPEED_USAGE, _parse_deepspeed),
    (_NEMO, _parse_nemo),
    (_OOMPTIMIZER, _parse_oomptimizer),
    (_BEFORE_RELEASE, _parse_release),
)


def find_rank(text: str) -> int | None:
    """Return the rank that a launcher or the program puts before a line."""
    match = _RANK.search(text[:200])
    return None if match is None else int(match[1] or match[2])


def _size(text: str | None, unit: int) -> int | None:
    if text is None:
        return None
    try:
        size = round(float(text) * unit)
    except (ValueError, OverflowError) as error:
        raise RecordError("figure", f"{show_cell(text)} is no figure of memory") from error
    if not 0 <= size < MOST_BYTES:
        raise RecordError("bytes", f"{size:,} bytes, expected memory of a device")
    return size
