"""An out-of-memory error in one clause of any length: who met it, when, and what explains it."""

from collections.abc import Callable
from datetime import datetime

from ..engine.model import Finding, Sample
from ..engine.model.finding import CLOSED_BECAUSE
from ..engine.units import format_bytes
from .finding_evidence import JOB, PROCESS, STARTED, read_evidence
from .out_of_memory_track import COUNTS, LAST, RECORD, SIZE, STEP

EXPLAINED = (PROCESS, STARTED, JOB, LAST, STEP, SIZE, *COUNTS, CLOSED_BECAUSE)
"""Evidence that `explain_error` puts into words, and counts of which its title tells what matters."""
_FACT = " ran out of memory"


def describe_error(finding: Finding, sample: Sample) -> tuple[str, ...]:
    """Return the clause, from its complete form to its shortest.

    Args:
        finding: An error that was met; where it ended its process, the job is named too.
        sample: The newest sample.
    """
    who, _, _rest = finding.title.partition(_FACT)
    job = None if finding.is_open else read_evidence(finding, JOB)
    named = who if job is None else f"{who} (job {job})"
    full = finding.title.replace(who, named, 1)
    last_s = read_evidence(finding, LAST)
    when = _format_moment(last_s if isinstance(last_s, int | float) else finding.opened_s, sample)
    if read_evidence(finding, RECORD) is None:
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
    """Return what is known of an error in one sentence: which process, asking for what, when, in which step.

    Args:
        finding: An error that was met.
        format_time: Words a moment as people read it.
    """
    pid = read_evidence(finding, PROCESS)
    job = read_evidence(finding, JOB)
    step = read_evidence(finding, STEP)
    size = read_evidence(finding, SIZE)
    last_s = read_evidence(finding, LAST)
    when = format_time(last_s if isinstance(last_s, int | float) else finding.opened_s)
    who = f"Process {pid}" if job is None else f"Process {pid} of job {job}"
    what = "ran out of memory" if not isinstance(size, int) else f"asked for {format_bytes(size)} in vain"
    after = "" if not isinstance(step, int) else f", after step {step:,}"
    return f"{who} {what} at {when}{after}."


def _format_moment(time_s: float, sample: Sample) -> str:
    """Return a moment as people say it: the time of day, with the date where that is another than now."""
    if sample.clock == "trace":
        return f" at t {time_s:,.1f} s"
    then = datetime.fromtimestamp(time_s)
    now = datetime.fromtimestamp(sample.time_s)
    return f" at {then:%H:%M:%S}" if then.date() == now.date() else f" on {then:%Y-%m-%d at %H:%M}"
