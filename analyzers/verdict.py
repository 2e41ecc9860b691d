"""The first line of the app: what is known about running out of memory, in one sentence of any width."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ..engine.model import SEVERITIES, DeviceSample, Finding, RiskLevel, Sample
from ..engine.model.finding import is_last_word
from ..engine.units import format_age, format_bytes, format_gib
from .absence import describe_absence
from .capacity import KIND as CAPACITY
from .capacity import peak_bytes
from .device_names import name_device, name_devices
from .error_words import describe_error
from .fit import Peaks, describe_fit
from .out_of_memory_track import OOM_MET
from .risk import Risk, assess_risk
from .sentence import Sentence

_LEVELS: tuple[RiskLevel, ...] = ("low", "unknown", *SEVERITIES[1:])
"""From the least to the most worrying: what is unknown outweighs what is known to be low."""

Clause = tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """The answer for one node, and how worrying it is."""

    level: RiskLevel
    sentence: Sentence

    def text(self, width: int) -> str:
        """Return the verdict in at most `width` terminal cells.

        What goes first: the interval, then the tail of the cause, then the figure; at last words, and
        then an ellipsis says so.
        """
        return self.sentence.fit(width)


def _remember_nothing(_: str) -> None:
    return None


def summarize(
    sample: Sample | None, findings: Sequence[Finding], peaks: Peaks = _remember_nothing
) -> Verdict:
    """Return the verdict on one node: lost and stale devices, then the gravest finding or what is known.

    Of a recorded run the answer goes first: that a rank's trace has ended is no trouble.

    Args:
        sample: The newest sample, or None before the first.
        findings: Findings of the node, open or closed.
        peaks: The most that each device used so far; without it the newest sample alone is known.
    """
    if sample is None:
        return Verdict("unknown", Sentence((("Waiting for the first figures", "Waiting…"),)))
    if not sample.devices:
        return _summarize_absence(sample, findings)
    risks = {device.uuid: assess_risk(device, findings) for device in sample.devices}
    lead = _find_lead(sample, findings)
    fit = describe_fit(sample, peaks) if lead is None else None
    troubled, answer = [*_describe_troubled(sample.devices)], [*_describe_lead(lead, sample, findings)]
    if lead is None:
        answer = [fit] if fit is not None else [*_describe_state(sample, findings, risks)]
    clauses = (*answer, *troubled) if sample.clock == "trace" else (*troubled, *answer)
    return Verdict("low" if fit is not None else _rate(risks.values(), lead), Sentence(clauses))


def _summarize_absence(sample: Sample, findings: Sequence[Finding]) -> Verdict:
    """Return the verdict where no device is left: the error that ended the last process, or the cause."""
    lead = _find_lead(sample, findings)
    if lead is None:
        return Verdict("unknown", Sentence(tuple(describe_absence(sample))))
    return Verdict(lead.severity, Sentence(tuple(_describe_lead(lead, sample, findings))))


def _rate(risks: Iterable[Risk], lead: Finding | None) -> RiskLevel:
    levels: list[RiskLevel] = [risk.level for risk in risks]
    if lead is not None:
        levels.append(lead.severity)
    return max(levels, key=_LEVELS.index)


def _find_lead(sample: Sample, findings: Sequence[Finding]) -> Finding | None:
    """Return the finding that the verdict must speak of: the gravest open one that is not mere pressure.

    Where none is open, an error that ended its process stays the last word on its device.
    """
    here = {device.uuid for device in sample.devices if device.state != "lost"}
    grave = [
        finding
        for finding in findings
        if finding.is_open
        and (finding.device_uuid is None or finding.device_uuid in here or finding.kind == OOM_MET)
        and SEVERITIES.index(finding.severity)
        >= SEVERITIES.index("medium" if finding.kind == "oom" else "high")
    ]
    last_words = (finding for finding in findings if is_last_word(finding))
    return max(grave, key=_weigh, default=max(last_words, key=lambda f: f.updated_s, default=None))


def _weigh(finding: Finding) -> tuple[int, bool, int, float]:
    """Return what makes one finding graver than another: forecasts first, then the highest recorded peak."""
    peak = peak_bytes(finding) if finding.kind == CAPACITY else 0
    return SEVERITIES.index(finding.severity), finding.kind == "oom", peak, finding.opened_s


def _describe_lead(lead: Finding | None, sample: Sample, findings: Sequence[Finding]) -> Iterator[Clause]:
    if lead is None:
        return
    yield describe_error(lead, sample) if lead.kind == OOM_MET else _shorten_title(lead.title)
    above = {finding.device_uuid for finding in findings if finding.kind == CAPACITY and finding.is_open}
    if lead.kind == CAPACITY and len(above) > 1:
        yield (f"{len(above):,} of {len(sample.devices):,} ranks were above it", "")


def _shorten_title(title: str) -> Clause:
    """Return a title, then without its interval, without the tail of its cause, without its cause."""
    plain = re.sub(r"\s*\([^()]*\d[^()]*%[^()]*\)", "", title)
    without_tail = plain.rsplit(", ", 1)[0] if ": " in plain.rsplit(", ", 1)[0] else plain
    return tuple(dict.fromkeys((title, plain, without_tail, plain.split(": ", 1)[0])))


def _describe_troubled(devices: Sequence[DeviceSample]) -> Iterator[Clause]:
    lost = [device for device in devices if device.state == "lost"]
    if lost:
        yield _describe_lost(lost)
    stale = [device for device in devices if device.state == "stale"]
    if stale:
        yield _describe_stale(stale)
    unsupported = [device for device in devices if device.state == "unsupported"]
    if unsupported:
        yield _describe_unsupported(unsupported)


def _describe_lost(lost: Sequence[DeviceSample]) -> Clause:
    head = f"{name_devices(lost)} lost"
    reason = lost[0].reason
    return (f"{head}: {reason.rstrip('.')}", head) if len(lost) == 1 and reason else (head,)


def _describe_stale(stale: Sequence[DeviceSample]) -> Clause:
    head = f"{name_devices(stale)} stale"
    ages = [device.age_s for device in stale if device.age_s is not None]
    timed = f"{head} {format_age(max(ages))}" if ages else head
    reason = (stale[0].reason or "").rstrip(".") if len(stale) == 1 else ""
    if not reason:
        return (timed,)
    tells_age = re.search(r" for \d+ s$", reason) is not None
    return (f"{head if tells_age else timed}: {reason}", timed)


def _describe_unsupported(unsupported: Sequence[DeviceSample]) -> Clause:
    names = name_devices(unsupported)
    reason = unsupported[0].reason if len(unsupported) == 1 else None
    short = f"{names} memory unreadable"
    return (f"{short}: {reason.rstrip('.')}", short, "") if reason else (short, "")


def _describe_state(sample: Sample, findings: Sequence[Finding], risks: dict[str, Risk]) -> Iterator[Clause]:
    """Yield what is known where nothing is forecast: the risk and why, and the fullest device."""
    readable = [device for device in sample.devices if device.state == "ok" and _held(device) is not None]
    fullest = max(readable, key=_fullness, default=None)
    ended = [device for device in sample.devices if device.state == "ended"]
    if fullest is None and ended:
        yield (f"{name_devices(ended)} ended: no job reports", "ended")
        return
    if fullest is None:
        yield ("OOM risk unknown: no figures", "OOM risk unknown", "OOM risk ?")
        return
    yield _describe_risk(risks[fullest.uuid])
    yield _describe_fullest(fullest, findings, is_only=len(readable) == 1)


def _describe_risk(risk: Risk) -> Clause:
    if risk.level == "unknown":
        return (f"OOM risk unknown: {risk.reason}", "OOM risk unknown", "OOM risk ?")
    return (f"OOM risk {risk.level}",)


def _allocated(device: DeviceSample) -> int | None:
    return device.allocator.allocated_bytes if device.allocator else None


def _held(device: DeviceSample) -> int | None:
    """Return the bytes that are known to be held on a device: those used, or else those allocated."""
    return device.memory.used_bytes if device.memory.used_bytes is not None else _allocated(device)


def _fullness(device: DeviceSample) -> tuple[float, int]:
    held, total = _held(device) or 0, device.memory.total_bytes
    return (held / total if total else 0.0, held)


def _describe_fullest(device: DeviceSample, findings: Sequence[Finding], *, is_only: bool) -> Clause:
    name = name_device(device)
    total, used = device.memory.total_bytes, device.memory.used_bytes
    if not total or used is None:
        return _describe_unbounded(device, is_only=is_only)
    figure = f"{name} {format_gib(used)}/{format_gib(total)} GiB"
    share = f"{100 * used / total:.0f} %"
    free = f", {_describe_free(device.memory.free_bytes, used, total)}"
    lead = "nearly full " if _is_pressed(device, findings) else "" if is_only else "fullest "
    return (
        f"{lead}{figure} ({share}){free}",
        f"{lead}{figure}{free}",
        f"{lead}{figure}",
        figure,
        f"{name} {share}",
        "",
    )


def _describe_free(free_bytes: int | None, used_bytes: int, total_bytes: int) -> str:
    """Say what is free, or by how much a recorded rank is above the capacity that was asked about."""
    if used_bytes > total_bytes:
        return f"{format_bytes(used_bytes - total_bytes)} too much"
    return f"{format_bytes(total_bytes - used_bytes if free_bytes is None else free_bytes)} free"


def _is_pressed(device: DeviceSample, findings: Sequence[Finding]) -> bool:
    return any(f.kind == "pressure" and f.is_open and f.device_uuid == device.uuid for f in findings)


def _describe_unbounded(device: DeviceSample, *, is_only: bool) -> Clause:
    """Describe a device whose capacity, or whose device used, nobody measured."""
    name, used, allocated = name_device(device), device.memory.used_bytes, _allocated(device)
    lead = "" if is_only else "fullest "
    known = [f"{format_gib(used)} GiB used"] if used is not None else []
    known += [f"{format_gib(allocated)} GiB allocated"] if allocated is not None else []
    forms = (f"{lead}{name} {', '.join(known)}", f"{lead}{name} {known[0]}", f"{name} {known[0]}")
    return tuple(dict.fromkeys((*forms, f"{name} {format_gib(_held(device))} GiB", "")))
