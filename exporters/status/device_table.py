"""Devices as rows: as many columns as the width has room for."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from ...analyzers.findings.subjects import name_device
from ...analyzers.risk import Risk
from ...engine.model import DeviceSample
from ...engine.text import make_printable
from ...engine.units import format_age, format_gib
from ..severity import GLYPHS, STYLES

_COLUMNS = ("device", "name", "gauge", "GiB", "used", "util", "temp", "power", "risk")
_DISPENSABLE = ("power", "temp", "gauge", "util", "name", "used", "risk")
"""Columns in the order in which a narrow terminal does without them."""
_LEFT_ALIGNED = frozenset({"device", "name", "gauge", "risk"})
_NOUNS = {"mig": "MIG instance", "trace": "recorded rank", "simulated": "simulated GPU", "cpu": "host"}
_NAME_MIN_WIDTH = 6
_GAUGE_MIN_WIDTH = 6
_GAUGE_MAX_WIDTH = 24


def build_device_table(devices: Sequence[DeviceSample], risks: Mapping[str, Text], width: int) -> Table:
    """Return the table of devices, with as many columns as fit; figures are never cut.

    Args:
        devices: Devices in the order to show them.
        risks: What `describe_risk` says of each device, by its UUID.
        width: Columns that the terminal has.
    """
    gauge_width = max(_GAUGE_MIN_WIDTH, min(_GAUGE_MAX_WIDTH, width // 8))
    rows = [_build_cells(device, risks[device.uuid], gauge_width=gauge_width) for device in devices]
    widths = {name: max(len(name), *(row[name].cell_len for row in rows)) for name in _COLUMNS}
    columns = _choose_columns(widths, width)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        is_name = name == "name"
        table.add_column(
            "" if name == "gauge" else name,
            justify="left" if name in _LEFT_ALIGNED else "right",
            no_wrap=True,
            overflow="ellipsis",
            width=_fit_name(widths, columns, width) if is_name else None,
        )
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    return table


def describe_unified(devices: Sequence[DeviceSample]) -> list[str]:
    """Return one sentence for each device whose figures are those of the host's memory."""
    return [
        f"{name_device(device)}: ranks train on the host's processors; its figures are the host's memory"
        if device.kind == "cpu"
        else f"{name_device(device)} shares the host's memory; its figures are the host's (unified)"
        for device in devices
        if device.memory.source == "host"
    ]


def describe_trouble(devices: Sequence[DeviceSample]) -> list[tuple[str, str]]:
    """Return the name of each device whose figures are not of now or cannot be read, and why."""
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


def _choose_columns(widths: dict[str, int], width: int) -> list[str]:
    columns = list(_COLUMNS)
    for name in _DISPENSABLE:
        if _fit_name(widths, columns, width) >= min(_NAME_MIN_WIDTH, widths["name"]):
            break
        columns.remove(name)
    return columns


def _fit_name(widths: dict[str, int], columns: Sequence[str], width: int) -> int:
    """Return the room for names beside the other columns; where they are not shown, all room is theirs."""
    others = sum(widths[name] + 1 for name in columns if name != "name") - (0 if "name" in columns else 1)
    room = width - others
    if "name" not in columns:
        return _NAME_MIN_WIDTH if room >= 0 else 0
    return min(widths["name"], room)


def _build_cells(device: DeviceSample, risk: Text, *, gauge_width: int) -> dict[str, Text]:
    memory = device.memory
    share = _share(memory.used_bytes, memory.total_bytes)
    old = "" if device.details_age_s is None else "dim"
    return {
        "device": Text(device.label if device.mig_index is None else f" {device.label}"),
        "name": Text(make_printable(device.name or "—")),
        "gauge": _draw_gauge(device, gauge_width),
        "GiB": Text(f"{format_gib(memory.used_bytes)}/{format_gib(memory.total_bytes)}"),
        "used": Text("—" if share is None else f"{100 * share:.0f} %"),
        "util": Text(_figure(device.utilization_percent, "%"), style=old),
        "temp": Text(_figure(device.temperature_c, "°C"), style=old),
        "power": Text(_figure(device.power_w, "W"), style=old),
        "risk": risk,
    }


def describe_risk(device: DeviceSample, risk: Risk, now_s: float) -> Text:
    """Return how near a device is to running out of memory, or that its figures are old.

    Args:
        device: The device.
        risk: Its risk.
        now_s: Time of its figures.
    """
    if device.state == "lost":
        return Text("✖ LOST", style="bold red")
    if device.state == "ended":
        age = "" if device.age_s is None else f" {format_age(device.age_s)} ago"
        return Text(f"ended{age}", style="dim")
    if device.state == "stale":
        age = "" if device.age_s is None else f" {format_age(device.age_s)}"
        return Text(f"? stale{age}", style="bold yellow")
    left_s = risk.time_left_s(now_s)
    left = "" if left_s is None else f" {format_age(left_s)}"
    return Text(f"{GLYPHS[risk.level]} {risk.level}{left}", style=STYLES[risk.level])


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
    return "—" if value is None else f"{value:.0f} {unit}"
