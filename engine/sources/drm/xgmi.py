"""Throughput of XGMI, AMD's links between GPUs, by the counters in amdgpu's table `gpu_metrics`.

Sources: the structs `gpu_metrics_v1_4` to `gpu_metrics_v1_8` of the kernel's
`drivers/gpu/drm/amd/include/kgd_pp_interface.h`, in C's natural alignment; 1.9 lists its fields itself.
Earlier revisions and those of APUs (2.x, 3.x) have no such counters.

Each counts kilobytes. AMD does not say whether of 1000 or 1024 bytes; the firmware counts in 1/1024 of them
(`SMUQ10_ROUND`), so 1024 is used. `amdsmi_link_metrics_t` says which way is which: what is read is received,
what is written is sent.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from .gpu_metrics import LISTED, parse_listed

_HEADER = struct.Struct("<HBB")
_WIDTH = struct.Struct("<H")
# Of eight links.
_COUNTERS = struct.Struct("<8Q")
_UNSUPPORTED = (1 << 64) - 1
_NO_WIDTHS = (None, 0, 0xFFFF)
_KILOBYTE = 1024
# An MI355X has 0.54 TB/s in each direction; beyond this a counter is the firmware's mistake.
_MOST_BYTES_PER_S = 1e13


class _Layout(NamedTuple):
    size: int
    # Offsets of `xgmi_link_width`, and of `xgmi_read_data_acc`, which `xgmi_write_data_acc` follows.
    width: int
    counters: int


# By format and content revision.
_LAYOUTS = {
    (1, 4): _Layout(288, 52, 104),
    (1, 5): _Layout(360, 116, 176),
    (1, 6): _Layout(1664, 64, 128),
    (1, 7): _Layout(2208, 72, 136),
    (1, 8): _Layout(3360, 72, 136),
}
# In a table that lists its fields: their ids, and the unit of the counters.
_LINK_WIDTH, _READ, _WRITTEN = 18, 29, 30
_KILOBYTES = 9


class XgmiCounts(NamedTuple):
    """Kilobytes by link; a link that the driver does not count is left out."""

    read: dict[int, int]
    written: dict[int, int]


class XgmiRates(NamedTuple):
    """Bytes per second over all links, to three significant digits; None is unmeasured."""

    sent_bytes_per_s: float | None = None
    received_bytes_per_s: float | None = None


class XgmiMeter:
    """Throughput of one GPU between the two newest tables."""

    def __init__(self) -> None:
        self._counts: XgmiCounts | None = None
        self._at_s = 0.0

    def add(self, table: bytes | None, now_s: float) -> XgmiRates:
        """Return the throughput since the table before; unmeasured at first, and after a reset."""
        before, passed_s = self._counts, now_s - self._at_s
        self._counts = counts = None if table is None else parse_counts(table)
        self._at_s = now_s
        if counts is None or before is None or passed_s <= 0.0:
            return XgmiRates()
        return XgmiRates(
            _find_rate(before.written, counts.written, passed_s),
            _find_rate(before.read, counts.read, passed_s),
        )


def parse_counts(table: bytes) -> XgmiCounts | None:
    """Return the counters of a table.

    None if its revision has none, it is cut off, or the GPU has no link: where links have no width, counters
    of 0 do not say that they were idle.
    """
    if len(table) < _HEADER.size:
        return None
    size, form, content = _HEADER.unpack_from(table)
    layout = _LAYOUTS.get((form, content))
    width: int | None = None
    read: dict[int, int] = {}
    written: dict[int, int] = {}
    if layout is not None and min(size, len(table)) >= layout.size:
        (width,) = _WIDTH.unpack_from(table, layout.width)
        read = _count_links(_COUNTERS.unpack_from(table, layout.counters))
        written = _count_links(_COUNTERS.unpack_from(table, layout.counters + _COUNTERS.size))
    elif (form, content) == LISTED:
        fields = parse_listed(table[:size])
        width = next(iter(fields[_LINK_WIDTH].numbers), None) if _LINK_WIDTH in fields else None
        read, written = (
            _count_links(fields[name].numbers) if name in fields and fields[name].unit == _KILOBYTES else {}
            for name in (_READ, _WRITTEN)
        )
    has_links = width not in _NO_WIDTHS or any(read.values()) or any(written.values())
    return XgmiCounts(read, written) if has_links else None


def _count_links(counts: Iterable[int | None]) -> dict[int, int]:
    return {link: count for link, count in enumerate(counts) if count not in (None, _UNSUPPORTED)}


def _find_rate(before: dict[int, int], now: dict[int, int], passed_s: float) -> float | None:
    """Return the sum over all links; None if any of them appeared, vanished or began again."""
    if not now or before.keys() != now.keys():
        return None
    risen = [count - before[link] for link, count in now.items()]
    rate = sum(risen) * _KILOBYTE / passed_s
    return float(f"{rate:.3g}") if min(risen) >= 0 and rate <= _MOST_BYTES_PER_S else None
