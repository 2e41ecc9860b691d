"""Errors of GPU drivers in the kernel's log, in the words of the drivers; and in any other."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.engine.sources.kernel_log import KernelLog, Report, is_at, parse_message, parse_records


@pytest.mark.parametrize(
    ("message", "kind", "address", "code", "pid"),
    [
        (
            "NVRM: Xid (PCI:0000:ca:00): 31, pid=1587983, name=exe, Ch 0000000a, intr 00000000. MMU Fault: "
            "ENGINE GRAPHICS GPC5 GPCCLIENT_T1_5 faulted @ 0x2ae1_d6600000.",
            *("xid", "0000:ca:00", 31, 1587983),
        ),
        (
            "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            *("xid", "0000:05:00", 79, None),
        ),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "xid", "0000:03:00", 14, None),
        (
            "NVRM: Xid (PCI:0000:41:00 GPU-I:02): 94, pid=812, name=python, Contained",
            "xid",
            "0000:41:00",
            94,
            812,
        ),
        (
            "NVRM: Xid (PCI:0000:10:1c): 63, pid=1850, Row Remapper: New row marked for remapping",
            *("xid", "0000:10:1c", 63, 1850),
        ),
        ("amdgpu 0000:87:00.0: amdgpu: GPU reset begin!", "reset", "0000:87:00.0", None, None),
        (
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring comp_1.1.0 timeout, signaled seq=81, emitted "
            "seq=83",
            *("hang", None, None, None),
        ),
        (
            "amdgpu 0000:0a:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=3295304, emitted seq=3295306",
            *("hang", "0000:0a:00.0", None, None),
        ),
        (
            "xe 0000:03:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:03:00.0 as wedged.",
            *("wedged", "0000:03:00.0", None, None),
        ),
        ("xe 0000:03:00.0: [drm] GT0: Engine reset: engine_class=ccs", "reset", "0000:03:00.0", None, None),
        (
            "i915 0000:00:02.0: [drm] GPU HANG: ecode 9:1:e757fefe, in test_g_monitor_ [25627]",
            *("hang", "0000:00:02.0", None, 25627),
        ),
    ],
)
def test_messages_of_the_drivers(
    message: str, kind: str, address: str | None, code: int | None, pid: int | None
) -> None:
    report = parse_message(message)
    assert report is not None
    assert report[:4] == (kind, address, code, pid)
    assert report.text in message


@pytest.mark.parametrize(
    "message",
    [
        "amdgpu 0000:87:00.0: amdgpu: GPU reset succeeded, trying to resume",
        "amdgpu 0000:0b:00.0: amdgpu: SMU is initialized successfully!",
        "xe 0000:03:00.0: [drm] Using GuC firmware from xe/bmg_guc_70.bin version 70.36.0",
        "i915 0000:00:02.0: [drm] VT-d active for gfx access",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05",
        "nvme 0000:05:00.0: resetting controller",
        "usb 1-1: reset high-speed USB device number 2",
        "",
    ],
)
def test_messages_that_report_no_error(message: str) -> None:
    assert parse_message(message) is None


def test_a_report_is_of_the_device_at_its_address() -> None:
    assert is_at("0000:41:00.0", "0000:41:00")
    assert is_at("0000:41:00.0", "0000:41:00.0")
    assert not is_at("0000:42:00.0", "0000:41:00")
    assert not is_at(None, "0000:41:00")
    assert not is_at("0000:41:00.0", None)


def append(log: Path, message: str, *, since_boot_s: float | None = None) -> None:
    since_boot_s = time.clock_gettime(time.CLOCK_MONOTONIC) if since_boot_s is None else since_boot_s
    with log.open("a") as file:
        file.write(
            f"3,4711,{since_boot_s * 1e6:.0f},-;{message}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:41:00.0\n"
        )


def test_only_what_is_new_is_read_with_its_time(tmp_path: Path) -> None:
    path = tmp_path / "dev/kmsg"
    path.parent.mkdir()
    append(path, "NVRM: Xid (PCI:0000:41:00): 13, pid=1, name=a, old")
    log = KernelLog(tmp_path)
    assert log.read() == []
    append(path, "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.")
    append(path, "usb 1-1: reset high-speed USB device number 2")
    [event] = log.read()
    assert (event.code, event.pci_address, event.source) == (79, "0000:41:00", "kernel log")
    assert abs(event.time_s - time.time()) < 5.0
    assert log.read() == []
    log.close()
    assert log.read() == []
    assert [it.code for it in KernelLog(tmp_path, is_from_start=True).read()] == [13, 79]


def test_the_time_of_an_older_record_is_when_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "dev/kmsg"
    path.parent.mkdir()
    path.write_text("")
    log = KernelLog(tmp_path)
    append(
        path,
        "NVRM: Xid (PCI:0000:41:00): 79, lost",
        since_boot_s=time.clock_gettime(time.CLOCK_MONOTONIC) - 30.0,
    )
    [event] = log.read()
    assert 25.0 < time.time() - event.time_s < 35.0


def test_a_log_that_is_absent_or_refused_says_so(tmp_path: Path) -> None:
    log = KernelLog(tmp_path)
    assert not log.is_readable
    assert log.read() == []


def test_a_log_without_news_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    writer = os.open(tmp_path / "dev/kmsg", os.O_RDWR)
    try:
        log = KernelLog(tmp_path, is_from_start=True)  # a pipe has no end to begin at
        assert log.is_readable
        assert log.read() == []
    finally:
        os.close(writer)


_PART = st.sampled_from(
    [
        *(
            "NVRM: Xid (PCI:",
            "0000:41:00",
            "): ",
            "79",
            ", pid=",
            "99999999",
            "amdgpu ",
            "0000:c1:00.0",
            ": ",
        ),
        *("xe ", "GPU reset begin!", "ring ", " timeout", "GPU HANG: ecode", " in x [", "]", "\x1b[31m"),
        *("\u202e", "9" * 30),
    ]
)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.one_of(_PART, st.text(max_size=6)), max_size=12))
def test_messages_of_any_content_are_a_report_or_none(parts: list[str]) -> None:
    report = parse_message("".join(parts))
    if report is not None:
        assert isinstance(report, Report)
        assert report.code is None or 0 <= report.code <= 10_000
        assert report.pid is None or 0 < report.pid <= 1 << 22
        assert len(report.text) <= 200
        assert "\x1b" not in report.text


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=30), st.sampled_from([b"3,1,", b"5,-;", b"\n", b"9" * 40]))))
def test_records_of_any_content_have_a_time(parts: list[bytes]) -> None:
    assert all(since_boot_s >= 0.0 for since_boot_s, _ in parse_records(b"".join(parts)))
