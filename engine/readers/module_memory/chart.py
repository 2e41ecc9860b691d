"""Reader of the sunbursts that InternLM's profiler draws by pyecharts: trees in whole MiB, rounded down.

The page has its data as strict JSON in `var option_{32 hex} = {…};`. Nothing of the page is executed.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ...errors import InputFileError
from ...model.module_memory import (
    MEMORY_KINDS,
    KindBytes,
    LayoutEntry,
    MemoryKind,
    MemoryMoment,
    ModuleMemory,
)
from ...units import MIB, format_bytes
from ..input_file import read_input_file, show_path
from ..internlm_log import COMPUTED_NOTE, read_rank
from ..series_record import MOST_BYTES
from .exact import MOST_DEPTH

OPTION_MARK = b"var option_"
_OPTION = re.compile(rb"var option_[0-9a-f]{32} = (?=\{)")
_OPTION_END = re.compile(rb"\n *\}(?=;)")
_LIMIT_BYTES = 64 * MIB
_MOST_PATH_BYTES = 64 * MIB
"""Each leaf has the names of all layers above it in its path; of all leaves together."""
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
_ROUNDED = "sizes are whole MiB, rounded down for each layer: small ones are 0; memory.log is more exact"


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
    """Read the tree of a chart, or the sums of a summary.

    Raises:
        InputFileError: It cannot be read, or has no such tree in it.
    """
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
                    f"{show_path(path)}: the paths of its layers are longer than "
                    f"{format_bytes(_MOST_PATH_BYTES)} together; no model has such names"
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
    """Read the charts of one profile: a tree of each kind, and the sums of a summary where there is no tree.

    Raises:
        InputFileError: One of them cannot be read, or has no such tree in it.
    """
    charts = [read_chart(path) for path in paths]
    # A summary has the sum of each kind alone: what has a tree takes its place.
    moments = sorted((chart.moments[0] for chart in charts), key=lambda it: len(it.layouts), reverse=True)
    kinds = {kind: size for moment in moments for kind, size in moment.kinds.items()}
    layouts = {kind: entries for moment in moments for kind, entries in moment.layouts.items()}
    missing = [kind for kind in MEMORY_KINDS if kind not in kinds]
    notes = (f"no chart tells {', '.join(missing)}",) if missing else ()
    moment = msgspec.structs.replace(moments[0], kinds=kinds, layouts=layouts)
    return msgspec.structs.replace(charts[0], moments=(moment,), notes=(*charts[0].notes, *notes))


def _read_series(path: Path) -> _Series:
    page = read_input_file(path, _LIMIT_BYTES)
    begin = _OPTION.search(page)
    end = None if begin is None else _OPTION_END.search(page, begin.end())
    if begin is None or end is None:
        raise InputFileError(f"{show_path(path)}: no data of a pyecharts chart in this page")
    try:
        option = msgspec.json.decode(page[begin.end() : end.end()], type=_Option)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputFileError(f"{show_path(path)}: the data of the chart cannot be used: {error}") from error
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
