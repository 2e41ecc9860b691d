"""Processes that hold device memory, as rows."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ...engine.model import DeviceSample, ProcessReading
from ...engine.text import make_printable
from ...engine.units import format_bytes

_USER_MIN_WIDTH = 50


def build_process_table(devices: Sequence[DeviceSample], width: int) -> Table:
    """Return the table of processes, the one with the most device memory first on each device.

    Args:
        devices: Devices in the order to show them.
        width: Columns that the terminal has.
    """
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", width=width)
    table.add_column("device", no_wrap=True)
    table.add_column("pid", justify="right", no_wrap=True)
    has_user = width >= _USER_MIN_WIDTH
    if has_user:
        table.add_column("user", no_wrap=True, max_width=12, overflow="ellipsis")
    table.add_column("memory", justify="right", no_wrap=True)
    table.add_column("command", no_wrap=True, overflow="ellipsis", ratio=1)
    for device in devices:
        if is_untold(device):
            user = ["—"] if has_user else []
            table.add_row(*map(Text, [device.label, "—", *user, "—", "the driver does not tell"]))
        for process in sorted(device.processes or (), key=lambda p: -(p.used_bytes or 0)):
            cells = [device.label, str(process.pid)]
            if has_user:
                cells.append(make_printable(process.user or "—"))
            cells += [format_bytes(process.used_bytes), describe_command(process)]
            table.add_row(*map(Text, cells))
    return table


def is_untold(device: DeviceSample) -> bool:
    """Return whether a device that is well does not tell which processes hold its memory."""
    return device.processes is None and device.state == "ok" and device.kind != "trace"


def is_host_pid(process: ProcessReading) -> bool:
    """Return whether the pid of a process outside our container is the host's.

    The driver tells the host's pid, and nothing of the process can be read under it. A process that reports
    by itself tells its command and start, and the pid that it has where it runs.
    """
    return process.command is None and process.started_s is None


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
        return f"[container {make_printable(process.container or '—')}] {command}"
    return command
