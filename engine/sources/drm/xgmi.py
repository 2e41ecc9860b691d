"""Throughput of XGMI, AMD's links between GPUs, by the counters in amdgpu's table `gpu_metrics`.

Sources: the structs `gpu_metrics_v1_4` to `gpu_metrics_v1_8` of the kernel's
`drivers/gpu/drm/amd/include/kgd_pp_interface.h`, in C's natural alignment. For 1.9, which lists its fields
itself, `AMDGPU_METRICS_ENC_ATTR` there and `DECLARE_SMU_METRICS_CLASS` of `pm/swsmu/smu_cmn.h`. Earlier
revisions and those of APUs (2.x, 3.x) have no such counters.

Each counts kilobytes. AMD does not say whether of 1000 or 1024 bytes; the firmware counts in 1/1024 of them
(`SMUQ10_ROUND`), so 1024 is used. `amdsmi_link_metrics_t` says which way is which: what is read is received,
what is written is sent.
"""

import struct
from typing import NamedTuple

_HEADER = struct.Struct("<HBB")
_WIDTH = struct.Struct("<H")
# Of eight links.
_COUNTERS = struct.Struct("<8Q")
_UNSUPPORTED = (1 << 64) - 1
_NO_WIDTHS = (0, 0xFFFF)
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
_LISTED = (1, 9)
_FIELD_COUNT = struct.Struct("<4xI")
_FIELD = struct.Struct("<Q")
_LENGTH_BITS = 10
# What a field is: its unit (9 is kilobytes), type (2 has two bytes, 6 has eight) and id.
_LINK_WIDTH = 2 << 10 | 18
_READ = 9 << 14 | 6 << 10 | 29
_WRITTEN = 9 << 14 | 6 << 10 | 30
_WIDTHS_BY_TYPE = (1, 1, 2, 2, 4, 4, 8, 8)


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
    fields: dict[int, tuple[int, ...]] = {}
    if layout is not None and min(size, len(table)) >= layout.size:
        fields[_LINK_WIDTH] = _WIDTH.unpack_from(table, layout.width)
        fields[_READ] = _COUNTERS.unpack_from(table, layout.counters)
        fields[_WRITTEN] = _COUNTERS.unpack_from(table, layout.counters + _COUNTERS.size)
    elif (form, content) == _LISTED:
        fields = _read_listed(table[:size])
    width = fields.get(_LINK_WIDTH, (0,))[0]
    read, written = (
        {link: count for link, count in enumerate(fields.get(name, ())) if count != _UNSUPPORTED}
        for name in (_READ, _WRITTEN)
    )
    has_links = width not in _NO_WIDTHS or any(read.values()) or any(written.values())
    return XgmiCounts(read, written) if has_links else None


def _read_listed(table: bytes) -> dict[int, tuple[int, ...]]:
    """Return the fields of XGMI in a table that lists its fields; none if it is cut off.

    Eight bytes with unit, type, id and length come before each value, or array of values; nothing is aligned.
    """
    if len(table) < _FIELD_COUNT.size:
        return {}
    (count,) = _FIELD_COUNT.unpack_from(table)
    found: dict[int, tuple[int, ...]] = {}
    at = _FIELD_COUNT.size
    for _ in range(count):
        if at + _FIELD.size > len(table):
            return {}
        (encoded,) = _FIELD.unpack_from(table, at)
        field, length = encoded >> _LENGTH_BITS, encoded & (1 << _LENGTH_BITS) - 1
        kind = field >> 10 & 0xF
        at += _FIELD.size
        if kind >= len(_WIDTHS_BY_TYPE) or at + length * _WIDTHS_BY_TYPE[kind] > len(table):
            return {}
        if length and field in (_LINK_WIDTH, _READ, _WRITTEN):
            found[field] = struct.unpack_from(f"<{length}{'H' if field == _LINK_WIDTH else 'Q'}", table, at)
        at += length * _WIDTHS_BY_TYPE[kind]
    return found


def _find_rate(before: dict[int, int], now: dict[int, int], passed_s: float) -> float | None:
    """Return the sum over all links; None if any of them appeared, vanished or began again."""
    if not now or before.keys() != now.keys():
        return None
    risen = [count - before[link] for link, count in now.items()]
    rate = sum(risen) * _KILOBYTE / passed_s
    return float(f"{rate:.3g}") if min(risen) >= 0 and rate <= _MOST_BYTES_PER_S else None
