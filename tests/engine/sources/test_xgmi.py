"""Throughput of AMD's links between GPUs: bytes laid out as the kernel's structs, through the reader."""

import ctypes
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.sources.conftest import SteppedClock
from tests.engine.sources.drm_root import (
    MI300_METRICS,
    NAVI_METRICS,
    DrmMachine,
    encode_listed,
    make_listed,
)
from vramscope.engine.model import DeviceActivity
from vramscope.engine.sources.drm.amd import AmdReader
from vramscope.engine.sources.drm.gpu_metrics import parse_metrics
from vramscope.engine.sources.drm.source import DrmSource
from vramscope.engine.sources.drm.xgmi import XgmiMeter, XgmiRates, parse_counts

U8, U16, U32, U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
Fields = list[tuple[str, Any]]

_HEADER: Fields = [("size", U16), ("form", U8), ("content", U8)]
_TEMPERATURES_POWER_LOAD: Fields = [("first", U16 * 6)]
_ENERGY_AND_TIME: Fields = [("energy_accumulator", U64), ("system_clock_counter", U64)]
_THROTTLE: Fields = [("throttle_status", U32), ("gfxclk_lock_status", U32)]
_RESIDENCIES: Fields = [("accumulation_counter", U32), ("residencies", U32 * 5), ("gfxclk_lock_status", U32)]
_LINKS: Fields = [
    ("pcie_link_width", U16),
    ("pcie_link_speed", U16),
    ("xgmi_link_width", U16),
    ("xgmi_link_speed", U16),
    ("gfx_activity_acc", U32),
    ("mem_activity_acc", U32),
    ("pcie", U64 * 5),
]
_NAK: Fields = [("pcie_nak_sent_count_acc", U32), ("pcie_nak_rcvd_count_acc", U32)]
_XGMI: Fields = [("xgmi_read_data_acc", U64 * 8), ("xgmi_write_data_acc", U64 * 8)]
_STATUS: Fields = [("xgmi_link_status", U16 * 8), ("padding", U16)]
_CLOCKS: Fields = [("firmware_timestamp", U64), ("clocks", U16 * 20), ("current_uclk", U16), ("last", U16)]


def partition(jpeg: int, counters: int) -> Fields:
    class Partition(ctypes.Structure):
        _fields_ = [("busy", U32 * 8), ("jpeg", U16 * jpeg), ("vcn", U16 * 4), ("acc", U64 * 8 * counters)]

    return [("xcp_stats", Partition * 8), ("pcie_lc_perf_other_end_recovery", U32)]


def declare(revision: int) -> Fields:
    """Return the fields of `gpu_metrics_v1_…` in the order of kgd_pp_interface.h."""
    start = _HEADER + _TEMPERATURES_POWER_LOAD
    bandwidth: Fields = [("mem_max_bandwidth", U64)]
    of_old = _ENERGY_AND_TIME + _THROTTLE + _LINKS
    of_new = _ENERGY_AND_TIME + _RESIDENCIES + _LINKS + _NAK + _XGMI
    return {
        4: [*start, ("vcn", U16 * 4), *of_old, *_XGMI, *_CLOCKS],
        5: [*start, ("vcn", U16 * 4), ("jpeg", U16 * 32), *of_old, *_NAK, *_XGMI, *_CLOCKS],
        6: [*start, *of_new, *_CLOCKS, *partition(32, 1)],
        7: [*start, *bandwidth, *of_new, *_STATUS, *_CLOCKS, *partition(32, 2)],
        8: [*start, *bandwidth, *of_new, *_STATUS, *_CLOCKS, *partition(40, 4)],
    }[revision]


Counts = list[int | None]
Make = Callable[[Counts, Counts, int], bytes]


def fill(counts: Counts) -> list[int]:
    return [(1 << 64) - 1 if count is None else count for count in counts]


def make_fixed(revision: int) -> Make:
    class Table(ctypes.Structure):
        _fields_ = declare(revision)

    def make(read: Counts, written: Counts, width: int) -> bytes:
        table = Table.from_buffer_copy(b"\xff" * ctypes.sizeof(Table))
        table.size, table.form, table.content = ctypes.sizeof(Table), 1, revision
        table.xgmi_link_width = width
        table.xgmi_read_data_acc[:], table.xgmi_write_data_acc[:] = fill(read), fill(written)
        return bytes(table)

    return make


def make_listed_links(read: Counts, written: Counts, width: int, *, data_unit: int = 9) -> bytes:
    return make_listed(
        encode_listed(2, 2, 0, 71),  # hotspot temperature
        encode_listed(0, 4, 15, 0),  # lock status
        encode_listed(0, 2, 18, width),
        encode_listed(6, 2, 19, 32),
        encode_listed(data_unit, 6, 29, *fill(read)),
        encode_listed(data_unit, 6, 30, *fill(written)),
        encode_listed(0, 2, 31, *[1] * 8),
        encode_listed(1, 2, 33, *[2101] * 8),  # clocks
        encode_listed(10, 0, 900, 1, 2, 3),  # one of a later driver
    )


REVISIONS: dict[str, Make] = {f"1.{it}": make_fixed(it) for it in range(4, 9)} | {"1.9": make_listed_links}
# Eight places, seven links.
READ: Counts = [10 << 20, 11 << 20, 12 << 20, 13 << 20, 14 << 20, 15 << 20, 16 << 20, None]
WRITTEN: Counts = [20 << 20, 21 << 20, 22 << 20, 23 << 20, 24 << 20, 25 << 20, 26 << 20, None]


def grow(counts: Counts, by: int) -> Counts:
    return [None if count is None else count + by for count in counts]


def measure(*tables: bytes | None, interval_s: float = 4.0) -> XgmiRates:
    meter = XgmiMeter()
    rates = [meter.add(table, 1000.0 + interval_s * number) for number, table in enumerate(tables)]
    assert rates[0] == XgmiRates(), "one reading of a counter is no rate"
    return rates[-1]


@pytest.mark.parametrize("revision", REVISIONS)
def test_counters_are_where_the_kernel_puts_them(revision: str) -> None:
    make = REVISIONS[revision]
    counts = parse_counts(make(READ, WRITTEN, 16))
    assert counts is not None
    assert (counts.read, counts.written) == (
        {link: count for link, count in enumerate(READ) if count is not None},
        {link: count for link, count in enumerate(WRITTEN) if count is not None},
    )
    later = make(grow(READ, 4 << 20), grow(WRITTEN, 1 << 20), 16)
    rates = measure(make(READ, WRITTEN, 16), later)
    assert rates.sent_bytes_per_s == pytest.approx(7 << 28, 5e-3)
    assert rates.received_bytes_per_s == pytest.approx(7 << 30, 5e-3)
    assert parse_counts(later[:-1]) is None, "cut off"


@pytest.mark.parametrize("revision", range(4, 9))
def test_clocks_and_bus_are_where_the_kernel_puts_them(revision: int) -> None:
    class Table(ctypes.Structure):
        _fields_ = declare(revision)

    table = Table.from_buffer_copy(b"\xff" * ctypes.sizeof(Table))
    table.size, table.form, table.content = ctypes.sizeof(Table), 1, revision
    table.pcie_link_width, table.pcie_link_speed = 16, 320
    table.clocks[:8], table.current_uclk = [2100] * 8, 1300
    metrics = parse_metrics(bytes(table))
    assert metrics is not None
    assert (metrics.clock_mhz, metrics.memory_clock_mhz) == (2100, 1300)
    assert (metrics.pcie_lanes, metrics.pcie_generation) == (16, 5)


def test_the_structs_of_this_test_are_as_large_as_the_kernels() -> None:
    sizes = {name: len(make(READ, WRITTEN, 16)) for name, make in REVISIONS.items() if name != "1.9"}
    assert sizes == {"1.4": 288, "1.5": 360, "1.6": 1664, "1.7": 2208, "1.8": 3360}


@pytest.mark.parametrize("revision", REVISIONS)
def test_idle_links_send_nothing_and_a_gpu_without_links_is_unmeasured(revision: str) -> None:
    make = REVISIONS[revision]
    none: Counts = [None] * 8
    zeros: Counts = [0] * 8
    assert measure(*[make(READ, WRITTEN, 16)] * 2) == (0.0, 0.0)
    assert measure(*[make(zeros, zeros, 16)] * 2) == (0.0, 0.0)
    assert measure(*[make(zeros, zeros, 0)] * 2) == (None, None)
    assert measure(*[make(none, none, 0xFFFF)] * 2) == (None, None)
    assert measure(*[make(none, none, 16)] * 2) == (None, None)


@pytest.mark.parametrize("revision", ["1.6", "1.9"])
def test_a_counter_that_falls_back_or_is_unsupported_makes_its_direction_unmeasured(revision: str) -> None:
    make = REVISIONS[revision]
    first = make(READ, WRITTEN, 16)
    fallen: Counts = [0, *grow(READ, 9 << 20)[1:]]
    gone: Counts = [None, *grow(READ, 9 << 20)[1:]]
    for read in (fallen, gone):
        rates = measure(first, make(read, grow(WRITTEN, 1 << 20), 16))
        assert rates.received_bytes_per_s is None
        assert rates.sent_bytes_per_s is not None
    begun_again = make(fallen, WRITTEN, 16)
    assert measure(first, begun_again, begun_again) == (0.0, 0.0), "measured from the reset on"
    assert measure(make(gone, WRITTEN, 16), make(fallen, WRITTEN, 16)).received_bytes_per_s is None
    assert measure(first, None, first) == (None, None), "a table that could not be read"


def test_what_no_link_carries_is_the_firmwares_mistake() -> None:
    make = REVISIONS["1.6"]
    assert measure(make(READ, READ, 16), make(grow(READ, 1 << 40), grow(READ, 1), 16)) == (1790.0, None)
    assert measure(*[make(READ, READ, 16)] * 2, interval_s=0.0) == (None, None)


def test_a_unit_that_is_not_kilobytes_is_not_guessed() -> None:
    assert parse_counts(make_listed_links(READ, WRITTEN, 0, data_unit=8)) is None


@pytest.mark.parametrize(
    "table", [NAVI_METRICS, MI300_METRICS[:100], b"", b"\x08\x00\x01\x09\xff\xff\xff\x7f"]
)
def test_tables_without_these_counters(table: bytes) -> None:
    assert parse_counts(table) is None


def damage(table: bytes, changes: list[tuple[int, bytes]], length: int) -> bytes:
    damaged = bytearray(table)
    for at, data in changes:
        damaged[at : at + len(data)] = data
    return bytes(damaged[:length])


_TABLE = st.one_of(
    st.binary(max_size=400),
    st.builds(
        lambda content, body: struct.pack("<HBB", 0xFFFF, 1, content) + body,
        st.integers(3, 10),
        st.binary(max_size=400),
    ),
    st.builds(
        damage,
        st.sampled_from([make(READ, WRITTEN, 16) for make in REVISIONS.values()]),
        st.lists(st.tuples(st.integers(4, 340), st.binary(min_size=1, max_size=16)), max_size=4),
        st.one_of(st.integers(0, 400), st.just(4000)),
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_TABLE, min_size=2, max_size=4))
def test_tables_of_any_content_are_possible_rates_or_none(tables: list[bytes]) -> None:
    meter = XgmiMeter()
    for number, table in enumerate(tables):
        for rate in meter.add(table, float(number)):
            assert rate is None or 0.0 <= rate <= 1e13


@pytest.fixture
def machine(fake_root: Path) -> DrmMachine:
    return DrmMachine(fake_root)


def test_a_reader_measures_it_between_two_readings_of_the_hardware(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    folder = machine.add_mi300x()
    [reader] = DrmSource(machine.root, stepped_clock).discover()
    assert isinstance(reader, AmdReader)
    seen: list[DeviceActivity] = []
    for busy_gib_per_s in (0, 40, 0):
        reader.read_memory()
        table = bytearray((machine.root / folder / "gpu_metrics").read_bytes())
        for link in range(7):
            for at, share in ((128 + 8 * link, 1), (192 + 8 * link, 2)):
                (count,) = struct.unpack_from("<Q", table, at)
                struct.pack_into("<Q", table, at, count + (busy_gib_per_s << 20) * 4 // share)
        machine.write(f"{folder}/gpu_metrics", bytes(table))
        activity = reader.read_hardware().activity
        assert activity is not None
        seen.append(activity)
        for _ in range(4):
            stepped_clock.now_s += 1.0
            reader.read_memory()
    first, busy, idle = [(it.xgmi_sent_bytes_per_s, it.xgmi_received_bytes_per_s) for it in seen]
    assert (first, idle) == ((None, None), (0.0, 0.0))
    assert busy == (float(f"{140 << 30:.3g}"), float(f"{280 << 30:.3g}"))
    assert all(a.sm_clock_mhz == b.sm_clock_mhz for a, b in pairwise(seen))


def test_a_gpu_without_these_links_has_none(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    machine.add_navi()
    [reader] = DrmSource(machine.root, stepped_clock).discover()
    assert isinstance(reader, AmdReader)
    for _ in range(3):
        activity = reader.read_hardware().activity
        assert activity is not None
        assert (activity.xgmi_sent_bytes_per_s, activity.xgmi_received_bytes_per_s) == (None, None)
        stepped_clock.now_s += 4.0
