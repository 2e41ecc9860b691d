"""The host's memory and load, and the control group's limit where that is lower."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.sources.conftest import SteppedClock
from tests.engine.sources.machine import FakeMachine
from vramscope.engine.model import HostSample
from vramscope.engine.sources.host import (
    CGROUP_INTERVAL_S,
    HostReader,
    Meminfo,
    find_memory_stat,
    parse_cgroup_mounts,
    parse_cgroup_paths,
    parse_cpu_times,
    parse_meminfo,
    parse_stall_us,
    parse_swapped_in,
)
from vramscope.engine.sources.kernel_files import KeptFile

GIB = 1 << 30
KIB_OF_GIB = 1 << 20
MEMINFO = (
    f"MemTotal:       {64 * KIB_OF_GIB} kB\nMemFree:        {4 * KIB_OF_GIB} kB\n"
    f"MemAvailable:   {48 * KIB_OF_GIB} kB\nHugePages_Total:       0\n"
    f"SwapTotal:      {8 * KIB_OF_GIB} kB\nSwapFree:       {7 * KIB_OF_GIB} kB\n"
)
V2_MOUNT = "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNT = "31 25 0:27 {root} /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    machine = FakeMachine(tmp_path / "root")
    machine.write("proc/meminfo", MEMINFO)
    return machine


def limit_v2(machine: FakeMachine, group: str, limit: str, current: int = 0, inactive_file: int = 0) -> None:
    folder = f"sys/fs/cgroup/{group}".rstrip("/")
    machine.write(f"{folder}/memory.max", f"{limit}\n")
    machine.write(f"{folder}/memory.current", f"{current}\n")
    machine.write(f"{folder}/memory.stat", f"anon 5\ninactive_file {inactive_file}\nactive_file 9\n")


def test_a_host_without_limits(machine: FakeMachine) -> None:
    assert HostReader(machine.root).read() == HostSample(
        total_bytes=64 * GIB,
        used_bytes=16 * GIB,
        available_bytes=48 * GIB,
        swap_total_bytes=8 * GIB,
        swap_used_bytes=1 * GIB,
    )


def test_this_very_machine_agrees_with_psutil() -> None:
    sample = HostReader().read()
    assert sample.total_bytes is not None
    assert sample.used_bytes is not None
    memory = psutil.virtual_memory()
    if sample.limit == "host":
        assert sample.total_bytes == memory.total
        assert abs(sample.used_bytes - (memory.total - memory.available)) < 2 * GIB
    else:
        assert sample.total_bytes < memory.total


def test_the_load_is_that_between_two_calls(machine: FakeMachine) -> None:
    reader = HostReader(machine.root)
    machine.write("proc/stat", "cpu  160 0 70 900 70 0 0 0 0 0\ncpu0 1 1 1 1\n")
    assert reader.read().cpu_percent == 40.0  # 80 of 200 ticks; waiting for a disk is not busy
    assert reader.read().cpu_percent is None  # no time has passed
    machine.write("proc/stat", "cpu  160 0 70 1000 70 0 0 0 0 0\n")
    assert reader.read().cpu_percent == 0.0


def test_the_tightest_group_above_us_counts(machine: FakeMachine) -> None:
    machine.write("proc/self/mountinfo", V2_MOUNT)
    machine.write("proc/self/cgroup", "0::/a/b/c\n")
    limit_v2(machine, "a", f"{32 * GIB}", current=9 * GIB)
    limit_v2(machine, "a/b", f"{16 * GIB}", current=8 * GIB, inactive_file=2 * GIB)
    limit_v2(machine, "a/b/c", "max", current=1 * GIB)
    sample = HostReader(machine.root).read()
    assert (sample.limit, sample.total_bytes) == ("cgroup", 16 * GIB)
    assert (sample.used_bytes, sample.available_bytes) == (6 * GIB, 10 * GIB)
    assert sample.swap_total_bytes == 8 * GIB


def test_a_limit_above_the_hosts_memory_is_none(machine: FakeMachine) -> None:
    machine.write("proc/self/mountinfo", V2_MOUNT)
    machine.write("proc/self/cgroup", "0::/a\n")
    limit_v2(machine, "a", f"{64 * GIB}", current=9 * GIB)
    assert HostReader(machine.root).read().limit == "host"


def test_what_the_host_has_left_bounds_what_the_group_has_left(machine: FakeMachine) -> None:
    machine.write("proc/self/mountinfo", V2_MOUNT)
    machine.write("proc/self/cgroup", "0::/a\n")
    limit_v2(machine, "a", f"{60 * GIB}", current=1 * GIB)
    assert HostReader(machine.root).read().available_bytes == 48 * GIB


def test_a_container_that_sees_only_its_own_group(machine: FakeMachine) -> None:
    machine.write("proc/self/mountinfo", V2_MOUNT)
    machine.write("proc/self/cgroup", "0::/\n")
    limit_v2(machine, "", f"{4 * GIB}", current=1 * GIB)
    machine.write("sys/fs/cgroup/memory.swap.max", f"{1 * GIB}\n")
    machine.write("sys/fs/cgroup/memory.swap.current", f"{GIB // 2}\n")
    sample = HostReader(machine.root).read()
    assert (sample.limit, sample.total_bytes, sample.used_bytes) == ("cgroup", 4 * GIB, 1 * GIB)
    assert (sample.swap_total_bytes, sample.swap_used_bytes) == (1 * GIB, GIB // 2)


@pytest.mark.parametrize("mount_root", ["/", "/docker/abc"])
def test_version_1_with_and_without_a_namespace(machine: FakeMachine, mount_root: str) -> None:
    machine.write("proc/self/mountinfo", V1_MOUNT.format(root=mount_root))
    machine.write("proc/self/cgroup", "4:cpu,cpuacct:/x\n9:memory:/docker/abc\n")
    folder = "sys/fs/cgroup/memory" + ("/docker/abc" if mount_root == "/" else "")
    machine.write(f"{folder}/memory.limit_in_bytes", f"{8 * GIB}\n")
    machine.write(f"{folder}/memory.usage_in_bytes", f"{3 * GIB}\n")
    machine.write(f"{folder}/memory.stat", f"inactive_file 1\ntotal_inactive_file {1 * GIB}\n")
    sample = HostReader(machine.root).read()
    assert (sample.limit, sample.total_bytes, sample.used_bytes) == ("cgroup", 8 * GIB, 2 * GIB)


def test_the_huge_number_of_version_1_means_no_limit(machine: FakeMachine) -> None:
    machine.write("proc/self/mountinfo", V1_MOUNT.format(root="/"))
    machine.write("proc/self/cgroup", "9:memory:/\n")
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n")
    assert HostReader(machine.root).read().limit == "host"


def test_a_limit_that_changes_is_followed_and_a_new_one_is_found(
    machine: FakeMachine, stepped_clock: SteppedClock
) -> None:
    machine.write("proc/self/mountinfo", V2_MOUNT)
    machine.write("proc/self/cgroup", "0::/a\n")
    limit_v2(machine, "a", "max")
    reader = HostReader(machine.root, stepped_clock)
    assert reader.read().limit == "host"
    limit_v2(machine, "a", f"{8 * GIB}", current=1 * GIB)
    stepped_clock.now_s += CGROUP_INTERVAL_S
    assert reader.read().total_bytes == 8 * GIB
    limit_v2(machine, "a", f"{6 * GIB}", current=2 * GIB)
    assert (reader.read().total_bytes, reader.read().used_bytes) == (6 * GIB, 2 * GIB)


def test_a_process_that_was_moved_is_limited_by_its_new_group(
    machine: FakeMachine, stepped_clock: SteppedClock
) -> None:
    machine.write("proc/self/mountinfo", V2_MOUNT)
    machine.write("proc/self/cgroup", "0::/a\n")
    limit_v2(machine, "a", f"{8 * GIB}", current=1 * GIB)
    limit_v2(machine, "b", f"{4 * GIB}", current=2 * GIB)
    reader = HostReader(machine.root, stepped_clock)
    assert reader.read().total_bytes == 8 * GIB
    machine.write("proc/self/cgroup", "0::/b\n")
    stepped_clock.now_s += CGROUP_INTERVAL_S
    assert (reader.read().total_bytes, reader.read().used_bytes) == (4 * GIB, 2 * GIB)


def test_a_file_stays_open_and_is_opened_anew_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "memory.max"
    file = KeptFile(str(path), most_bytes=6)
    assert file.read() is None
    path.write_text("123456789")
    assert file.read() == b"123456"
    path.write_text("7")
    assert file.read() == b"7"
    path.unlink()
    assert file.read() == b"7"
    file.close()
    assert file.read() is None


def test_a_file_whose_subject_is_gone_is_absent() -> None:
    """A file of a process that ended refuses to be read through its old descriptor, as a group's does."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        file = KeptFile(f"/proc/{child.pid}/stat")
        assert file.read() is not None
        child.communicate(b"\n")
    assert file.read() is None


def test_a_figure_is_found_by_its_whole_name_wherever_it_stands() -> None:
    text = b"inactive_file 1\ntotal_inactive_file 2\nanon x\nlast 3"
    names = (b"inactive_file", b"total_inactive_file", b"file", b"anon", b"last")
    assert [find_memory_stat(text, name) for name in names] == [1, 2, 0, 0, 3]


def test_a_damaged_figure_of_meminfo_is_unknown() -> None:
    meminfo = parse_meminfo(b"MemTotal: 12x kB\nXMemAvailable: 1 kB\nSwapTotal:\nSwapFree: 2 kB")
    assert meminfo == Meminfo(swap_free_bytes=2048)


def test_an_old_kernel_does_not_tell_what_is_available() -> None:
    text = b"MemTotal: 100 kB\nMemFree: 10 kB\nBuffers: 1 kB\nCached: 20 kB\nSReclaimable: 3 kB\n"
    assert parse_meminfo(text).available_bytes == 34 * 1024


def test_a_machine_without_proc_is_read_by_psutil(tmp_path: Path) -> None:
    reader = HostReader(tmp_path)
    sample = reader.read()
    assert sample.total_bytes == psutil.virtual_memory().total
    assert sample.available_bytes is not None


def test_unreadable_figures_are_unknown(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path / "root")
    machine.write("proc/meminfo", "nonsense\n")
    (machine.proc / "stat").unlink()
    assert HostReader(machine.root).read() == HostSample()


def test_reading_the_host_often_keeps_nothing() -> None:
    reader = HostReader()
    reader.read()
    for _ in range(200):
        reader.read()
    assert sys.getrefcount(reader) < 10


LINES = st.lists(st.binary(max_size=60) | st.sampled_from(MEMINFO.encode().splitlines()), max_size=30)


@given(LINES)
def test_any_meminfo_is_read_without_an_error(lines: list[bytes]) -> None:
    meminfo = parse_meminfo(b"\n".join(lines))
    for value in (meminfo.total_bytes, meminfo.available_bytes, meminfo.swap_total_bytes):
        assert value is None or value >= 0


@given(
    total=st.integers(0, 1 << 40),
    available=st.integers(0, 1 << 40),
    swap=st.integers(0, 1 << 40),
)
def test_meminfo_says_what_was_written(total: int, available: int, swap: int) -> None:
    text = f"MemTotal: {total} kB\nMemAvailable: {available} kB\nSwapTotal: {swap} kB\nSwapFree: {swap} kB\n"
    assert parse_meminfo(text.encode()) == Meminfo(
        total * 1024, min(total, available) * 1024, swap * 1024, swap * 1024
    )


@given(st.binary(max_size=200))
def test_any_processor_line_is_read_without_an_error(text: bytes) -> None:
    times = parse_cpu_times(text)
    assert times is None or 0 <= times[0] <= times[1]


@given(st.text(max_size=300))
def test_any_control_group_file_is_read_without_an_error(text: str) -> None:
    assert find_memory_stat(text.encode(errors="replace"), b"inactive_file") >= 0
    for path in parse_cgroup_paths(text):
        assert path is None or path.startswith("/")
    parse_cgroup_mounts(text)


@given(
    path=st.text(st.characters(codec="ascii", exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e"), max_size=40),
    number=st.integers(1, 20),
)
def test_group_paths_are_found_whatever_they_hold(path: str, number: int) -> None:
    text = f"{number}:cpu,memory:/{path}\n0::/{path}x\n"
    assert parse_cgroup_paths(text) == (f"/{path}", f"/{path}x")


def test_escaped_mount_points_are_read() -> None:
    line = "30 25 0:26 /a\\040b /mnt/c\\134d rw shared:9 - cgroup2 cgroup2 rw\n"
    assert parse_cgroup_mounts(line) == [(True, "/a b", "/mnt/c\\d")]


PSI = "some avg10=2.00 avg60=1.00 total={some}\nfull avg10=1.00 avg60=0.50 avg300=0.00 total={full}\n"


def test_stalls_are_read_once_they_are_asked_for(fake_root: Path, stepped_clock: SteppedClock) -> None:
    machine = FakeMachine(fake_root)
    machine.write("proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 512 kB\n")

    def write(full_us: int, pages: int) -> None:
        machine.write("proc/pressure/memory", PSI.format(some=9 * full_us, full=full_us))
        machine.write("proc/vmstat", f"nr_free_pages 9\npswpin {pages}\npswpout 7\n")

    write(1000, 10)
    reader = HostReader(fake_root, stepped_clock)
    assert reader.read().stall_percent is None
    reader.watch_stalls()
    assert reader.read().stall_percent is None, "one reading of a counter is no rate"
    stepped_clock.now_s += 2.0
    write(1000 + 500_000, 10 + 1000)
    host = reader.read()
    assert host.stall_percent == 25.0
    assert host.swap_in_bytes_per_s == 500.0 * os.sysconf("SC_PAGE_SIZE")
    reader.watch_stalls()
    stepped_clock.now_s += 2.0
    assert reader.read().stall_percent == 0.0


@pytest.mark.parametrize(
    ("content", "load"),
    [
        ("3.27 2.10 1.05 2/811 4242\n", 3.27),
        ("0.00 0.00 0.00 1/1 1\n", 0.0),
        ("", None),
        ("nan 1 1", None),
        ("1e9 1 1", None),
        ("-1.00 1", None),
        ("\0" * 80, None),
        ("9" * 80, None),
    ],
)
def test_the_load_is_that_of_the_last_minute(fake_root: Path, content: str, load: float | None) -> None:
    machine = FakeMachine(fake_root)
    machine.write("proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 512 kB\n")
    machine.write("proc/loadavg", content)
    assert HostReader(fake_root).read().load_average == load


@pytest.mark.parametrize(
    "content", ["", "full", "full avg10=1 total=", "full total=x\n", "\0" * 600, "9" * 600]
)
def test_a_kernel_without_stalls_has_none(fake_root: Path, stepped_clock: SteppedClock, content: str) -> None:
    machine = FakeMachine(fake_root)
    machine.write("proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 512 kB\n")
    machine.write("proc/pressure/memory", content)
    machine.write("proc/vmstat", content)
    reader = HostReader(fake_root, stepped_clock)
    reader.watch_stalls()
    reader.read()
    stepped_clock.now_s += 1.0
    host = reader.read()
    assert (host.stall_percent, host.swap_in_bytes_per_s) == (None, None)
    assert host.total_bytes == 1 << 20


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"full ", b"total=", b"pswpin "]))
def test_stalls_of_any_content_are_a_count_or_none(data: bytes, mark: bytes) -> None:
    for parse in (parse_stall_us, parse_swapped_in):
        found = parse(data + b"\n" + mark + data)
        assert found is None or found >= 0
