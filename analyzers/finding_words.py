"""Findings in a few words: the name of a kind, an error that was met, the most severe leak on a device."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import PurePath

import msgspec

from ..engine.model import SEVERITIES, Finding, Sample, Severity
from ..engine.model.finding import CLOSED_BECAUSE
from ..engine.units import format_bytes, format_seconds
from .device_state import LOST, STALE
from .findings.evidence import GROWN, JOB, ONSET_STEP, PROCESS, RATE, RATE_PER_STEP, SOURCE_FILE, STARTED
from .health.health import DEVICE_ERROR, MEMORY_ERRORS
from .host_stall import KIND as HOST_STALL
from .out_of_memory import COUNT, COUNT_BEFORE, LAST, OOM_MET, RECORD, RETRIES, SIZE, STEP
from .pressure import KIND as PRESSURE
from .replay_capacity import KIND as CAPACITY
from .usage_threshold import KIND as THRESHOLD

# Kinds of findings in words for people; in JSON they keep the names that programs look for.

_NAMES = {
    OOM_MET: "out of memory",
    RETRIES: "retries",
    CAPACITY: "capacity",
    PRESSURE: "pressure",
    THRESHOLD: "threshold crossed",
    LOST: "device lost",
    STALE: "device stale",
    DEVICE_ERROR: "device error",
    MEMORY_ERRORS: "memory errors",
    HOST_STALL: "host stall",
    "oom": "out of memory ahead",
    "idle_held": "idle memory",
}


def name_kind(kind: str) -> str:
    """Return the name of a kind of finding in a few words; one of a plug-in keeps its own, spelled out."""
    return _NAMES.get(kind, kind.replace("_", " "))


# An out-of-memory error in one clause of any length: who met it, when, and what explains it.

# Evidence that `explain_error` puts into words, and counts that its title already contains.

EXPLAINED = (
    *(key.name for key in (PROCESS, STARTED, JOB, LAST, STEP, SIZE, COUNT, COUNT_BEFORE)),
    CLOSED_BECAUSE,
)
_FACT = " ran out of memory"


def describe_error(finding: Finding, sample: Sample) -> tuple[str, ...]:
    """Describe an error, from the complete form to the shortest; one that ended its process names its job
    too.
    """
    who, _, _rest = finding.title.partition(_FACT)
    job = None if finding.is_open else JOB.read(finding)
    named = who if job is None else f"{who} (job {job})"
    full = finding.title.replace(who, named, 1)
    last_s = LAST.read_number(finding)
    when = _format_moment(finding.opened_s if last_s is None else last_s, sample)
    if RECORD.read(finding) is None:
        return tuple(dict.fromkeys((f"{full}{when}", f"{who}{_FACT}{when}", f"{who}{_FACT}")))
    forms = (
        f"{full}{when}: vramscope inspect shows why",
        f"{full}{when}: vramscope inspect",
        f"{named}{_FACT}{when}: vramscope inspect",
        f"{who}{_FACT}{when}: vramscope inspect",
        f"{who}{_FACT}{when}",
        f"{who}{_FACT}",
    )
    return tuple(dict.fromkeys(forms))


def explain_error(finding: Finding, format_time: Callable[[float], str]) -> str:
    """Explain an error in one sentence: which process, asking for what, when, in which step."""
    pid = PROCESS.read(finding)
    job = JOB.read(finding)
    step = STEP.read_count(finding)
    size = SIZE.read_count(finding)
    last_s = LAST.read_number(finding)
    when = format_time(finding.opened_s if last_s is None else last_s)
    who = f"Process {pid}" if job is None else f"Process {pid} of job {job}"
    what = "ran out of memory" if size is None else f"failed to allocate {format_bytes(size)}"
    after = "" if step is None else f", after step {step:,}"
    return f"{who} {what} at {when}{after}."


def _format_moment(time_s: float, sample: Sample) -> str:
    """Format a moment: the time of day, with the date where it is not today."""
    if sample.clock == "trace":
        return f" at t {format_seconds(time_s)}"
    then = datetime.fromtimestamp(time_s)
    now = datetime.fromtimestamp(sample.time_s)
    return f" at {then:%H:%M:%S}" if then.date() == now.date() else f" on {then:%Y-%m-%d at %H:%M}"


# A leak in the few words that a panel has room for, and the place in the program that is suspected.

_LEAK = "leak"


class LeakWords(msgspec.Struct, frozen=True):
    """Texts on the most severe leak on a device."""

    severity: Severity
    # `leak +20 MiB/step since step 1,310 (10.4 GiB)`.
    text: str
    # `leak +20 MiB/step`.
    brief: str
    # `train.py:212`; None without a suspect.
    place: str | None


def describe_leak(findings: Sequence[Finding], device_uuid: str | None) -> LeakWords | None:
    """Describe the most severe open leak of device memory on a device in few words; None without one."""
    leaks = [it for it in findings if it.kind == _LEAK and it.is_open and it.device_uuid == device_uuid]
    leak = max(leaks, key=lambda found: (SEVERITIES.index(found.severity), found.updated_s), default=None)
    if leak is None:
        return None
    per_step = RATE_PER_STEP.read_number(leak)
    per_s = RATE.read_number(leak)
    rate = "leak"
    if per_step is not None:
        rate = f"leak +{format_bytes(round(per_step))}/step"
    elif per_s is not None:
        rate = f"leak +{format_bytes(round(60 * per_s))}/min"
    step = ONSET_STEP.read_number(leak)
    grown = GROWN.read_number(leak)
    since = "" if step is None else f" since step {int(step):,}"
    past = since if grown is None else f"{since} ({format_bytes(int(grown))})"
    file = SOURCE_FILE.read(leak)
    place = PurePath(file).name if isinstance(file, str) else None
    return LeakWords(leak.severity, f"{rate}{past}", rate, place)
