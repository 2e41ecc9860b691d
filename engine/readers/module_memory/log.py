"""Reader of the trees in the `memory.log` of InternLM and InternEvo, whose figures are computed from shapes.

Sizes have two decimals of a MiB: the entries of a tree add up to its total within as many times 5 KiB.
"""

import re
from pathlib import Path

from ...errors import InputFileError
from ...model.module_memory import MEMORY_KINDS, KindBytes, LayoutEntry, MemoryMoment, ModuleMemory
from ...units import MIB
from ..input_file import show_path
from ..internlm_log import COMPUTED_NOTE, read_rank
from ..packed_file import CUT_NOTE
from ..series_record import MOST_BYTES, MOST_SECONDS, LeftOut, show_cell
from ..text_lines import LineFile
from .exact import MOST_DEPTH

STATE_MARK = b"Memory State:"
_PART = re.compile(r"\b([a-z_]{1,40})_memory: (-?\d[\d.]{0,40}) MB")
_SECTION = re.compile(r"(params|grads|os_params|os_state|activation_base)_layout:")
_LAYER = re.compile(r"layer: (\S{1,4000}), layer_mem: (-?\d{1,20}\.\d\d) MB, total_mem: -?\d{1,20}\.\d\d MB")
_ELIDED = re.compile(r"\.{3,}")
_CREATION = {"params", "grads", "os_params"}


def read_log(path: Path) -> ModuleMemory:
    """Read the states of a log; lines and states that cannot be used are counted in a note.

    Raises:
        InputFileError: The file cannot be read, or has no state in it.
    """
    file, left_out = LineFile(path), LeftOut()
    states: list[_State] = []
    for number, line in file.numbered_lines():
        text = line.strip()
        if text.encode("utf-8", "replace") == STATE_MARK:
            states.append(_State(number))
        elif states and text:
            states[-1].take(number, text, left_out)
    moments = _finish(states, left_out)
    if not moments:
        reason = left_out.first or 'expected "Memory State:", a time and a total_memory in MB'
        raise InputFileError(f"{show_path(path)}: no state in it can be used; {reason}")
    notes = (COMPUTED_NOTE, *((CUT_NOTE,) if file.is_cut else ()), *left_out.notes())
    return ModuleMemory(format="InternLM log", rank=read_rank(path), moments=moments, notes=notes)


class _State:
    """The lines of one state."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.time_s: float | None = None
        self.parts: dict[str, int] = {}
        self.layouts: dict[str, list[LayoutEntry]] = {}
        self._entries: list[LayoutEntry] | None = None

    def take(self, number: int, text: str, left_out: LeftOut) -> None:
        """Take a line that belongs to it."""
        section = _SECTION.fullmatch(text)
        if section is not None:
            kind = section.group(1).removesuffix("_base")
            self._entries = self.layouts.setdefault(kind, [])
        elif text.startswith("layer:"):
            self._take_layer(number, text, left_out)
        elif self.time_s is None and text.startswith("time:"):
            self.time_s = _read_time(text.removeprefix("time:").strip())
        elif found := _PART.findall(text):
            for name, figure in found:
                size = _read_size(figure)
                if size is not None:
                    self.parts.setdefault(name, size)
        elif not (text.startswith("---") or _ELIDED.fullmatch(text)):
            left_out.add("line", f"line {number}", f"{show_cell(text)} is no line of a memory.log")

    def _take_layer(self, number: int, text: str, left_out: LeftOut) -> None:
        match = _LAYER.fullmatch(text)
        size = None if match is None else _read_size(match.group(2))
        if match is None or size is None or match.group(1).count(".") >= MOST_DEPTH:
            left_out.add("layer", f"line {number}", f"{show_cell(text)}, expected a layer with sizes in MB")
        elif self._entries is None:
            left_out.add("section", f"line {number}", "a layer before the name of its layout")
        else:
            self._entries.append(LayoutEntry(match.group(1), size, None))


def _finish(states: list[_State], left_out: LeftOut) -> tuple[MemoryMoment, ...]:
    """Return the moments, named by the order in which the profiler writes them."""
    moments: list[MemoryMoment] = []
    steps, before, largest = 0, 0, 0
    for state in states:
        if state.time_s is None or not any(kind in state.parts for kind in MEMORY_KINDS):
            left_out.add("state", f"line {state.line}", "a state without a time or without sizes")
            continue
        activation = state.parts.get("activation", 0)
        largest = max(largest, activation)
        steps += "os_state" in state.layouts
        if state.layouts.keys() >= _CREATION and "os_state" not in state.layouts:
            tag = "creation"
        elif "os_state" in state.layouts:
            tag = f"step {steps}"
        else:
            tag = "forward" if activation > before else "backward"
        before = activation
        kinds: dict[str, KindBytes] = {
            kind: KindBytes(state.parts[kind]) for kind in MEMORY_KINDS if kind in state.parts
        }
        kinds["activation_peak"] = KindBytes(largest)
        layouts = {kind: tuple(entries) for kind, entries in state.layouts.items() if entries}
        moments.append(MemoryMoment(tag=tag, time_s=state.time_s, kinds=kinds, layouts=layouts))
    return tuple(moments)


def _read_time(text: str) -> float | None:
    try:
        time_s = float(text)
    except ValueError:
        return None
    return time_s if -MOST_SECONDS < time_s < MOST_SECONDS else None


def _read_size(figure: str) -> int | None:
    """Return bytes: what the profiler calls MB is MiB."""
    try:
        size = round(float(figure) * MIB)
    except (ValueError, OverflowError):
        return None
    return size if -MOST_BYTES < size < MOST_BYTES else None
