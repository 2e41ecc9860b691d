"""The host's own memory, swap and processor, on one line."""

from ...engine.model import HostSample
from ...engine.units import GIB
from ..draw.spans import Role
from ..widgets.note_line import SEPARATOR
from ..widgets.one_line import OneLine, Piece, join_pieces, measure_pieces

SCARCE_PERCENT = 95.0
"""Use of the host's memory from which the figure is drawn as a warning."""


class HostLine(OneLine):
    """Shows what the host, or the container around us, has left."""

    _groups: tuple[list[Piece], ...] = ()

    def show(self, host: HostSample | None, *, is_recorded: bool = False, has_memory: bool = True) -> None:
        """Show the host's figures; unmeasured ones are `—`, and a recording without a host says nothing.

        Args:
            host: The host's figures, or None where there are none.
            is_recorded: Whether it is of a recording.
            has_memory: Whether memory is told here; not where something else shows it.
        """
        if host is None:
            self._groups = () if is_recorded else ([Piece("host —", "muted")],)
        else:
            memory = (_describe_memory(host),) if has_memory else ()
            self._groups = (*memory, _describe_swap(host), _describe_processor(host))
        self._arrange()

    def on_resize(self) -> None:
        """Choose anew what fits."""
        self._arrange()

    def _arrange(self) -> None:
        """Show whole figures only; the first stays, cut if it must be."""
        count = len(self._groups)
        while count > 1 and measure_pieces(join_pieces(self._groups[:count], SEPARATOR)) > self.size.width:
            count -= 1
        self.set_pieces(join_pieces(self._groups[:count], SEPARATOR))


def _describe_memory(host: HostSample) -> list[Piece]:
    label = "container limit" if host.limit == "cgroup" else "host"
    role: Role = "text"
    share = ""
    if host.used_bytes is not None and host.total_bytes:
        percent = 100 * host.used_bytes / host.total_bytes
        share = f"  {percent:2.0f} %"
        role = "medium" if percent >= SCARCE_PERCENT else "text"
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
