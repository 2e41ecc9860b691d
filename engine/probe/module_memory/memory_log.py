"""The files of a profile: `memory.log` in the grammar of InternLM, and the exact bytes as JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

LOG_NAME = "memory.log"
EXACT_NAME = "module_memory.jsonl"
SCHEMA = "vramscope.modules/1"
_MIB = 1 << 20
_ENTRIES_AT_ONCE = 256
_SUMMARY = ("params", "grads", "os_params", "os_state", "activation")

Computed = Mapping[str, int]
Measured = Mapping[str, "int | None"]


class Kind(NamedTuple):
    computed_bytes: int | None
    measured_bytes: int | None
    # Own bytes by path, in the order of the tree.
    computed: Computed
    measured: Measured


class Moment(NamedTuple):
    tag: str
    # Since the profile began.
    time_s: float
    # By name; `activation` is what lives now, with its layout, and `activation_peak` the most that lived.
    kinds: Mapping[str, Kind]
    # Kinds whose trees are written too.
    layouts: tuple[str, ...]
    # By the allocator of the device; None if there is none.
    allocated_bytes: int | None


class MomentKeeper(Protocol):
    """Stores the moments of a profile."""

    # Describes the process.
    header: Mapping[str, Any]

    def write(self, moment: Moment, *, is_first: bool) -> None:
        """Store a moment; the first one replaces all earlier ones."""
        ...


class ProfileFiles:
    """Appends moments to both files, whole, so that an interrupted run keeps what it had."""

    def __init__(self, folder: str) -> None:
        self.header: Mapping[str, Any] = {}
        self._folder = folder
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - folders come as text, from a program

    def write(self, moment: Moment, *, is_first: bool) -> None:
        """Write a moment; the first one truncates the files."""
        line = "".join(encode_moment(moment))
        if is_first:
            line = encode_header(self.header) + line
        mode = "w" if is_first else "a"
        for name, text in ((LOG_NAME, render_state(moment)), (EXACT_NAME, line)):
            path = os.path.join(self._folder, name)  # noqa: PTH118
            with open(path, mode, encoding="utf-8") as file:  # noqa: PTH123
                file.write(text)


def render_state(moment: Moment) -> str:
    """Format a moment for `memory.log`: computed bytes in MiB, to two decimals."""
    kinds = moment.kinds
    sizes = {
        kind: kinds[kind].computed_bytes or 0 for kind in _SUMMARY
    }  # the grammar has no word for unknown
    total = sum(sizes.values())
    parts = ", ".join(f"{kind}_memory: {_format_mib(size)} MB" for kind, size in sizes.items())
    lines = [
        "Memory State:",
        f"time: {moment.time_s}",
        "---summary---",
        f"total_memory: {_format_mib(total)} MB",
        parts,
    ]
    if moment.layouts:
        lines.append("---Layout---")
    for kind in moment.layouts:
        lines.append(f"{'activation_base' if kind == 'activation' else kind}_layout:")
        lines.extend(_render_layout(kinds[kind].computed))
    return "\n".join(lines) + "\n\n"


def _render_layout(computed: Computed) -> Iterator[str]:
    """Yield the lines of the trees in a layout: each node before its children, in the order of the paths."""
    own: dict[str, int] = {}
    total: dict[str, int] = {}
    children: dict[str, list[str]] = {"": []}
    for path, size_bytes in computed.items():
        node = ""
        for name in path.split("."):
            parent = node
            node = f"{node}.{name}" if node else name
            if node not in children:
                children[node] = []
                children[parent].append(node)
            total[node] = total.get(node, 0) + size_bytes
        own[path] = own.get(path, 0) + size_bytes
    pending = children[""][::-1]
    while pending:
        node = pending.pop()
        own_mib = _format_mib(own.get(node, 0))
        yield f"layer: {node}, layer_mem: {own_mib} MB, total_mem: {_format_mib(total[node])} MB"
        pending.extend(reversed(children[node]))


def encode_header(header: Mapping[str, Any]) -> str:
    """First line of the file of exact bytes."""
    return _encode({"schema": SCHEMA, **header}) + "\n"


def encode_moment(moment: Moment) -> Iterator[str]:
    """Yield the line of a moment in pieces, so that no piece takes long."""
    kinds = {
        name: {"computed_bytes": kind.computed_bytes, "measured_bytes": kind.measured_bytes}
        for name, kind in moment.kinds.items()
    }
    about = {"tag": moment.tag, "time_s": moment.time_s, "allocated_bytes": moment.allocated_bytes}
    yield _encode({**about, "kinds": kinds})[:-1] + ',"layouts":{'
    for number, name in enumerate(moment.layouts):
        yield f'{"," if number else ""}"{name}":['
        entries = list(_list_entries(moment.kinds[name]))
        for start in range(0, len(entries), _ENTRIES_AT_ONCE):
            yield ("," if start else "") + _encode(entries[start : start + _ENTRIES_AT_ONCE])[1:-1]
        yield "]"
    yield "}}\n"


def _list_entries(kind: Kind) -> Iterator[list[Any]]:
    """Yield path, computed and measured bytes; None if one is unknown."""
    is_unmeasured = kind.measured_bytes is None and not kind.measured
    absent = None if is_unmeasured else 0
    for path in dict.fromkeys([*kind.computed, *kind.measured]):
        computed = None if kind.computed_bytes is None else kind.computed.get(path, 0)
        yield [path, computed, kind.measured.get(path, absent)]


def _encode(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _format_mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.2f}"


MOST_MOMENTS = 64
# Entries of trees that are sent at once; of older moments trees are dropped first.
MOST_ENTRIES = 60_000


class MomentBuffer:
    """Keeps moments; written by one thread and read by any.

    A tree is kept of the newest moment with the same bytes of its kind: readers find it from there.
    """

    def __init__(self) -> None:
        self.header: Mapping[str, Any] = {}
        self._moments: tuple[Moment, ...] = ()  # replaced whole, so that it can be read meanwhile

    def clear(self) -> None:
        self._moments = ()

    def write(self, moment: Moment, *, is_first: bool) -> None:
        """Add a moment, the first of a profile too; if there are many, the oldest without a tree goes."""
        moments = [
            *(_drop_repeated(known, moment) for known in self._moments),
            _select_layouts(moment, moment.layouts),
        ]
        if len(moments) > MOST_MOMENTS:
            moments.pop(next((at for at, known in enumerate(moments) if not known.layouts), 0))
        self._moments = tuple(moments)

    def list_lines(self) -> Iterator[str]:
        """Yield the lines of `module_memory.jsonl` in pieces."""
        moments = list(self._moments)
        room = MOST_ENTRIES
        for place in reversed(range(len(moments))):
            fitting, room = _fit(moments[place], room)
            moments[place] = moments[place]._replace(layouts=fitting)
        yield encode_header(self.header)
        for moment in moments:
            yield from encode_moment(moment)


def _drop_repeated(known: Moment, newer: Moment) -> Moment:
    """Drop the trees of a moment whose kinds have the same bytes in a newer one."""
    alike = {name for name in newer.layouts if known.kinds[name][:2] == newer.kinds[name][:2]}
    if alike.isdisjoint(known.layouts):
        return known
    return _select_layouts(known, tuple(name for name in known.layouts if name not in alike))


def _select_layouts(moment: Moment, layouts: tuple[str, ...]) -> Moment:
    kinds = {
        name: kind if name in layouts else Kind(kind.computed_bytes, kind.measured_bytes, {}, {})
        for name, kind in moment.kinds.items()
    }
    return moment._replace(kinds=kinds, layouts=layouts)


def _fit(moment: Moment, room: int) -> tuple[tuple[str, ...], int]:
    """Return the kinds whose trees fit, and the room that is left."""
    fitting = []
    for name in moment.layouts:
        kind = moment.kinds[name]
        entries = max(len(kind.computed), len(kind.measured))
        if entries <= room:
            room -= entries
            fitting.append(name)
    return tuple(fitting), room
