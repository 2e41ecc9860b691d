"""Reader of the trees in the `memory.log` of InternLM and InternEvo, whose figures are computed from shapes.

Sizes have two decimals of a MiB: the entries of a tree add up to its total within as many times 5 KiB.
"""

import re
from collections.abc import Collection
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
_LAYER = re.compile(
    r"layer: (\S{1,4000}), layer_mem: (-?\d{1,20}\.\d\d) MB, total_mem: (-?\d{1,20}\.\d\d) MB"
)
_ELIDED = re.compile(r"\.{3,}")
_CREATION = {"params", "grads", "os_params"}
NOT_LISTED = "not listed"
"""Name of what a layer holds by its own total and none of the lines of the file accounts for."""
_ROUNDED_BYTES = MIB // 200 + 1
"""By how much a size with two decimals of a MiB may be off."""


def read_log(path: Path) -> ModuleMemory:
    """Read the states of a log; lines and states that cannot be used are counted in a note.

    Raises:
        InputFileError: The file cannot be read, or has no state in it.
    """
    file, left_out = LineFile(path), LeftOut(show_path(path))
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
        self._totals: dict[str, dict[str, int]] = {}
        """By kind: what a layer and all below it hold, as its line says."""
        self._kind = ""

    def take(self, number: int, text: str, left_out: LeftOut) -> None:
        """Take a line that belongs to it."""
        section = _SECTION.fullmatch(text)
        if section is not None:
            self._kind = section.group(1).removesuffix("_base")
            self.layouts.setdefault(self._kind, [])
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
        own, total = (
            (None, None) if match is None else (_read_size(match.group(2)), _read_size(match.group(3)))
        )
        if match is None or own is None or total is None or match.group(1).count(".") >= MOST_DEPTH:
            left_out.add("layer", f"line {number}", f"{show_cell(text)}, expected a layer with sizes in MB")
        elif not self._kind:
            left_out.add("section", f"line {number}", "a layer before the name of its layout")
        else:
            self.layouts[self._kind].append(LayoutEntry(match.group(1), own, None))
            self._totals.setdefault(self._kind, {})[match.group(1)] = total

    def complete_layout(self, kind: str) -> tuple[LayoutEntry, ...]:
        """Return the entries of a kind, with what its layers hold beyond the lines that the file has.

        A log may be an excerpt: every line carries the total of its layer, and the summary that of the kind.
        """
        entries, totals = self.layouts[kind], dict(self._totals.get(kind, {}))
        roots = {entry.path.split(".", 1)[0] for entry in entries}
        if len(roots) == 1 and kind != "activation":  # whose layout is of another moment than the summary
            for root in roots - totals.keys():
                totals[root] = self.parts.get(kind, 0)
        listed = dict.fromkeys(totals, 0)
        terms = dict.fromkeys(totals, 1)
        for entry in entries:
            listed[entry.path] += entry.computed_bytes or 0
        for path, total in totals.items():
            above = _find_nearest(path, totals)
            if above is not None:
                listed[above] += total
                terms[above] += 1
        missing = {path: total - listed[path] for path, total in totals.items()}
        unlisted = [
            LayoutEntry(f"{path}.{NOT_LISTED}", size, None)
            for path, size in missing.items()
            if size > (terms[path] + 1) * _ROUNDED_BYTES and path.count(".") < MOST_DEPTH - 1
        ]
        return (*entries, *unlisted)


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
        layouts = {kind: state.complete_layout(kind) for kind, entries in state.layouts.items() if entries}
        moments.append(MemoryMoment(tag=tag, time_s=state.time_s, kinds=kinds, layouts=layouts))
    return tuple(moments)


def _find_nearest(path: str, layers: Collection[str]) -> str | None:
    """Return the layer above a path that is nearest to it among those that are known."""
    while "." in path:
        path = path.rpartition(".")[0]
        if path in layers:
            return path
    return None


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
