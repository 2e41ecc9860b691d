"""The first line of the app: what is known about running out of memory, in one sentence of any width."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ..engine.model import SEVERITIES, Assessment, DeviceSample, Finding, RiskLevel, Sample
from ..engine.model.finding import is_last_word
from ..engine.units import format_age
from .absence import describe_absence
from .capacity import KIND as CAPACITY
from .capacity import peak_bytes
from .countdown import count_down
from .device_names import name_devices
from .error_words import describe_error
from .fit import Peaks, describe_fit
from .leak_words import describe_leak
from .left_out import describe_left_out
from .out_of_memory_track import KINDS, OOM_MET
from .risk import DECISIVE, LEVELS, Risk, assess_risks, doubt_silent, is_of_ended_job
from .sentence import Sentence
from .state_words import describe_state

Clause = tuple[str, ...]

_PLACE = re.compile(r"\S+\.py:\d+")
"""A line of a program."""


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
    sample: Sample | None,
    findings: Sequence[Finding],
    peaks: Peaks = _remember_nothing,
    assessments: Sequence[Assessment] = (),
    *,
    is_recorded: bool = False,
) -> Verdict:
    """Return the verdict on one node: lost and stale devices, then the gravest finding or what is known.

    Of a recorded run the answer goes first: that a rank's trace has ended is no trouble. How many devices are
    followed comes last, where some are not.

    Args:
        sample: The newest sample, or None before the first.
        findings: Findings of the node, open or closed.
        peaks: The most that each device used so far; without it the newest sample alone is known.
        assessments: How near each process is to running out of memory.
        is_recorded: Whether the sample comes from a file.
    """
    if sample is None:
        return Verdict("unknown", Sentence((("Waiting for the first figures", "Waiting…"),)))
    if not sample.devices:
        return _summarize_absence(sample, findings, is_recorded=is_recorded)
    known = doubt_silent(sample, assessments)
    risks = assess_risks(sample.devices, findings, known, sample.ranks)
    lead, past = _find_lead(sample, findings)
    fit = describe_fit(sample, peaks) if lead is None else None
    troubled, answer = [*_describe_troubled(sample.devices)], [*_describe_lead(lead, sample, findings, known)]
    if lead is None:
        answer = [fit] if fit is not None else [*describe_state(sample, findings, risks, known)]
    answer += [] if past is None else [(*describe_error(past, sample)[-2:], "")]
    clauses = (*answer, *troubled) if sample.clock == "trace" else (*troubled, *answer)
    if sample.devices_left_out:
        clauses = (*clauses, describe_left_out(sample))
    return Verdict("low" if fit is not None else _rate(risks.values(), lead), Sentence(clauses))


def _summarize_absence(sample: Sample, findings: Sequence[Finding], *, is_recorded: bool) -> Verdict:
    """Return the verdict where no device is left: the error that ended the last process, or the cause."""
    lead, _ = _find_lead(sample, findings)
    if lead is None:
        return Verdict("unknown", Sentence(tuple(describe_absence(sample, is_recorded=is_recorded))))
    return Verdict(lead.severity, Sentence(tuple(_describe_lead(lead, sample, findings))))


def _rate(risks: Iterable[Risk], lead: Finding | None) -> RiskLevel:
    levels: list[RiskLevel] = [risk.level for risk in risks]
    if lead is not None:
        levels.append(lead.severity)
    return max(levels, key=LEVELS.index)


def _find_lead(sample: Sample, findings: Sequence[Finding]) -> tuple[Finding | None, Finding | None]:
    """Return the finding that the verdict must speak of first, and an error of the past to mention after it.

    First comes the gravest open finding that is not mere pressure. The error of a job that has ended leads
    where nothing else is open: for a minute before anything milder, and never before what is as grave for a
    job that lives.
    """
    ended = [
        it
        for it in findings
        if it.kind in KINDS and (is_last_word(it) or (it.is_open and is_of_ended_job(it, sample.ranks)))
    ]
    errors = (it for it in ended if it.kind == OOM_MET)
    past = max(errors, key=lambda it: it.updated_s, default=None)
    live = [it for it in findings if it.is_open and it not in ended]
    lead = _find_gravest(sample, live)
    if lead is not None or past is None:
        return lead, past
    return (None, past) if live and not past.is_open else (past, None)


def _find_gravest(sample: Sample, findings: Sequence[Finding]) -> Finding | None:
    here = {device.uuid for device in sample.devices if device.state != "lost"}
    grave = [
        finding
        for finding in findings
        if finding.is_open
        and (finding.device_uuid is None or finding.device_uuid in here or finding.kind == OOM_MET)
        and SEVERITIES.index(finding.severity)
        >= SEVERITIES.index("medium" if finding.kind == "oom" else "high")
    ]
    return max(grave, key=_weigh, default=None)


def _weigh(finding: Finding) -> tuple[bool, int, bool, int, float]:
    """Return what makes one finding tell more than another.

    What is about running out of memory goes before its causes, then the graver one; forecasts first, then
    the highest recorded peak.
    """
    severity = SEVERITIES.index(finding.severity)
    peak = peak_bytes(finding) if finding.kind == CAPACITY else 0
    return finding.kind in DECISIVE, severity, finding.kind == "oom", peak, finding.opened_s


def _describe_lead(
    lead: Finding | None, sample: Sample, findings: Sequence[Finding], assessments: Sequence[Assessment] = ()
) -> Iterator[Clause]:
    if lead is None:
        return
    if lead.kind == OOM_MET:
        yield describe_error(lead, sample)
    else:
        leak = describe_leak(findings, lead.device_uuid) if lead.kind == "oom" else None
        title = count_down(lead, assessments, sample.time_s) if lead.kind == "oom" else lead.title
        yield _shorten_title(title, None if leak is None else leak.place)
    above = {finding.device_uuid for finding in findings if finding.kind == CAPACITY and finding.is_open}
    if lead.kind == CAPACITY and len(above) > 1:
        yield (f"{len(above):,} of {len(sample.devices):,} ranks were above it", "")


def _shorten_title(title: str, suspected: str | None = None) -> Clause:
    """Return a title, then without its interval, without the tail of its cause, without its cause.

    A suspected place in the program is put at the end, where the title does not name one. In little room it
    is all that is left of the cause, and figures stand closer.
    """
    if suspected is not None and suspected not in title:
        title = f"{title}, kept at {suspected}"
    plain = re.sub(r"\s*\([^()]*\d[^()]*%[^()]*\)", "", title)
    without_tail = plain.rsplit(", ", 1)[0] if ": " in plain.rsplit(", ", 1)[0] else plain
    head, _, cause = plain.partition(": ")
    brief, place = _abbreviate(head), _PLACE.search(cause)
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
