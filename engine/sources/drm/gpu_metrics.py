"""The table `gpu_metrics` of amdgpu: one binary struct, whose layout the first four bytes name.

Offsets: the kernel's `drivers/gpu/drm/amd/include/kgd_pp_interface.h`, in C's natural alignment. Revisions
are not extensions of each other, so an unknown one is not read at all. A field with all bits set is
unsupported. Revision 1.9 lists its fields itself: `AMDGPU_METRICS_ENC_ATTR` there,
`DECLARE_SMU_METRICS_CLASS` of `pm/swsmu/smu_cmn.h` and the fields in `smu_v13_0_6_ppt.h` and
`smu_v15_0_8_ppt.h`.
"""

import struct
from typing import Literal, NamedTuple

import msgspec

from ...model import ThrottleReason

MOST_BYTES = 1 << 14
_HEADER = struct.Struct("<HBB")

_Width = Literal[2, 4, 8]


class _Field(NamedTuple):
    offset: int
    width: _Width = 2
    length: int = 1
    scale: float = 1.0


class _Layout(NamedTuple):
    size: int
    fields: dict[str, _Field]


# Counters of versions 1.6 to 1.8: the firmware's own cycles, and those in which each throttler was at work.
_CYCLES = ("cycles", "hot_cycles", "power_cycles", "socket_cycles", "regulator_cycles", "memory_cycles")


def _list_instinct(
    lanes: int, clocks: int, memory_clock: int, *, cycles: int | None = None
) -> dict[str, _Field]:
    """Fields of versions 1.4 to 1.8; the first sixteen bytes of all are the same."""
    counters = {} if cycles is None else {name: _Field(cycles + 4 * at, 4) for at, name in enumerate(_CYCLES)}
    return counters | {
        "junction_c": _Field(4),
        "memory_c": _Field(6),
        "power_w": _Field(10),
        "busy_percent": _Field(12),
        "memory_busy_percent": _Field(14),
        "lanes": _Field(lanes),
        "link_speed": _Field(lanes + 2),
        "clock_mhz": _Field(clocks, length=8),
        "memory_clock_mhz": _Field(memory_clock),
    }


_CARD = {
    "edge_c": _Field(4),
    "junction_c": _Field(6),
    "memory_c": _Field(8),
    "busy_percent": _Field(16),
    "memory_busy_percent": _Field(18),
    "power_w": _Field(22),
    "clock_mhz": _Field(54),
    "memory_clock_mhz": _Field(58),
    "lanes": _Field(74),
    "link_speed": _Field(76),
}
# Units of temperature, activity and power of versions 2.1 to 2.3, and two of these of 3.0, are not
# documented, so they are left out.
_APU = {"clock_mhz": _Field(76), "memory_clock_mhz": _Field(80)}
_APU_THROTTLING = {"throttling": _Field(120, 8)}

# By format and content revision.
_LAYOUTS: dict[tuple[int, int], _Layout] = {
    (1, 1): _Layout(96, _CARD),
    (1, 2): _Layout(104, _CARD),
    (1, 3): _Layout(120, _CARD | {"throttling": _Field(112, 8)}),
    (1, 4): _Layout(288, _list_instinct(48, 240, 280)),
    (1, 5): _Layout(360, _list_instinct(112, 312, 352)),
    (1, 6): _Layout(1664, _list_instinct(60, 264, 304, cycles=32)),
    (1, 7): _Layout(2208, _list_instinct(68, 296, 336, cycles=40)),
    (1, 8): _Layout(3360, _list_instinct(68, 296, 336, cycles=40)),
    (2, 1): _Layout(120, _APU),
    (2, 2): _Layout(128, _APU | _APU_THROTTLING),
    (2, 3): _Layout(152, _APU | _APU_THROTTLING),
    (2, 4): _Layout(
        168,
        _APU
        | _APU_THROTTLING
        | {
            "edge_c": _Field(4, scale=0.01),
            "busy_percent": _Field(28, scale=0.01),
            "power_w": _Field(40, scale=0.001),
        },
    ),
    (3, 0): _Layout(
        256,
        {
            "power_w": _Field(112, 4, scale=0.001),
            "clock_mhz": _Field(174),
            "memory_clock_mhz": _Field(186),
        },
    ),
}
# The revision in which eight bytes with unit, type, id and length come before each value, or array of
# values; nothing is aligned.
LISTED = (1, 9)
_FIELD_COUNT = struct.Struct("<4xI")
_LISTED_FIELD = struct.Struct("<Q")
# By type: two of each width, unsigned and signed.
_LISTED_CODES = "BbHhIiQq"
NO_UNIT = 0
_MHZ, _CELSIUS, _WATTS, _GT_PER_S, _TENTHS_OF_GT_PER_S, _PERCENT = 1, 2, 3, 6, 7, 10
# What is read of it: the id of each, and by its unit how many of ours one of its own is.
_LISTED_FIELDS: dict[str, tuple[int, dict[int, int]]] = {
    "junction_c": (0, {_CELSIUS: 1}),
    "memory_c": (1, {_CELSIUS: 1}),
    "power_w": (3, {_WATTS: 1}),
    "busy_percent": (4, {_PERCENT: 1}),
    "memory_busy_percent": (5, {_PERCENT: 1}),
    **{name: (9 + at, {NO_UNIT: 1}) for at, name in enumerate(_CYCLES)},
    "lanes": (16, {NO_UNIT: 1}),
    "link_speed": (17, {_GT_PER_S: 10, _TENTHS_OF_GT_PER_S: 1}),
    "clock_mhz": (33, {_MHZ: 1}),
    "memory_clock_mhz": (37, {_MHZ: 1}),
}
_FORMATS_OF_APUS = (2, 3)
_CODES: dict[_Width, str] = {2: "H", 4: "I", 8: "Q"}
# What no card reaches; beyond it a value is the firmware's mistake.
_MOST = {
    **dict.fromkeys(("edge_c", "junction_c", "memory_c"), 200.0),
    **dict.fromkeys(("busy_percent", "memory_busy_percent"), 100.0),
    **dict.fromkeys(("clock_mhz", "memory_clock_mhz"), 20_000.0),
    **dict.fromkeys(_CYCLES, float(2**32)),
    **{"power_w": 10_000.0, "lanes": 32.0, "link_speed": 2000.0, "throttling": float(2**64)},
}
# Generation of PCI Express by its speed in 0.1 GT/s.
_GENERATIONS = {25: 1, 50: 2, 80: 3, 160: 4, 320: 5, 640: 6}
# Bits of the status that is the same for all chips (`SMU_THROTTLER_…_BIT`).
_POWER_BITS = 0xFF
_CURRENT_BITS = 0xFF << 16
_HEAT_BITS = 0xFFFF << 32


class GpuMetrics(msgspec.Struct, frozen=True):
    """What the firmware measures; None is unsupported, or not in this revision."""

    revision: str
    is_apu: bool = False
    edge_c: float | None = None
    junction_c: float | None = None
    memory_c: float | None = None
    power_w: float | None = None
    busy_percent: float | None = None
    memory_busy_percent: float | None = None
    clock_mhz: int | None = None
    """The fastest of its compute dies."""
    memory_clock_mhz: int | None = None
    pcie_lanes: int | None = None
    pcie_generation: int | None = None
    throttle_reasons: tuple[ThrottleReason, ...] | None = None
    throttling: "Throttling | None" = None


class Throttling(NamedTuple):
    """In how many of its cycles the firmware has lowered the clocks; the counters start again at 2³²."""

    cycles: int
    # Of a signal of the board, of the power cap, and of the heat of chip, regulators or memory.
    board: int
    power: int
    heat: int

    def find_reasons(self, before: "Throttling") -> tuple[ThrottleReason, ...] | None:
        """Return why clocks were lowered since an earlier reading; None if no cycle has passed since."""
        if self.cycles == before.cycles:
            return None
        named: tuple[tuple[int, ThrottleReason], ...] = (
            (self.heat - before.heat, "thermal slowdown"),
            (self.board - before.board, "hardware slowdown"),
            (self.power - before.power, "power cap"),
        )
        return tuple(reason for risen, reason in named if risen)


def parse_metrics(data: bytes) -> GpuMetrics | None:
    """Parse a table; None if it is of an unknown revision, or shorter than its revision is."""
    if len(data) < _HEADER.size:
        return None
    size, form, content = _HEADER.unpack_from(data)
    layout = _LAYOUTS.get((form, content))
    if (form, content) == LISTED:
        listed = parse_listed(data[:size])
        if not listed:
            return None
        values = {name: _choose_listed(listed, name) for name in _LISTED_FIELDS}
    elif layout is None or size < layout.size or len(data) < layout.size:
        return None
    else:
        values = {name: _read(data, name, field) for name, field in layout.fields.items()}
    clock, memory_clock, lanes, speed, throttling = (
        None if value is None else int(value)
        for value in map(values.get, ("clock_mhz", "memory_clock_mhz", "lanes", "link_speed", "throttling"))
    )
    return GpuMetrics(
        revision=f"{form}.{content}",
        is_apu=form in _FORMATS_OF_APUS,
        edge_c=values.get("edge_c"),
        junction_c=values.get("junction_c"),
        memory_c=values.get("memory_c"),
        power_w=values.get("power_w"),
        busy_percent=values.get("busy_percent"),
        memory_busy_percent=values.get("memory_busy_percent"),
        clock_mhz=clock,
        memory_clock_mhz=memory_clock,
        pcie_lanes=lanes or None,
        pcie_generation=None if speed is None else _GENERATIONS.get(speed),
        throttle_reasons=None if throttling is None else _name_reasons(throttling),
        throttling=_find_throttling(values),
    )


class ListedValues(NamedTuple):
    unit: int
    # None is unsupported.
    numbers: tuple[int | None, ...]


def parse_listed(table: bytes) -> dict[int, ListedValues]:
    """Return the fields of a table that lists its fields, by id; none if it is cut off."""
    if len(table) < _FIELD_COUNT.size:
        return {}
    (count,) = _FIELD_COUNT.unpack_from(table)
    found: dict[int, ListedValues] = {}
    at = _FIELD_COUNT.size
    for _ in range(count):
        if at + _LISTED_FIELD.size > len(table):
            return {}
        (encoded,) = _LISTED_FIELD.unpack_from(table, at)
        unit, kind, name, length = encoded >> 24, encoded >> 20 & 0xF, encoded >> 10 & 0x3FF, encoded & 0x3FF
        at += _LISTED_FIELD.size
        if kind >= len(_LISTED_CODES):
            return {}
        values = struct.Struct(f"<{length}{_LISTED_CODES[kind]}")
        if at + values.size > len(table):
            return {}
        unsupported = -1 if kind % 2 else (1 << 8 * values.size // max(length, 1)) - 1
        numbers = values.unpack_from(table, at)
        found[name] = ListedValues(unit, tuple(None if it == unsupported else it for it in numbers))
        at += values.size
    return found


def _choose_listed(listed: dict[int, ListedValues], name: str) -> float | None:
    """Return a field of a list, the largest of an array; None if there is none that is possible."""
    number, scales = _LISTED_FIELDS[name]
    found = listed.get(number)
    scale = None if found is None else scales.get(found.unit)
    if found is None or scale is None:
        return None
    return max(
        (it * scale for it in found.numbers if it is not None and 0 <= it * scale <= _MOST[name]),
        default=None,
    )


def _find_throttling(values: dict[str, float | None]) -> Throttling | None:
    counts = [int(value) for value in map(values.get, _CYCLES) if value is not None]
    if len(counts) < len(_CYCLES):
        return None
    cycles, board, power, *heat = counts
    return Throttling(cycles, board, power, sum(heat))


def _read(data: bytes, name: str, field: _Field) -> float | None:
    """Return a field, the largest of an array; None if it is unsupported or impossible."""
    unsupported = (1 << 8 * field.width) - 1
    numbers: tuple[int, ...] = struct.unpack_from(f"<{field.length}{_CODES[field.width]}", data, field.offset)
    valid = [n for n in numbers if n != unsupported and n * field.scale <= _MOST[name]]
    if not valid:
        return None
    # Bits must not pass through a float.
    return max(valid) if field.scale == 1.0 else round(max(valid) * field.scale, 3)


def _name_reasons(bits: int) -> tuple[ThrottleReason, ...]:
    named: tuple[tuple[int, ThrottleReason], ...] = (
        (_HEAT_BITS, "thermal slowdown"),
        (_CURRENT_BITS, "hardware slowdown"),
        (_POWER_BITS, "power cap"),
    )
    return tuple(reason for mask, reason in named if bits & mask)
