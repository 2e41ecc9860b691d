"""The host's own memory, swap and processor, on one line."""

from ...engine.model import HostSample
from ...engine.units import GIB
from ..drawing.spans import Role
from .one_line import OneLine, Piece, join_pieces

SCARCE_PERCENT = 95.0
"""Use of the host's memory from which the figure is drawn as a warning."""


class HostLine(OneLine):
    """Shows what the host, or the container around us, has left."""

    def show(self, host: HostSample | None, *, is_recorded: bool = False) -> None:
        """Show the host's figures; unmeasured ones are `—`, and a recording without a host says nothing."""
        if host is None and is_recorded:
            self.set_pieces([])
        elif host is None:
            self.set_pieces([Piece("host —", "muted")])
        else:
            groups = [_describe_memory(host), _describe_swap(host), _describe_processor(host)]
            self.set_pieces(join_pieces(groups, "   "))


def _describe_memory(host: HostSample) -> list[Piece]:
    label = "container limit" if host.limit == "cgroup" else "host"
    role: Role = "text"
    share = ""
    if host.used_bytes is not None and host.total_bytes:
        percent = 100 * host.used_bytes / host.total_bytes
        share, role = f"  {percent:2.0f} %", "medium" if percent >= SCARCE_PERCENT else "text"
    return [Piece(f"{label} ", "muted"), Piece(_ratio(host.used_bytes, host.total_bytes) + share, role)]


def _describe_swap(host: HostSample) -> list[Piece]:
    if host.swap_total_bytes == 0:
        return [Piece("no swap", "muted")]
    return [Piece("swap ", "muted"), Piece(_ratio(host.swap_used_bytes, host.swap_total_bytes))]


def _describe_processor(host: HostSample) -> list[Piece]:
    share = "—" if host.cpu_percent is None else f"{host.cpu_percent:3.0f} %"
    return [Piece("cpu ", "muted"), Piece(share)]


def _ratio(used_bytes: int | None, total_bytes: int | None) -> str:
    """Return used of total in GiB; the used figure keeps the width of the total one."""
    total = "—" if total_bytes is None else f"{total_bytes / GIB:,.1f}"
    used = "—" if used_bytes is None else f"{used_bytes / GIB:,.1f}"
    return f"{used:>{len(total)}}/{total} GiB"
