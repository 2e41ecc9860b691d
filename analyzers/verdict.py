"""The first line of the app: what is known about running out of memory, in one sentence of any width."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from ..engine.model import (
    SEVERITIES,
    Assessment,
    DeviceSample,
    DeviceTrend,
    Finding,
    RankSample,
    RiskLevel,
    Sample,
)
from ..engine.model.finding import is_last_word
from ..engine.units import format_age, format_bytes, format_gib, format_seconds
from .device_state import KINDS as DEVICE_STATES
from .finding_words import describe_error, describe_leak
from .findings.subjects import name_device, name_devices
from .growth_renewal import renew_findings
from .out_of_memory import KINDS, OOM_MET
from .pressure import KIND as PRESSURE
from .pressure import is_relieved
from .replay_capacity import KIND as CAPACITY
from .replay_capacity import peak_bytes
from .risk import DECISIVE, LEVELS, Risk, assess_risks, doubt_silent, find_assessments, is_of_ended_job
from .sentence import Sentence
from .serving_places import POOL_KIND, describe_serving, is_answered_for
from .trend_words import word_trend

# Most device-used bytes seen on a device by its UUID, and when (`History.peak`).
Peaks = Callable[[str], tuple[int, float] | None]


class _Peak(NamedTuple):
    device: DeviceSample
    used_bytes: int
    time_s: float
    total_bytes: int

    @property
    def share(self) -> str:
        percent = round(100 * self.used_bytes / self.total_bytes)
        is_all = self.used_bytes == self.total_bytes
        return f"{percent} %" if percent < 100 or is_all else "over 99 %"


def describe_fit(sample: Sample, peaks: Peaks) -> tuple[str, ...] | None:
    """Return a clause on how close a recorded run came to its capacity, the longest form first.

    None where it was not asked for, or is not known to be true: the samples are not recorded, the
    capacity or a rank's device used is unknown, or a rank used more.
    """
    if sample.clock != "trace":
        return None
    # Only ranks that have had any sample yet.
    measured = [it for it in sample.devices if it.memory.used_bytes is not None or it.allocator is not None]
    known = [peak for peak in (_find_peak(device, sample, peaks) for device in measured) if peak is not None]
    if not known or len(known) < len(measured):
        return None
    highest = max(known, key=lambda peak: peak.used_bytes / peak.total_bytes)
    if highest.used_bytes > highest.total_bytes:
        return None
    return _word(highest, sample)


def _find_peak(device: DeviceSample, sample: Sample, peaks: Peaks) -> _Peak | None:
    memory = device.memory
    if memory.used_bytes is None or not memory.total_bytes:
        return None
    now_bytes = memory.used_max_bytes if memory.used_max_bytes is not None else memory.used_bytes
    remembered = peaks(device.uuid)
    used_bytes, time_s = (
        remembered if remembered and remembered[0] >= now_bytes else (now_bytes, sample.time_s)
    )
    return _Peak(device, used_bytes, time_s, memory.total_bytes)


def _word(highest: _Peak, sample: Sample) -> tuple[str, ...]:
    head = f"fits {format_gib(highest.total_bytes)} GiB{'' if sample.is_last else ' so far'}"
    name = name_device(highest.device)
    figure = f"{format_gib(highest.used_bytes)} GiB"
    lead = f"{head}: {name}" if len(sample.devices) == 1 else f"{head}: highest {name}"
    return (
        f"{lead} {figure} ({highest.share}) at {format_seconds(highest.time_s)}",
        f"{lead} {figure} ({highest.share})",
        f"{head}: {name} {figure}",
        head,
    )


Clause = tuple[str, ...]
Remedy = Literal["key", "command"]
"""How a person gets to know more of processes without a probe: by a key of the screen, or by a command."""

# A line of a program.
_PLACE = re.compile(r"\S+\.py:\d+")


class Verdict(msgspec.Struct, frozen=True):
    """The answer for one node, and how worrying it is."""

    level: RiskLevel
    sentence: Sentence

    def text(self, width: int) -> str:
        """Return the verdict in at most `width` terminal cells.

        Dropped first is the interval, then the tail of the cause, then the number; at last words, and
        then an ellipsis marks that.
        """
        return self.sentence.fit(width)


def _remember_nothing(_: str) -> None:
    return None


def summarize(
    sample: Sample | None,
    findings: Sequence[Finding],
    peaks: Peaks = _remember_nothing,
    assessments: Sequence[Assessment] = (),
    *,
    is_recorded: bool = False,
    remedy: Remedy | None = None,
) -> Verdict:
    """Return the verdict on one node: lost and stale devices, then the most severe finding or what is known.

    For a recorded run the answer goes first: that a rank's trace has ended is no trouble. The number of
    followed devices comes last, where some are not.

    Args:
        peaks: The most that each device used so far; by default only the newest sample counts.
        assessments: How near each process is to running out of memory.
        remedy: What to name where the risk is unknown for want of a probe.
    """
    if sample is None:
        return Verdict("unknown", Sentence((("Waiting for the first data", "Waiting…"),)))
    if not sample.devices:
        return _summarize_absence(sample, findings, is_recorded=is_recorded)
    known = doubt_silent(sample, assessments)
    findings = renew_findings(findings, known, sample.time_s)
    risks = assess_risks(sample.devices, findings, known, sample.ranks)
    lead, past = _find_lead(sample, findings)
    is_filling = any(risk.trend is not None and risk.trend.word == "filling" for risk in risks.values())
    # What still fills as the record ends has not fitted yet.
    fit = describe_fit(sample, peaks) if lead is None and not is_filling else None
    troubled = [*_describe_troubled(sample.devices)]
    answer = [*_describe_lead(lead, sample, findings)]
    if lead is None:
        answer = [fit] if fit is not None else [*describe_state(sample, findings, risks, known, remedy)]
    elif lead.kind == PRESSURE and remedy is not None and _lacks_any_probe(sample, risks):
        # That a device is full does not say whether memory runs out.
        answer.append((*_describe_lack(sample, None, remedy), ""))
    answer += [] if past is None else [(*describe_error(past, sample)[-2:], "")]
    clauses = (*answer, *troubled) if sample.clock == "trace" else (*troubled, *answer)
    if sample.devices_left_out:
        clauses = (*clauses, describe_left_out(sample))
    named = [it.severity for it in findings if it.is_open and it.kind in (*DEVICE_STATES, POOL_KIND)]
    if any(device.state == "lost" for device in sample.devices):
        named.append("high")  # as its finding, which opens only once that has lasted
    level = "low" if fit is not None else _rate(_list_levels(sample, risks), lead, named)
    return Verdict(level, Sentence(clauses))


def _summarize_absence(sample: Sample, findings: Sequence[Finding], *, is_recorded: bool) -> Verdict:
    """Return the verdict without any device: the error that ended the last process, or the cause."""
    lead, _ = _find_lead(sample, findings)
    if lead is None:
        return Verdict("unknown", Sentence(tuple(describe_absence(sample, is_recorded=is_recorded))))
    return Verdict(lead.severity, Sentence(tuple(_describe_lead(lead, sample, findings))))


def _list_levels(sample: Sample, risks: Mapping[str, Risk]) -> Iterator[RiskLevel]:
    """Yield the level of each device; one that a server fills and answers for is no unknown."""
    for device in sample.devices:
        level = risks[device.uuid].level
        yield "low" if level == "unknown" and is_answered_for(sample, device) else level


def _rate(risks: Iterable[RiskLevel], lead: Finding | None, named: Iterable[RiskLevel]) -> RiskLevel:
    levels = [*risks, *named]
    if lead is not None:
        levels.append(lead.severity)
    return max(levels, key=LEVELS.index)


def _find_lead(sample: Sample, findings: Sequence[Finding]) -> tuple[Finding | None, Finding | None]:
    """Return the finding that the verdict must mention first, and a past error to mention after it.

    First comes the most severe open finding that is not mere pressure. The error of a job that has ended
    leads
    where nothing else is open: for a minute before anything milder, and never before what is as severe for a
    job that lives.
    """
    ended = [
        it
        for it in findings
        if it.kind in KINDS and (is_last_word(it) or (it.is_open and is_of_ended_job(it, sample.ranks)))
    ]
    errors = (it for it in ended if it.kind == OOM_MET)
    past = max(errors, key=lambda it: it.updated_s, default=None)
    # Devices that do not answer are named before whatever leads.
    live = [it for it in findings if it.is_open and it not in ended and it.kind not in DEVICE_STATES]
    lead = _find_most_severe(sample, live)
    if lead is not None or past is None:
        return lead, past
    return (None, past) if live and not past.is_open else (past, None)


def _find_most_severe(sample: Sample, findings: Sequence[Finding]) -> Finding | None:
    here = {device.uuid for device in sample.devices if device.state != "lost"}
    mild = ("oom", POOL_KIND)
    severe = [
        finding
        for finding in findings
        if finding.is_open
        and (finding.device_uuid is None or finding.device_uuid in here or finding.kind == OOM_MET)
        and SEVERITIES.index(finding.severity)
        >= SEVERITIES.index("medium" if finding.kind in mild else "high")
    ]
    return max(severe, key=_rank_finding, default=None)


def _rank_finding(finding: Finding) -> tuple[bool, int, bool, int, float]:
    """Return the sort key of findings, the most important highest.

    What is about running out of memory goes before its causes, then the more severe; forecasts first, then
    the highest recorded peak.
    """
    severity = SEVERITIES.index(finding.severity)
    peak = peak_bytes(finding) if finding.kind == CAPACITY else 0
    return finding.kind in DECISIVE, severity, finding.kind == "oom", peak, finding.opened_s


def _describe_lead(lead: Finding | None, sample: Sample, findings: Sequence[Finding]) -> Iterator[Clause]:
    if lead is None:
        return
    if lead.kind == OOM_MET:
        yield describe_error(lead, sample)
    else:
        leak = describe_leak(findings, lead.device_uuid) if lead.kind == "oom" else None
        yield _shorten_title(lead.title, None if leak is None else leak.place)
    above = {finding.device_uuid for finding in findings if finding.kind == CAPACITY and finding.is_open}
    if lead.kind == CAPACITY and len(above) > 1:
        yield (f"{len(above):,} of {len(sample.devices):,} ranks were above it", "")


def _shorten_title(title: str, suspected: str | None = None) -> Clause:
    """Return a title, then without its interval, without the tail of its cause, without its cause.

    A suspected place in the program is put at the end, where the title does not name one. In little room it
    is all that is left of the cause, and words are abbreviated.
    """
    if suspected is not None and suspected not in title:
        title = f"{title}, kept at {suspected}"
    plain = re.sub(r"\s*\([^()]*\d[^()]*%[^()]*\)", "", title)
    without_tail = plain.rsplit(", ", 1)[0] if ": " in plain.rsplit(", ", 1)[0] else plain
    head, _, cause = plain.partition(": ")
    brief = _abbreviate(head)
    place = _PLACE.search(cause)
    if place:
        without_tail = f"{head}: {next(part for part in cause.split(', ') if _PLACE.search(part))}"
    tail = (f"{brief}: {place[0].rstrip(',;.')}", brief) if place else (head, brief)
    return tuple(dict.fromkeys((title, plain, without_tail, *tail)))


def _abbreviate(head: str) -> str:
    """Return `GPU 5 OOM in 1m16s` for `GPU 5 (rank 5) out of memory in 1 m 16 s`."""
    plain = re.sub(r"\s*\([^()]*\)", "", head)
    plain = plain.replace("may run out of memory", "may OOM").replace("out of memory", "OOM")
    return re.sub(r"(\d+) ([smhd])\b(?: (\d+) ([smh])\b)?", r"\1\2\3\4", plain)


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
    reason = (lost[0].reason or "").rstrip(".") if len(lost) == 1 else ""
    if not reason:
        return (head,)
    # The remedy goes before the cause; what is left names its place where the number is one of ours.
    address = lost[0].pci_address
    placed = f"{head} at {address}" if address is not None and address in reason else head
    return tuple(dict.fromkeys((f"{head}: {reason}", f"{head}: {reason.partition('; ')[0]}", placed, head)))


def _describe_stale(stale: Sequence[DeviceSample]) -> Clause:
    head = f"{name_devices(stale)} stale"
    ages = [device.age_s for device in stale if device.age_s is not None]
    timed = f"{head} {format_age(max(ages))}" if ages else head
    reason = (stale[0].reason or "").rstrip(".") if len(stale) == 1 else ""
    if not reason:
        return (timed,)
    has_age = re.search(r" for \d+ s$", reason) is not None
    return (f"{head if has_age else timed}: {reason}", timed)


def _describe_unsupported(unsupported: Sequence[DeviceSample]) -> Clause:
    names = name_devices(unsupported)
    reason = unsupported[0].reason if len(unsupported) == 1 else None
    short = f"{names} memory unreadable"
    return (f"{short}: {reason.rstrip('.')}", short, "") if reason else (short, "")


_NONE = "No GPU"


def describe_absence(sample: Sample, *, is_recorded: bool = False) -> Iterator[tuple[str, ...]]:
    """Yield the clauses on a node without devices, each from its complete form to its shortest.

    For a file nothing is said of `vramscope doctor`, which knows nothing about that machine.
    """
    if sample.devices_left_out:
        yield describe_mismatch(sample)
        return
    if is_recorded and not sample.notes:
        yield ("No device was recorded at this moment", "No device recorded")
        return
    yield _describe_cause(sample.notes[0] if sample.notes else "none found on this node")
    if is_recorded:
        return
    yield ("vramscope doctor shows what was checked", "see vramscope doctor", "")


def _describe_cause(note: str) -> tuple[str, ...]:
    """Word a note, then without its remedy, its parentheses and its explanation."""
    reason = _join(note.strip().rstrip("."))
    fact = re.split(r"(?:;|\.) ", reason, maxsplit=1)[0]
    plain = re.sub(r"\s*\([^()]*\)", "", fact)
    head = ": ".join(plain.split(": ")[:2])
    return tuple(dict.fromkeys((reason, fact, plain, head)))


def _join(note: str) -> str:
    """Word a note as the cause why there is no GPU, with `no` only once."""
    what, _, cause = note.partition(": ")
    if what.startswith("No "):
        return f"{_NONE}: {cause}" if cause else note
    article = re.match(r"(?:The|A|An) ", note)
    return f"{_NONE}: {note[0].lower() + note[1:]}" if article else f"{_NONE}: {note}"


# The verdict where no finding leads: the risk and why, and how full the fullest device is.


def describe_state(
    sample: Sample,
    findings: Sequence[Finding],
    risks: Mapping[str, Risk],
    assessments: Sequence[Assessment],
    remedy: Remedy | None = None,
) -> Iterator[Clause]:
    """Yield the state of a node without findings, each clause from complete to shortest.

    `risks` are by device UUID.
    """
    readable = [device for device in sample.devices if device.state == "ok" and _held(device) is not None]
    fullest = max(readable, key=_fullness, default=None)
    ended = [device for device in sample.devices if device.state == "ended"]
    if fullest is None and ended:
        yield (f"{name_devices(ended)} ended: no job reports", "ended")
        return
    if fullest is None:
        yield ("OOM risk unknown: no data", "OOM risk unknown", "OOM risk ?")
        return
    worst = max([fullest, *readable], key=lambda device: LEVELS.index(risks[device.uuid].level))
    headroom = find_headroom(fullest, assessments, sample.ranks)
    is_only = len(readable) == 1
    if risks[worst.uuid].level == "low" and headroom is not None:
        yield _describe_calm(fullest, findings, headroom, is_only=is_only)
        return
    reasons = {(it.level, it.reason) for it in map(risks.__getitem__, [device.uuid for device in readable])}
    name = None if len(reasons) == 1 else name_device(worst)
    served = describe_serving(sample, worst) if risks[worst.uuid].level == "unknown" else ()
    if served:
        yield served
    elif remedy is not None and _lacks_probe(worst, sample, risks):
        yield _describe_lack(sample, name, remedy)
    else:
        yield _describe_risk(risks[worst.uuid], name)
    filling = _order_filling(readable, risks)
    if filling:
        yield _describe_filling(*filling[0], sample.time_s)
        if len(filling) > 1:
            yield f"{len(filling) - 1:,} more filling", f"{len(filling) - 1:,} more", ""
        return
    yield _describe_fullest(fullest, findings, risks[fullest.uuid].trend, sample.time_s, is_only=is_only)


def _lacks_probe(device: DeviceSample, sample: Sample, risks: Mapping[str, Risk]) -> bool:
    """Return whether a probe in a process of the device would report its risk."""
    is_reported = any(rank.device_uuid == device.uuid for rank in sample.ranks)
    return risks[device.uuid].lacks_probe and not is_reported and sample.clock != "trace"


def _lacks_any_probe(sample: Sample, risks: Mapping[str, Risk]) -> bool:
    """Return whether the only thing known of every device is what the driver says."""
    known = [
        device for device in sample.devices if device.state == "ok" and risks[device.uuid].level == "unknown"
    ]
    return bool(known) and not sample.ranks and all(_lacks_probe(it, sample, risks) for it in known)


def _describe_lack(sample: Sample, name: str | None, remedy: Remedy) -> Clause:
    """Word that no probe reports, and how to change that, which stays when other words are dropped."""
    if not any(device.processes for device in sample.devices):
        complete = short = brief = "start jobs with vramscope run"
    elif remedy == "command":
        short = brief = "vramscope attach PID"
        complete = f"{short} adds it"
    else:
        complete = short = "press a to attach"
        brief = "press a"
    where = "without a probe" if name is None else f"on {name} without a probe"
    return (
        f"OOM risk unknown {where}: {complete}",
        f"OOM risk unknown: {short}",
        f"OOM risk unknown: {brief}",
        f"risk unknown: {brief}",
        f"unknown: {brief}",
        "OOM risk ?",
    )


def _order_filling(
    devices: Sequence[DeviceSample], risks: Mapping[str, Risk]
) -> list[tuple[DeviceSample, DeviceTrend]]:
    """Return the devices that fill, with their trends, those that are full first at the front."""
    found = [(device, trend) for device in devices if (trend := risks[device.uuid].trend) is not None]
    filling = [(device, trend) for device, trend in found if trend.word == "filling"]
    return sorted(filling, key=lambda it: it[1].time_s + (it[1].full_in_s or math.inf))


def _describe_filling(device: DeviceSample, trend: DeviceTrend, now_s: float) -> Clause:
    return tuple(f"{name_device(device)} {words}" for words in word_trend(trend, now_s))


def find_headroom(
    device: DeviceSample, assessments: Sequence[Assessment], ranks: Sequence[RankSample] = ()
) -> int | None:
    """Return the bytes between the peak of a process on a device and its capacity; None if unknown.

    The least of several processes counts: each one's capacity includes what is free on the device. An
    assessment is published when it changes visibly; steps since then may have gone higher.
    """
    newest: dict[tuple[int | None, float | None], int] = {
        (rank.pid, rank.started_s): find_newest_peak(rank) for rank in ranks if rank.state == "ok"
    }
    known = [
        max(0, found.capacity_bytes - max(found.peak_bytes, newest.get((found.pid, found.started_s), 0)))
        for found in find_assessments(device, assessments)
        if found.capacity_bytes is not None and found.peak_bytes is not None
    ]
    return min(known, default=None)


def find_newest_peak(rank: RankSample) -> int:
    """Return the most that a process is known to have held in the newest sample."""
    allocator = rank.allocator
    step = rank.step
    known = (
        rank.peak_max_bytes,
        None if step is None else step.peak_bytes,
        None if allocator is None else allocator.allocated_max_bytes,
        None if allocator is None else allocator.allocated_bytes,
    )
    return max((it for it in known if it is not None), default=0)


def _describe_calm(
    device: DeviceSample, findings: Sequence[Finding], headroom_bytes: int, *, is_only: bool
) -> Clause:
    """Word that the risk is low, and by how much, where that is known."""
    name = name_device(device)
    used = device.memory.used_bytes
    total = device.memory.total_bytes
    left = f"{format_bytes(headroom_bytes)} headroom"
    figure = f"{name} {format_gib(used)}/{format_gib(total)} GiB" if used is not None and total else name
    lead = "nearly full " if _is_pressed(device, findings) else "" if is_only else "fullest "
    head = "OOM risk low"
    return (
        f"{head}: {lead}{figure}, {left} at peak",
        f"{head}: {figure}, {left}",
        f"{head}: {left} at peak",
        f"{head}: {left}",
        head,
    )


def _describe_risk(risk: Risk, name: str | None) -> Clause:
    """Word the risk and its reason; with the device, where it is not the same for all."""
    head = f"OOM risk {risk.level}"
    named = head if name is None else f"{head} on {name}"
    if risk.level == "unknown":
        return tuple(dict.fromkeys((f"{named}: {risk.reason}", named, head, "OOM risk ?")))
    if risk.level == "low":
        return (head,)
    return tuple(dict.fromkeys((f"{named}: {risk.reason}", named, head)))


def _allocated(device: DeviceSample) -> int | None:
    return device.allocator.allocated_bytes if device.allocator else None


def _held(device: DeviceSample) -> int | None:
    """Return the bytes that are known to be held on a device: those used, or else those allocated."""
    return device.memory.used_bytes if device.memory.used_bytes is not None else _allocated(device)


def _fullness(device: DeviceSample) -> tuple[float, int]:
    held = _held(device) or 0
    total = device.memory.total_bytes
    return (held / total if total else 0.0, held)


def _describe_fullest(
    device: DeviceSample,
    findings: Sequence[Finding],
    trend: DeviceTrend | None,
    now_s: float,
    *,
    is_only: bool,
) -> Clause:
    name = name_device(device)
    total = device.memory.total_bytes
    used = device.memory.used_bytes
    if not total or used is None:
        return _describe_unbounded(device, is_only=is_only)
    least = "at least " if device.memory.is_lower_bound else ""
    figure = f"{name} {least}{format_gib(used)}/{format_gib(total)} GiB"
    share = f"{100 * used / total:.0f} %"
    free = "" if least else f", {_describe_free(device.memory.free_bytes, used, total)}"
    taken = max((it.preallocated_percent or 0.0 for it in device.processes or ()), default=0.0)
    is_pressed = _is_pressed(device, findings)
    short: tuple[str, ...] = ()
    lead = "nearly full " if is_pressed else "" if is_only else "fullest "
    is_said = trend is None or (trend.word == "full" and lead.startswith("nearly"))
    words = [] if trend is None or is_said else [f", {words}" for words in word_trend(trend, now_s)]
    if taken:
        # What is taken in advance says nothing of what is needed, so it is said before what is free.
        tail = f", JAX preallocated {taken:.0f} %"
        words = [tail]
        short = (f"{lead}{figure} ({share}){tail}", f"{lead}{figure}{tail}")
        short += () if is_pressed else (f"{figure}{tail}",)
    return (
        *(f"{lead}{figure} ({share}){free}{tail}" for tail in words),
        *short,
        f"{lead}{figure} ({share}){free}",
        f"{lead}{figure}{free}",
        f"{lead}{figure}",
        figure,
        f"{name} {share}",
        "",
    )


def _describe_free(free_bytes: int | None, used_bytes: int, total_bytes: int) -> str:
    """Word what is free, or by how much a recorded rank is above the capacity that was asked about."""
    if used_bytes > total_bytes:
        return f"{format_bytes(used_bytes - total_bytes)} too much"
    return f"{format_bytes(total_bytes - used_bytes if free_bytes is None else free_bytes)} free"


def _is_pressed(device: DeviceSample, findings: Sequence[Finding]) -> bool:
    """Return whether a device is nearly full now; its finding stays open for a while after that."""
    if is_relieved(device.memory):
        return False
    return any(f.kind == PRESSURE and f.is_open and f.device_uuid == device.uuid for f in findings)


def _describe_unbounded(device: DeviceSample, *, is_only: bool) -> Clause:
    """Describe a device whose capacity, or whose device used, is unmeasured."""
    name = name_device(device)
    used = device.memory.used_bytes
    allocated = _allocated(device)
    lead = "" if is_only else "fullest "
    least = "at least " if device.memory.is_lower_bound else ""
    known = [f"{least}{format_gib(used)} GiB used"] if used is not None else []
    known += [f"{format_gib(allocated)} GiB allocated"] if allocated is not None else []
    forms = (f"{lead}{name} {', '.join(known)}", f"{lead}{name} {known[0]}", f"{name} {known[0]}")
    return tuple(dict.fromkeys((*forms, f"{name} {format_gib(_held(device))} GiB", "")))


# Texts for a node with only some devices followed: nothing is known about the rest.


def describe_left_out(sample: Sample) -> tuple[str, str]:
    """Return how many devices of a node are followed, in full and in few words: never empty."""
    followed = len(sample.devices)
    total = len(sample.devices) + sample.devices_left_out
    return f"{followed:,} of {total:,} devices followed", f"{followed:,}/{total:,} followed"


def describe_mismatch(sample: Sample) -> tuple[str, ...]:
    """Return that no device of a node is followed, and why, from the complete form to the shortest."""
    text = sample.notes[0] if sample.notes else "No device matches --devices"
    return text, text.partition(": ")[0], "No device matches"
