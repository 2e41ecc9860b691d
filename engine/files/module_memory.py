"""Readers of profiles by module, and where the files of a run are."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from ..errors import InputFileError
from ..model import RankCoordinates
from ..model.sample import MEMORY_KINDS, KindBytes, LayoutEntry, MemoryKind, MemoryMoment, ModuleMemory
from ..soundness import make_json_decoder
from ..units import MIB, format_bytes
from .base.input_file import open_input_file, read_input_file, show_path
from .base.packed_file import CUT_NOTE, LineFile, PackedFile
from .base.series_reader import MOST_BYTES, MOST_SECONDS, LeftOut, show_cell
from .framework.internlm_log import COMPUTED_NOTE, read_rank

SCHEMA = "vramscope.modules/1"
SCHEMA_MARK = b'"schema":"vramscope.modules/'
# Names in a path; the deepest models have a dozen.
MOST_DEPTH = 64
_LONGEST_LINE = 1 << 26


class _Header(RankCoordinates, frozen=True, kw_only=True):
    rank: int | None = None  # type: ignore[assignment] # a process that is no rank has none
    schema: str = ""
    device: str | None = None
    is_simulated: bool = False


_HEADERS = make_json_decoder(_Header)
_MOMENTS = make_json_decoder(MemoryMoment)


def read_exact(path: Path) -> ModuleMemory:
    """Read the moments of a profile of ours; lines that cannot be used are counted in a note."""
    file = LineFile(path, longest_line=_LONGEST_LINE)
    memory = _read_lines(file.numbered_lines(), show_path(path))
    notes = (CUT_NOTE, *memory.notes) if file.is_cut else memory.notes
    return msgspec.structs.replace(memory, rank=memory.rank or read_rank(path), notes=notes)


def read_exact_text(text: str, name: str) -> ModuleMemory:
    """Read the moments of a profile that a running process sent."""
    return _read_lines(iter(enumerate(text.splitlines(), 1)), name)


def _read_lines(lines: Iterator[tuple[int, str]], name: str) -> ModuleMemory:
    left_out = LeftOut(name)
    header = _read_header(name, next(lines, (1, ""))[1])
    moments = tuple(_read_moments(lines, left_out))
    if not moments:
        raise InputFileError(f"{name}: no usable moment; {left_out.first or 'it is empty'}")
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


EXACT_NAME = "module_memory.jsonl"
LOG_NAME = "memory.log"
_CHART_PATTERN = "*_sunburst.html"
_HEAD_BYTES = 1 << 16
_MOST_BYTES = 1 << 30
_MOST_FOLDERS = 100_000
_EXPECTED = (
    f"expected {LOG_NAME} of SimpleMemoryProfiler, {EXACT_NAME} next to it, or a chart such as "
    "params_memory_sunburst.html"
)


def is_module_memory(path: Path) -> bool:
    return _find_reader(path) is not None


def read_module_memory(path: Path) -> ModuleMemory:
    """Read a file of a profile, of any kind, or the folder of its charts."""
    if path.is_dir():
        return read_charts(list_charts(path))
    read = _find_reader(path)
    if read is None:
        raise InputFileError(f"{show_path(path)}: no memory by module in it; {_EXPECTED}")
    return read(path)


def find_profiles(path: Path) -> list[Path]:
    """Return the profile of each rank below a folder, or the file itself; exact bytes before rounded ones.

    If there are only charts, the folder of a rank's charts is its profile.
    """
    if not path.is_dir():
        return [path]
    named: list[Path] = []
    try:
        found = {file.parent: file for file in _list_files(path, LOG_NAME)}
        found |= {file.parent: file for file in _list_files(path, EXACT_NAME)}
        if not found:
            named = _list_files(path, _CHART_PATTERN)
            found = {folder: folder for folder in {file.parent for file in named} if list_charts(folder)}
    except OSError as error:
        raise InputFileError(f"{show_path(path)}: cannot be read: {error.strerror or error}") from error
    if not found:
        empty = f", and {min(named).name} has no such chart" if named else ""
        raise InputFileError(f"{show_path(path)}: no profile by module in this folder{empty}; {_EXPECTED}")
    return [found[folder] for folder in sorted(found, key=_order)]


def list_charts(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.glob(_CHART_PATTERN)) if file.is_file() and _is_chart(file)]


def _is_chart(path: Path) -> bool:
    try:
        return _find_reader(path) is read_chart
    except InputFileError:
        return False


def _list_files(folder: Path, name: str) -> list[Path]:
    return [file for _, file in zip(range(_MOST_FOLDERS), folder.rglob(name), strict=False) if file.is_file()]


def _order(folder: Path) -> tuple[str, int, str]:
    """Sort rank 2 before rank 10."""
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


# The page has its data as strict JSON in `var option_{32 hex} = {…};`. Nothing of the page is executed.
OPTION_MARK = b"var option_"
_OPTION = re.compile(rb"var option_[0-9a-f]{32} = (?=\{)")
_OPTION_END = re.compile(rb"\n *\}(?=;)")
_LIMIT_BYTES = 64 * MIB
# All leaves together: each path has the names of all layers above it.
_MOST_PATH_BYTES = 64 * MIB
_KINDS: dict[str, MemoryKind] = {
    "params_memory_sunburst": "params",
    "grads_memory_sunburst": "grads",
    "activation_memory_sunburst": "activation",
}
_PARTS: dict[str, MemoryKind] = {
    "os_params_mem": "os_params",
    "os_state_mem": "os_state",
    "params": "params",
    "grads": "grads",
    "os_params": "os_params",
    "os_state": "os_state",
    "activation": "activation",
}
_ROOTS = {"params": "param_mem", "grads": "grad_mem"}
_ROUNDED = "sizes are whole MiB, rounded down for each layer, so small ones are 0; memory.log is more exact"


class _Node(msgspec.Struct, frozen=True):
    name: str
    value: float | None = None
    children: "tuple[_Node, ...]" = ()


class _Series(msgspec.Struct, frozen=True):
    data: tuple[_Node, ...]
    name: str = ""


class _Option(msgspec.Struct, frozen=True):
    series: tuple[_Series, ...]


def read_chart(path: Path) -> ModuleMemory:
    """Read the tree of a chart, or the sums of a summary."""
    series = _read_series(path)
    layouts: dict[str, list[LayoutEntry]] = {}
    path_bytes = 0
    for node in series.data:
        kind = _KINDS.get(series.name) or _PARTS.get(node.name)
        if kind is None:
            raise InputFileError(
                f"{show_path(path)}: the chart is {series.name!a}; expected {', '.join(_KINDS)}, "
                "os_memory_sunburst or summary_sunburst"
            )
        prefix = _ROOTS.get(kind, "") if series.name in _KINDS else ""
        entries = layouts.setdefault(kind, [])
        for entry in _list_entries(node, prefix):
            entries.append(entry)
            path_bytes += len(entry.path)
            if path_bytes > _MOST_PATH_BYTES:
                raise InputFileError(
                    f"{show_path(path)}: the paths of its layers exceed "
                    f"{format_bytes(_MOST_PATH_BYTES)} in total; no model has such names"
                )
    kinds = {
        kind: KindBytes(sum(e.computed_bytes or 0 for e in entries)) for kind, entries in layouts.items()
    }
    moment = MemoryMoment(
        tag="last step",
        time_s=0.0,
        kinds=kinds,
        layouts={kind: tuple(entries) for kind, entries in layouts.items()},
    )
    notes = (COMPUTED_NOTE, _ROUNDED)
    return ModuleMemory(format="InternLM chart", rank=read_rank(path), moments=(moment,), notes=notes)


def read_charts(paths: Sequence[Path]) -> ModuleMemory:
    """Read the charts of one profile: a tree of each kind, or the sums of a summary for kinds without one."""
    charts = [read_chart(path) for path in paths]
    # A summary has the sum of each kind alone: what has a tree takes its place.
    moments = sorted((chart.moments[0] for chart in charts), key=lambda it: len(it.layouts), reverse=True)
    kinds = {kind: size for moment in moments for kind, size in moment.kinds.items()}
    layouts = {kind: entries for moment in moments for kind, entries in moment.layouts.items()}
    missing = [kind for kind in MEMORY_KINDS if kind not in kinds]
    notes = (f"no chart has {', '.join(missing)}",) if missing else ()
    moment = msgspec.structs.replace(moments[0], kinds=kinds, layouts=layouts)
    return msgspec.structs.replace(charts[0], moments=(moment,), notes=(*charts[0].notes, *notes))


def _read_series(path: Path) -> _Series:
    page = read_input_file(path, _LIMIT_BYTES)
    begin = _OPTION.search(page)
    end = None if begin is None else _OPTION_END.search(page, begin.end())
    if begin is None or end is None:
        raise InputFileError(f"{show_path(path)}: no data of a pyecharts chart in the page")
    try:
        option = msgspec.json.decode(page[begin.end() : end.end()], type=_Option)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputFileError(f"{show_path(path)}: invalid chart data: {error}") from error
    if not option.series or not option.series[0].data:
        raise InputFileError(f"{show_path(path)}: the chart is empty")
    return option.series[0]


def _list_entries(node: _Node, prefix: str, depth: int = 0) -> Iterator[LayoutEntry]:
    """Yield the leaves below a node, or the node itself."""
    path = f"{prefix}.{node.name}" if prefix else node.name
    if not node.children or depth >= MOST_DEPTH:
        value = node.value or 0
        yield LayoutEntry(path, round(value) * MIB if abs(value) < MOST_BYTES / MIB else None, None)
    for child in node.children if depth < MOST_DEPTH else ():
        yield from _list_entries(child, path, depth + 1)


# Sizes have two decimals of a MiB: the entries of a tree add up to its total within as many times 5 KiB.
STATE_MARK = b"Memory State:"
_PART = re.compile(r"\b([a-z_]{1,40})_memory: (-?\d[\d.]{0,40}) MB")
_SECTION = re.compile(r"(params|grads|os_params|os_state|activation_base)_layout:")
_LAYER = re.compile(
    r"layer: (\S{1,4000}), layer_mem: (-?\d{1,20}\.\d\d) MB, total_mem: (-?\d{1,20}\.\d\d) MB"
)
_ELIDED = re.compile(r"\.{3,}")
_CREATION = {"params", "grads", "os_params"}
# Name of the part of a layer's own total that the lines of the file do not account for.
NOT_LISTED = "not listed"
# By how much a size with two decimals of a MiB may be off.
_ROUNDED_BYTES = MIB // 200 + 1


def read_log(path: Path) -> ModuleMemory:
    """Read the states of a log; lines and states that cannot be used are counted in a note."""
    file = LineFile(path)
    left_out = LeftOut(show_path(path))
    states: list[_State] = []
    for number, line in file.numbered_lines():
        text = line.strip()
        if text.encode("utf-8", "replace") == STATE_MARK:
            states.append(_State(number))
        elif states and text:
            states[-1].read_line(number, text, left_out)
    moments = _finish(states, left_out)
    if not moments:
        reason = left_out.first or 'expected "Memory State:", a time and a total_memory in MB'
        raise InputFileError(f"{show_path(path)}: no usable state; {reason}")
    notes = (COMPUTED_NOTE, *((CUT_NOTE,) if file.is_cut else ()), *left_out.notes())
    return ModuleMemory(format="InternLM log", rank=read_rank(path), moments=moments, notes=notes)


class _State:
    def __init__(self, line: int) -> None:
        self.line = line
        self.time_s: float | None = None
        self.parts: dict[str, int] = {}
        self.layouts: dict[str, list[LayoutEntry]] = {}
        # By kind: what a layer and all below it have, as its line says.
        self._totals: dict[str, dict[str, int]] = {}
        self._kind = ""

    def read_line(self, number: int, text: str, left_out: LeftOut) -> None:
        section = _SECTION.fullmatch(text)
        if section is not None:
            self._kind = section.group(1).removesuffix("_base")
            self.layouts.setdefault(self._kind, [])
        elif text.startswith("layer:"):
            self._read_layer(number, text, left_out)
        elif self.time_s is None and text.startswith("time:"):
            self.time_s = _read_time(text.removeprefix("time:").strip())
        elif found := _PART.findall(text):
            for name, figure in found:
                size = _read_size(figure)
                if size is not None:
                    self.parts.setdefault(name, size)
        elif not (text.startswith("---") or _ELIDED.fullmatch(text)):
            left_out.add("line", f"line {number}", f"{show_cell(text)} is not a line of a memory.log")

    def _read_layer(self, number: int, text: str, left_out: LeftOut) -> None:
        match = _LAYER.fullmatch(text)
        own, total = (
            (None, None) if match is None else (_read_size(match.group(2)), _read_size(match.group(3)))
        )
        if match is None or own is None or total is None or match.group(1).count(".") >= MOST_DEPTH:
            left_out.add("layer", f"line {number}", f"{show_cell(text)}, expected a layer with sizes in MB")
        elif not self._kind:
            left_out.add("section", f"line {number}", "a layer before its layout's name")
        else:
            self.layouts[self._kind].append(LayoutEntry(match.group(1), own, None))
            self._totals.setdefault(self._kind, {})[match.group(1)] = total

    def complete_layout(self, kind: str) -> tuple[LayoutEntry, ...]:
        """Return the entries of a kind, with what its layers have beyond the lines in the file.

        A log may be an excerpt: every line has the total of its layer, and the summary that of the kind.
        """
        entries = self.layouts[kind]
        totals = dict(self._totals.get(kind, {}))
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
    """Name the moments by the order in which the profiler writes them."""
    moments: list[MemoryMoment] = []
    steps = 0
    before = 0
    largest = 0
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
