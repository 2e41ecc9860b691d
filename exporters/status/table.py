"""The status object as a table for people: what `vramscope --once` prints."""

import time
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from ...analyzers.findings.subjects import name_device, name_rank
from ...analyzers.gap import find_own_gap
from ...analyzers.growth_renewal import renew_findings
from ...analyzers.risk import Risk, assess_risks, doubt_silent
from ...analyzers.serving.load import describe_server
from ...analyzers.trend_words import grade_trend, word_full_in
from ...analyzers.verdict import describe_left_out, summarize
from ...engine.model import (
    AllocatorReading,
    DeviceSample,
    DeviceTrend,
    Finding,
    HostSample,
    NodeStatus,
    ProcessReading,
    RankSample,
    Sample,
)
from ...engine.text import make_ascii, make_printable, make_printable_lines
from ...engine.units import format_age, format_bytes, format_gib
from ..text import STYLES, UNKNOWN, Marks, TableStyle, show_number

UNCUT = 1 << 16
"""Cells into which every sentence fits."""


def render_table(status: NodeStatus, style: TableStyle, *, hidden_notes: Sequence[str] = ()) -> str:
    """Return a status as text that fits the width; `hidden_notes` are printed elsewhere."""
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
        yield build_device_table(status.devices, _assess_risks(status, style.marks), style.width)
        labelled = [*describe_unified(status.devices), *describe_lower_bounds(status.devices)]
        yield from (Text(sentence, style="dim") for sentence in labelled)
        yield from (_build_hanging(*trouble, "bold") for trouble in describe_trouble(status.devices))
    if any(device.processes or lacks_processes(device) for device in status.devices):
        yield Text()
        yield build_process_table(status.devices, style.width)
    if status.ranks:
        yield Text()
        yield build_rank_table(status.ranks, status.devices, style.width)
        yield from (_build_hanging(*trouble, "bold") for trouble in describe_rank_trouble(status.ranks))
    if status.servers:
        yield Text()
        for server in status.servers:
            yield _build_hanging("serves", make_printable(describe_server(server).fit(UNCUT)), "")
    findings = renew_findings(status.findings, status.assessments, status.time)
    open_findings = [finding for finding in findings if finding.is_open]
    if open_findings:
        yield Text()
        yield from (_build_finding(finding, style.marks) for finding in open_findings)
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
    verdict = summarize(_sample_of(status), status.findings, assessments=status.assessments, remedy="command")
    # A report, unlike a screen, has as many lines as it takes to say everything.
    yield _build_hanging(
        style.marks.risks[verdict.level], make_printable(verdict.text(UNCUT)), STYLES[verdict.level]
    )


def _count_devices(status: NodeStatus) -> str:
    """Return how many devices there are in words, and how many are left out."""
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
        servers=status.servers,
    )


def _assess_risks(status: NodeStatus, marks: Marks) -> dict[str, Text]:
    """Return what the row of each device says of its risk, by its UUID."""
    known = doubt_silent(_sample_of(status), status.assessments)
    risks = assess_risks(status.devices, status.findings, known, status.ranks)
    return {
        device.uuid: describe_risk(device, risks[device.uuid], status.time, marks)
        for device in status.devices
    }


def _build_finding(finding: Finding, marks: Marks) -> RenderableType:
    lines = [Text(make_printable(finding.title))]
    if finding.advice:
        lines.append(Text(make_printable(finding.advice), style="dim"))
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(marks.risks[finding.severity], style=STYLES[finding.severity]), Group(*lines))
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
    """Return the table of training processes; numbers are never cut."""
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


# Devices as rows: as many columns as the width has room for.

_DEVICE_COLUMNS = ("device", "name", "gauge", "GiB", "used", "util", "temp", "power", "risk")
_DISPENSABLE_DEVICE = ("power", "temp", "gauge", "util", "name", "used", "risk")
"""Columns in the order in which a narrow terminal does without them."""
_LEFT_ALIGNED_DEVICE = frozenset({"device", "name", "gauge", "risk"})
_NOUNS = {"mig": "MIG instance", "trace": "recorded rank", "simulated": "simulated GPU", "cpu": "host"}
_NAME_MIN_WIDTH = 6
_GAUGE_MIN_WIDTH = 6
_GAUGE_MAX_WIDTH = 24


def build_device_table(devices: Sequence[DeviceSample], risks: Mapping[str, Text], width: int) -> Table:
    """Return the table of devices, with as many columns as fit; numbers are never cut."""
    gauge_width = max(_GAUGE_MIN_WIDTH, min(_GAUGE_MAX_WIDTH, width // 8))
    rows = [_build_device_cells(device, risks[device.uuid], gauge_width=gauge_width) for device in devices]
    widths = {name: max(len(name), *(row[name].cell_len for row in rows)) for name in _DEVICE_COLUMNS}
    columns = _choose_device_columns(widths, width)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        is_name = name == "name"
        table.add_column(
            "" if name == "gauge" else name,
            justify="left" if name in _LEFT_ALIGNED_DEVICE else "right",
            no_wrap=True,
            overflow="ellipsis",
            width=_fit_name(widths, columns, width) if is_name else None,
        )
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    return table


def describe_unified(devices: Sequence[DeviceSample]) -> list[str]:
    """Return one sentence for each device whose memory is the host's."""
    return [
        f"{name_device(device)}: ranks train on the host's processors; memory is the host's"
        if device.kind == "cpu"
        else f"{name_device(device)} shares the host's memory (unified); memory is the host's"
        for device in devices
        if device.memory.source == "host"
    ]


def describe_lower_bounds(devices: Sequence[DeviceSample]) -> list[str]:
    """Return one sentence for each device where only the visible processes are known."""
    return [
        f"{name_device(device)}: at least this much is used: what the processes that this user may see hold"
        for device in devices
        if device.memory.is_lower_bound
    ]


def describe_trouble(devices: Sequence[DeviceSample]) -> list[tuple[str, str]]:
    """Return the name of each device whose values are old or cannot be read, and why."""
    reasons = ((device, _explain_trouble(device)) for device in devices)
    return [(name_device(device), make_printable(reason)) for device, reason in reasons if reason]


def _explain_trouble(device: DeviceSample) -> str | None:
    if device.state != "ok":
        return device.reason
    if device.details_age_s is None:
        return None
    age = format_age(device.details_age_s)
    return f"utilisation, temperature, power and processes were read {age} ago: the driver answers slowly"


def count_devices(devices: Sequence[DeviceSample]) -> str:
    """Return how many devices there are in words: `2 GPUs`, `8 GPUs, 2 MIG instances, 1 lost`."""
    nouns = [_NOUNS.get(device.kind, "GPU") for device in devices if device.state != "ended"]
    counts = [
        f"{nouns.count(noun)} {noun}{'s' if nouns.count(noun) > 1 else ''}" for noun in dict.fromkeys(nouns)
    ]
    ended = len(devices) - len(nouns)
    lost = sum(device.state == "lost" for device in devices)
    parts = sorted(counts, key=lambda count: "MIG" in count)
    parts += [f"{number} {state}" for number, state in ((lost, "lost"), (ended, "ended")) if number]
    return ", ".join(parts) or "no GPU"


def _choose_device_columns(widths: dict[str, int], width: int) -> list[str]:
    columns = list(_DEVICE_COLUMNS)
    for name in _DISPENSABLE_DEVICE:
        if _fit_name(widths, columns, width) >= min(_NAME_MIN_WIDTH, widths["name"]):
            break
        columns.remove(name)
    return columns


def _fit_name(widths: dict[str, int], columns: Sequence[str], width: int) -> int:
    """Return the room for names next to the other columns; all room if those are not shown."""
    others = sum(widths[name] + 1 for name in columns if name != "name") - (0 if "name" in columns else 1)
    room = width - others
    if "name" not in columns:
        return _NAME_MIN_WIDTH if room >= 0 else 0
    return min(widths["name"], room)


def _build_device_cells(device: DeviceSample, risk: Text, *, gauge_width: int) -> dict[str, Text]:
    memory = device.memory
    share = _share(memory.used_bytes, memory.total_bytes)
    old = "" if device.details_age_s is None else "dim"
    least = "≥" if memory.is_lower_bound else ""
    return {
        "device": Text(device.label if device.mig_index is None else f" {device.label}"),
        "name": Text(make_printable(device.name or "—")),
        "gauge": _draw_gauge(device, gauge_width),
        "GiB": Text(f"{least}{format_gib(memory.used_bytes)}/{format_gib(memory.total_bytes)}"),
        "used": Text("—" if share is None else f"{least}{100 * share:.0f} %"),
        "util": Text(_figure(device.utilization_percent, "%"), style=old),
        "temp": Text(_figure(device.temperature_c, "°C"), style=old),
        "power": Text(_figure(device.power_w, "W"), style=old),
        "risk": risk,
    }


def describe_risk(device: DeviceSample, risk: Risk, now_s: float, marks: Marks) -> Text:
    """Return how near a device is to running out of memory, or that its values are old."""
    if device.state == "lost":
        return Text(f"{marks.risks['critical']} LOST", style="bold red")
    if device.state == "ended":
        age = "" if device.age_s is None else f" {format_age(device.age_s)} ago"
        return Text(f"ended{age}", style="dim")
    if device.state == "stale":
        age = "" if device.age_s is None else f" {format_age(device.age_s)}"
        return Text(f"{marks.risks['unknown']} stale{age}", style="bold yellow")
    if risk.level == "unknown":
        return _describe_trend(risk.trend, now_s, marks)
    left_s = risk.time_left_s(now_s)
    left = "" if left_s is None else f" {format_age(left_s)}"
    return Text(f"{marks.risks[risk.level]} {risk.level}{left}", style=STYLES[risk.level])


def _describe_trend(trend: DeviceTrend | None, now_s: float, marks: Marks) -> Text:
    """Return how used memory goes where the risk is unknown, which the verdict says once."""
    if trend is None:
        return Text(UNKNOWN)
    end = word_full_in(trend, now_s)
    level = grade_trend(trend.word)
    style = "" if level is None else STYLES[level]
    return Text(f"{marks.trends[trend.word]} {trend.word}{f', {end}' if end else ''}", style=style)


def _draw_gauge(device: DeviceSample, width: int) -> Text:
    """Draw used memory from 0 to the total, and lighter up to the most that the tick saw."""
    share = _share(device.memory.used_bytes, device.memory.total_bytes)
    if share is None:
        return Text("—".ljust(width))
    most = _share(device.memory.used_max_bytes, device.memory.total_bytes) or share
    full = round(share * width)
    band = max(0, round(most * width) - full)
    return Text("█" * full + "▒" * band + "░" * (width - full - band))


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else min(1.0, max(0.0, part / whole))


def _figure(value: float | None, unit: str) -> str:
    return show_number(value, ".0f", f" {unit}")


# Processes that hold device memory, as rows.

_USER_MIN_WIDTH = 50


def build_process_table(devices: Sequence[DeviceSample], width: int) -> Table:
    """Return the table of processes, the one with the most device memory first on each device."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", width=width)
    table.add_column("device", no_wrap=True)
    table.add_column("pid", justify="right", no_wrap=True)
    has_user = width >= _USER_MIN_WIDTH
    if has_user:
        table.add_column("user", no_wrap=True, max_width=12, overflow="ellipsis")
    table.add_column("memory", justify="right", no_wrap=True)
    table.add_column("command", no_wrap=True, overflow="ellipsis", ratio=1)
    for device in devices:
        if lacks_processes(device):
            user = ["—"] if has_user else []
            table.add_row(*map(Text, [device.label, "—", *user, "—", "the driver does not report them"]))
        for process in sorted(device.processes or (), key=lambda p: -(p.used_bytes or 0)):
            cells = [device.label, str(process.pid)]
            if has_user:
                cells.append(make_printable(process.user or "—"))
            cells += [format_bytes(process.used_bytes), describe_command(process)]
            table.add_row(*map(Text, cells))
    return table


def lacks_processes(device: DeviceSample) -> bool:
    """Return whether a working device does not report which processes hold its memory."""
    return device.processes is None and device.state == "ok" and device.kind != "trace"


def is_host_pid(process: ProcessReading) -> bool:
    """Return whether the pid of a process outside our container is the host's.

    The driver reports the host's pid, under which nothing of the process can be read. A process that reports
    itself has a command and a start time, and its pid is that inside its container.
    """
    return process.command is None and process.started_s is None


def _name_container(process: ProcessReading) -> str:
    owner = process.owner
    if owner is not None and owner.pod_name is not None:
        return make_printable(f"pod {owner.namespace or '—'}/{owner.pod_name}")
    name = None if owner is None else owner.container_name
    return make_printable(f"container {name or process.container or '—'}")


def describe_command(process: ProcessReading) -> str:
    """Return the command of a process, with where it runs if that is not simply here."""
    command = make_printable(process.command or "—")
    if process.location == "outside":
        if is_host_pid(process):
            return f"host pid {process.pid}, outside this container"
        return f"{command} (outside this container)"
    if process.location == "gone":
        return f"{command} (exited, memory still held)"
    if process.location == "container":
        return f"[{_name_container(process)}] {command}"
    return command
