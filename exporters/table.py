"""The status object as a table for people: what `vramscope --once` prints."""

import time
from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console, Group, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from ..analyzers.countdown import count_down
from ..analyzers.left_out import describe_left_out
from ..analyzers.risk import assess_risks, doubt_silent
from ..analyzers.verdict import summarize
from ..engine.model import Finding, HostSample, NodeStatus, Sample
from ..engine.text import make_ascii, make_printable, make_printable_lines
from ..engine.units import format_bytes
from .device_table import build_device_table, count_devices, describe_risk, describe_trouble, describe_unified
from .process_table import build_process_table, is_untold
from .rank_table import build_rank_table, describe_rank_trouble
from .severity import GLYPHS, STYLES

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
