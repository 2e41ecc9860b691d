"""The status object as a table for people: what `vramscope --once` prints."""

import time
from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console, Group, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from ...analyzers.findings.subjects import name_rank
from ...analyzers.gap import find_own_gap
from ...analyzers.risk import assess_risks, doubt_silent
from ...analyzers.verdict import count_down, describe_left_out, summarize
from ...engine.model import (
    AllocatorReading,
    DeviceSample,
    Finding,
    HostSample,
    NodeStatus,
    RankSample,
    Sample,
)
from ...engine.text import make_ascii, make_printable, make_printable_lines
from ...engine.units import format_age, format_bytes
from ..severity import GLYPHS, STYLES
from .device_table import build_device_table, count_devices, describe_risk, describe_trouble, describe_unified
from .process_table import build_process_table, is_untold

UNCUT = 1 << 16
"""Cells into which every sentence fits."""


class TableStyle(msgspec.Struct, frozen=True):
    """How a table is printed."""

    width: int = 80
    has_color: bool = False
    is_ascii: bool = False


def render_table(status: NodeStatus, style: TableStyle, *, hidden_notes: Sequence[str] = ()) -> str:
    """Return a status as text that fits the width.

    Args:
        status: What to show.
        style: Width, colour and characters.
        hidden_notes: Notes that are told elsewhere and are not repeated.
    """
    console = Console(
        width=style.width,
        force_terminal=style.has_color,
        color_system="256" if style.has_color else None,
        no_color=not style.has_color,
        legacy_windows=False,
        emoji=False,
        markup=False,
        highlight=False,
    )
    with console.capture() as capture:
        parts = console.render(Group(*_build_parts(status, style, hidden_notes)))
        console.print(Segments(map(_make_printable, parts)), soft_wrap=False, end="")
    text = "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
    return make_ascii(text) if style.is_ascii else text


def _make_printable(segment: Segment) -> Segment:
    """Return a segment without what would steer a terminal: escape sequences are Rich's own, about styles."""
    return segment._replace(text=make_printable_lines(segment.text))


def _build_parts(
    status: NodeStatus, style: TableStyle, hidden_notes: Sequence[str]
) -> Iterator[RenderableType]:
    yield from _build_head(status, style)
    if status.devices:
        yield Text()
        yield build_device_table(status.devices, _assess_risks(status), style.width)
        yield from (Text(sentence, style="dim") for sentence in describe_unified(status.devices))
        yield from (_build_hanging(*trouble, "bold") for trouble in describe_trouble(status.devices))
    if any(device.processes or is_untold(device) for device in status.devices):
        yield Text()
        yield build_process_table(status.devices, style.width)
    if status.ranks:
        yield Text()
        yield build_rank_table(status.ranks, status.devices, style.width)
        yield from (_build_hanging(*trouble, "bold") for trouble in describe_rank_trouble(status.ranks))
    open_findings = [finding for finding in status.findings if finding.is_open]
    if open_findings:
        yield Text()
        yield from (_build_finding(_as_of_now(finding, status)) for finding in open_findings)
    yield Text()
    yield _describe_host(status.host)
    # Without a device the first note is the verdict.
    for note in status.notes if status.devices else status.notes[1:]:
        if note not in hidden_notes:
            yield _build_hanging("note", make_printable(note), "dim")


def _build_head(status: NodeStatus, style: TableStyle) -> Iterator[RenderableType]:
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.time))
    agent = f" · agent {status.agent.pid}" if status.agent is not None else ""
    head = f"{make_printable(status.node)} · {_count_devices(status)}{agent} · {clock}"
    yield Text(head, style="bold", no_wrap=True, overflow="ellipsis")
    verdict = summarize(_sample_of(status), status.findings, assessments=status.assessments)
    # A report, unlike a screen, has as many lines as it takes to say everything.
    yield _build_hanging(GLYPHS[verdict.level], make_printable(verdict.text(UNCUT)), STYLES[verdict.level])


def _count_devices(status: NodeStatus) -> str:
    """Return how many devices there are in words, and of how many others nothing is said."""
    if not status.devices_left_out:
        return count_devices(status.devices)
    return describe_left_out(_sample_of(status))[0]


def _sample_of(status: NodeStatus) -> Sample:
    return Sample(
        node=status.node,
        seq=0,
        time_s=status.time,
        interval_s=0.0,
        devices=status.devices,
        host=status.host,
        ranks=status.ranks,
        notes=status.notes,
        devices_left_out=status.devices_left_out,
    )


def _assess_risks(status: NodeStatus) -> dict[str, Text]:
    """Return what the row of each device says of its risk, by its UUID."""
    known = doubt_silent(_sample_of(status), status.assessments)
    risks = assess_risks(status.devices, status.findings, known, status.ranks)
    return {device.uuid: describe_risk(device, risks[device.uuid], status.time) for device in status.devices}


def _as_of_now(finding: Finding, status: NodeStatus) -> Finding:
    """Return a forecast with its times as of the status; any other finding as it is."""
    if finding.kind != "oom":
        return finding
    title = count_down(finding, status.assessments, status.time)
    return msgspec.structs.replace(finding, title=title)


def _build_finding(finding: Finding) -> RenderableType:
    lines = [Text(make_printable(finding.title))]
    if finding.advice:
        lines.append(Text(make_printable(finding.advice), style="dim"))
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(GLYPHS[finding.severity], style=STYLES[finding.severity]), Group(*lines))
    return grid


def _build_hanging(head: str, text: str, style: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(head, style=style), Text(text, style=style))
    return grid


def _describe_host(host: HostSample | None) -> Text:
    if host is None:
        return Text("host —")
    limit = " (cgroup limit)" if host.limit == "cgroup" else ""
    memory = f"host memory {format_bytes(host.used_bytes)} of {format_bytes(host.total_bytes)}{limit}"
    swap = f"swap {format_bytes(host.swap_used_bytes)} of {format_bytes(host.swap_total_bytes)}"
    if host.swap_total_bytes == 0:
        swap = "no swap"
    cpu = "cpu —" if host.cpu_percent is None else f"cpu {host.cpu_percent:.0f} %"
    return Text(" · ".join((memory, swap, cpu)))


_COLUMNS = ("rank", "pid", "device", "allocated", "reserved", "gap", "step", "probe")
_DISPENSABLE = ("pid", "reserved", "step", "device", "gap", "probe")
"""Columns in the order in which a narrow terminal does without them."""
_LEFT_ALIGNED = frozenset({"device", "probe"})
_STYLES = {"ok": "", "stale": "bold yellow", "ended": "dim"}


def build_rank_table(ranks: Sequence[RankSample], devices: Sequence[DeviceSample], width: int) -> Table:
    """Return the table of training processes; figures are never cut.

    Args:
        ranks: Processes in the order to show them.
        devices: Devices of the same sample.
        width: Columns that the terminal has.
    """
    by_uuid = {device.uuid: device for device in devices}
    rows = [_build_cells(rank, by_uuid.get(rank.device_uuid or "")) for rank in ranks]
    columns = _choose_columns(rows, width)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(
            name, justify="left" if name in _LEFT_ALIGNED else "right", no_wrap=True, overflow="ellipsis"
        )
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    return table


def describe_rank_trouble(ranks: Sequence[RankSample]) -> list[tuple[str, str]]:
    """Return name and reason of each process that does not report."""
    return [
        (name_rank(rank), make_printable(rank.reason)) for rank in ranks if rank.state != "ok" and rank.reason
    ]


def _choose_columns(rows: Sequence[dict[str, Text]], width: int) -> list[str]:
    widths = {name: max(len(name), *(row[name].cell_len for row in rows)) for name in _COLUMNS}
    columns = list(_COLUMNS)
    for name in _DISPENSABLE:
        if sum(widths[column] + 1 for column in columns) - 1 <= width:
            break
        columns.remove(name)
    return columns


def _build_cells(rank: RankSample, device: DeviceSample | None) -> dict[str, Text]:
    allocator = rank.allocator or AllocatorReading()
    number = "—" if rank.coordinates is None else str(rank.coordinates.rank)
    return {
        "rank": Text(number),
        "pid": Text(str(rank.pid)),
        "device": Text("—" if device is None else device.label),
        "allocated": Text(format_bytes(allocator.allocated_bytes)),
        "reserved": Text(format_bytes(allocator.reserved_bytes)),
        "gap": Text(_describe_gap(rank, device)),
        "step": Text("—" if rank.step is None else f"{rank.step.index:,}"),
        "probe": Text(_describe_state(rank), style=_STYLES[rank.state]),
    }


def _describe_gap(rank: RankSample, device: DeviceSample | None) -> str:
    """Return what the process holds beyond live tensors: all of it, or what its allocator alone holds."""
    gap = None if device is None else find_own_gap(device, rank)
    if gap is not None:
        return format_bytes(gap)
    allocator = rank.allocator or AllocatorReading()
    if allocator.allocated_bytes is None or allocator.reserved_bytes is None:
        return "—"
    return f">{format_bytes(max(0, allocator.reserved_bytes - allocator.allocated_bytes))}"


def _describe_state(rank: RankSample) -> str:
    age = "" if rank.state == "ok" or rank.age_s is None else f" {format_age(rank.age_s)}"
    return f"{rank.state}{age}"
