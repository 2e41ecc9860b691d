"""Errors of GPU drivers in the kernel's log: NVIDIA's XIDs, and hangs and resets of amdgpu, xe and i915.

Format of /dev/kmsg: the kernel's `Documentation/ABI/testing/dev-kmsg`; a reading returns one record, such as
`3,4711,98765432,-;NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.`: priority, number, and µs
since boot. Where `kernel.dmesg_restrict` is set only root may read it.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..model import DeviceEvent
from ..model.sample import EventKind
from ..text import make_printable

# Longest record of the kernel, and most records of one reading; a busy log is caught up with in later ones.
_RECORD_BYTES = 8192
_MOST_RECORDS = 512
# More than the log can hold.
_MOST_RECORDS_IN_ALL = 1 << 16
_MOST_TEXT_CHARS = 200
_MOST_PID = 1 << 22
_MOST_XID = 10_000
_ADDRESS = r"(?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)"
# NVIDIA's driver writes no function, and some versions no domain; a MIG instance follows the address.
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}[^)]*\): (?P<code>\d{{1,5}})", re.IGNORECASE)
_PID = re.compile(r"\bpid[=: ]'?(?P<pid>\d{1,7})|\bin \S{1,32} \[(?P<bracketed>\d{1,7})\]")
_DRIVER = re.compile(rf"\b(?:amdgpu|xe|i915) {_ADDRESS}:", re.IGNORECASE)
# What a message of these drivers must contain to be one of a kind; the first that matches counts.
_KINDS: tuple[tuple[re.Pattern[str], EventKind], ...] = (
    (re.compile(r"device lost from bus"), "lost"),
    (re.compile(r"declared device \S+ as wedged"), "wedged"),
    (re.compile(r"uncorrectable hardware errors? detected"), "memory error"),
    (re.compile(r"\bring \S+ timeout|GPU HANG:|Timedout job:"), "hang"),
    (
        re.compile(
            r"GPU reset begin|GT\d+: reset (?:started|queued)|Engine reset:|Resetting (?:chip|\w+\d) for"
        ),
        "reset",
    ),
)
# A message without any of these is not of a GPU's driver; most are sorted out by that.
_MARKS = (b"NVRM: Xid", b"amdgpu", b"xe ", b"i915 ", b"GPU HANG:")


class Report(NamedTuple):
    """What one message says."""

    kind: EventKind
    # As the kernel spells it, without the function where the message has none.
    address: str | None
    code: int | None
    pid: int | None
    text: str


def parse_message(message: str) -> Report | None:
    """Return what a message of a GPU's driver reports; None for all others."""
    xid = _XID.search(message)
    kind: EventKind | None = "xid" if xid is not None else None
    driver = _DRIVER.search(message) if xid is None else None
    # Some of amdgpu and of older versions of i915 name no device.
    if xid is None and (driver is not None or "amdgpu" in message or "GPU HANG:" in message):
        kind = next((kind for pattern, kind in _KINDS if pattern.search(message)), None)
    if kind is None:
        return None
    named = xid or driver
    process = _PID.search(message)
    pid = 0 if process is None else int(process["pid"] or process["bracketed"])
    code = None if xid is None else int(xid["code"])
    if code is not None and code > _MOST_XID:
        return None
    return Report(
        kind,
        None if named is None else _spell(named["address"]),
        code,
        pid if 0 < pid <= _MOST_PID else None,
        make_printable(message, _MOST_TEXT_CHARS),
    )


def _spell(address: str) -> str:
    parts = address.lower().split(":")
    domain = parts[0][-4:] if len(parts) == 3 else "0000"
    return ":".join((domain, *parts[-2:]))


def is_at(pci_address: str | None, reported: str | None) -> bool:
    """Return whether a device is the one of a report, which may lack the function."""
    return pci_address is not None and reported is not None and pci_address.startswith(reported)


def parse_records(data: bytes) -> Iterator[tuple[float, str]]:
    """Yield seconds since boot and message of each record; lines that continue one are left out."""
    for line in data.split(b"\n"):
        head, separator, message = line.partition(b";")
        fields = head.split(b",")
        if separator and len(fields) >= 4 and fields[2].isdigit() and len(fields[2]) <= 18:
            yield int(fields[2]) / 1e6, message.decode("utf-8", "replace")


class KernelLog:
    """Reads what was written into the log since the reading before; asking costs one call to the kernel.

    Args:
        root: Stands for `/`.
        is_from_start: Whether the first reading returns what the log still has of earlier.
    """

    def __init__(self, root: Path = Path("/"), *, is_from_start: bool = False) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not is_from_start:
                os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError:  # absent, or for root alone
            self.close()

    @property
    def is_readable(self) -> bool:
        return self._descriptor is not None

    def read(self, most_records: int = _MOST_RECORDS) -> list[DeviceEvent]:
        """Return the errors of GPU drivers; `device_uuid` is for the caller to find."""
        found: list[DeviceEvent] = []
        descriptor = self._descriptor
        if descriptor is None:
            return found
        for _ in range(most_records):
            try:
                data = os.read(descriptor, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # older records were overwritten before they were read
                continue
            except OSError:
                self.close()
                break
            if not data:
                break
            if any(mark in data for mark in _MARKS):
                found += _find_events(data)
        return found

    def read_all(self) -> list[DeviceEvent]:
        """Return all that there is, for one who asks once."""
        return self.read(_MOST_RECORDS_IN_ALL)

    def close(self) -> None:
        descriptor = self._descriptor
        self._descriptor = None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def _find_events(data: bytes) -> Iterator[DeviceEvent]:
    now_s = time.time()
    boot_s = now_s - time.clock_gettime(time.CLOCK_MONOTONIC)
    for since_boot_s, message in parse_records(data):
        report = parse_message(message)
        if report is not None:
            yield DeviceEvent(
                # The clock of the log stands still while the machine sleeps.
                time_s=min(now_s, boot_s + since_boot_s),
                kind=report.kind,
                source="kernel log",
                pci_address=report.address,
                code=report.code,
                pid=report.pid,
                text=report.text,
            )
