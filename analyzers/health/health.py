"""Findings on the health of devices: errors that drivers report, and memory errors that ECC counts.

An error is a fact and needs no dwell. `docs/verdicts.md` has the rules.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...engine.model import (
    SEVERITIES,
    DeviceEvent,
    DeviceHardware,
    DeviceSample,
    Finding,
    RankSample,
    Sample,
    Severity,
)
from ..findings.driver_tools import NVIDIA, OTHER, find_tools
from ..findings.evidence import PROCESS, EvidenceKey
from ..findings.lifecycle import NodeClocks, Passage, begin_finding, close_finding, restate
from ..findings.subjects import name_device, name_rank
from .codes import Meaning, advise, explain_event

DEVICE_ERROR = "device_error"
MEMORY_ERRORS = "memory_errors"
KINDS = (DEVICE_ERROR, MEMORY_ERRORS)

# How long nothing may be reported before a finding closes: nobody reports that a device is well again.
CLEAN_S = 600.0
CLEAN_SEVERE_S = 3600.0
# A process that ends so soon after an error of its device ended because of it.
ENDED_WITHIN_S = 30.0
MOST_OPEN = 256

_CODE = EvidenceKey("error")
_COUNT = EvidenceKey("times")
_LAST = EvidenceKey("last", "s")
_TEXT = EvidenceKey("reported")
_ENDED = EvidenceKey("ended because of it")
_UNCORRECTED = EvidenceKey("uncorrected errors")
_PENDING = EvidenceKey("waits for a reset")

_METHOD = "The driver reported it, to NVML or in the kernel's log"
_METHOD_MEMORY = "The driver counts the errors of memory that ECC finds and cannot correct"


def find_last_xid(findings: Iterable[Finding]) -> dict[str, int]:
    """Return the number of the newest XID of each device, by its UUID, as far as findings have one."""
    newest: dict[str, tuple[float, int]] = {}
    for finding in findings:
        name, _, code = str(_CODE.read(finding) or "").partition(" ")
        if finding.kind != DEVICE_ERROR or finding.device_uuid is None or name != "XID" or not code.isdigit():
            continue
        found = (_LAST.read_number(finding) or finding.updated_s, int(code))
        newest[finding.device_uuid] = max(found, newest.get(finding.device_uuid, found))
    return {uuid: code for uuid, (_, code) in newest.items()}


class _Key(NamedTuple):
    node: str
    # UUID of the device, else its address, else the driver's kind of error alone.
    device: str
    error: str


def _is_severe(severity: Severity) -> bool:
    return SEVERITIES.index(severity) >= SEVERITIES.index("high")


class HealthAnalyzer:
    """Opens a finding for each kind of error of each device, and one for each device with memory errors."""

    name = "health"

    def __init__(self) -> None:
        self._clocks = NodeClocks()
        self._open: dict[_Key, Finding] = {}
        # Uncorrected errors by node and device at the sample before.
        self._counts: dict[tuple[str, str], int] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        if self._clocks.note(sample) is Passage.LATE:
            return ()
        found: list[Finding] = []
        for event in sample.events:
            found += self._count(sample, event)
        for device in sample.devices:
            if device.hardware is not None and device.parent_uuid is None:
                found += self._observe_memory(sample, device, device.hardware)
        if self._open:
            found += self._note_ended(sample)
            found += self._close_clean(sample)
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of these kinds."""
        for finding in findings:
            if finding.kind in KINDS and finding.is_open:
                error = str(_CODE.read(finding) or "")
                self._open[_Key(finding.node, finding.device_uuid or finding.device or "", error)] = finding

    def _count(self, sample: Sample, event: DeviceEvent) -> Iterator[Finding]:
        device = next((it for it in sample.devices if it.uuid == event.device_uuid), None)
        key = _Key(sample.node, event.device_uuid or event.pci_address or "", event.name)
        finding = self._open.get(key)
        if finding is not None and event.time_s <= (_LAST.read_number(finding) or 0.0):
            return  # samples carry it for a minute, and a predecessor may have counted it
        if finding is None and len(self._open) >= MOST_OPEN:
            return
        meaning = explain_event(event)
        tools = NVIDIA if event.kind == "xid" else OTHER if device is None else find_tools(device)
        times = 1 + (0 if finding is None else _COUNT.read_count(finding) or 0)
        opened = finding or begin_finding(
            DEVICE_ERROR,
            sample.node,
            sample.time_s,
            device_uuid=event.device_uuid,
            about=f"{key.device}#{key.error}",
        )
        ranks = [rank for rank in sample.ranks if event.pid is not None and rank.pid == event.pid]
        self._open[key] = restate(
            opened,
            sample.time_s,
            device=None if device is None else device.label,
            severity=meaning.severity,
            title=_word(event, device, meaning, times, ranks),
            evidence=(
                _CODE(key.error),
                _COUNT(times),
                _LAST(event.time_s),
                *([_TEXT(event.text)] if event.text else []),
                *([PROCESS(event.pid)] if event.pid is not None else []),
            ),
            method=_METHOD,
            advice=advise(meaning, tools, device),
        )
        yield self._open[key]

    def _observe_memory(
        self, sample: Sample, device: DeviceSample, hardware: DeviceHardware
    ) -> Iterator[Finding]:
        count = hardware.ecc_uncorrected
        before = self._counts.get((sample.node, device.uuid))
        if count is not None:
            self._counts[sample.node, device.uuid] = count
        rose = count is not None and before is not None and count > before
        key = _Key(sample.node, device.uuid, "")
        finding = self._open.get(key)
        is_pending = hardware.is_repair_pending is True
        if finding is None and not rose and not is_pending:
            return
        if finding is not None and not rose and is_pending == (_PENDING.read_count(finding) == 1):
            return
        if finding is not None and not is_pending and _PENDING.read_count(finding) == 1:
            del self._open[key]
            yield close_finding(finding, sample.time_s, "the memory was taken out of use")
            return
        opened = finding or begin_finding(
            MEMORY_ERRORS, sample.node, sample.time_s, device_uuid=device.uuid, device=device.label
        )
        tools = find_tools(device)
        # On NVIDIA a spare row replaces it then (XID 63), and until then no job is affected.
        can_wait = tools is NVIDIA and not rose
        meaning = Meaning("", "high" if rose else "medium", "watch" if can_wait else "reset")
        waits = "memory with errors stays in use until it is reset" if is_pending else ""
        new = (
            f"{count - before:,} new uncorrected memory errors"
            if rose and count and before is not None
            else ""
        )
        self._open[key] = restate(
            opened,
            sample.time_s,
            device=device.label,
            severity=max(meaning.severity, opened.severity, key=SEVERITIES.index),
            title=f"{name_device(device)}: {'; '.join(filter(None, (new, waits)))}",
            evidence=(_UNCORRECTED(count), _PENDING(int(is_pending)), _LAST(sample.time_s)),
            method=_METHOD_MEMORY,
            advice=advise(meaning, tools, device),
        )
        yield self._open[key]

    def _note_ended(self, sample: Sample) -> Iterator[Finding]:
        """Say of an error which ranks ended right after it."""
        ended = [rank for rank in sample.ranks if rank.state == "ended"]
        for key, finding in self._open.items() if ended else ():
            last_s = _LAST.read_number(finding)
            if key.node != sample.node or finding.kind != DEVICE_ERROR or last_s is None:
                continue
            if sample.time_s - last_s > ENDED_WITHIN_S or _ENDED.read(finding) is not None:
                continue
            pid = PROCESS.read_count(finding)
            hit = [it for it in ended if it.pid == pid or (pid is None and it.device_uuid == key.device)]
            if hit:
                names = ", ".join(name_rank(rank) for rank in hit[:3])
                more = f" and {len(hit) - 3} more" if len(hit) > 3 else ""
                self._open[key] = restate(
                    finding,
                    sample.time_s,
                    title=f"{finding.title}; {names}{more} ended because of it",
                    evidence=(*finding.evidence, _ENDED(f"{names}{more}")),
                )
                yield self._open[key]

    def _close_clean(self, sample: Sample) -> Iterator[Finding]:
        for key, finding in list(self._open.items()):
            last_s = _LAST.read_number(finding)
            clean_s = CLEAN_SEVERE_S if _is_severe(finding.severity) else CLEAN_S
            is_waiting = _PENDING.read_count(finding) == 1
            if key.node != sample.node or is_waiting or last_s is None or sample.time_s - last_s < clean_s:
                continue
            del self._open[key]
            yield close_finding(finding, sample.time_s, f"{clean_s / 60:.0f} min passed without another one")


def _word(
    event: DeviceEvent, device: DeviceSample | None, meaning: Meaning, times: int, ranks: Sequence[RankSample]
) -> str:
    subject = name_device(device) if device is not None else f"GPU at {event.pci_address}"
    if device is None and event.pci_address is None:
        subject = "a GPU"
    again = "" if times == 1 else f", {times} times"
    who = ""
    if ranks:
        who = f" ({name_rank(ranks[0])})"
    elif event.pid is not None:
        who = f" (process {event.pid})"
    return f"{subject} {event.name}: {meaning.what}{who}{again}"
