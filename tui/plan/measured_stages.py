"""What a running job needs, held against the stages of a candidate where both are cut alike."""

from typing import NamedTuple

from ...analyzers.comparison.model import say_percent, say_signed
from ...analyzers.stage_peaks import JobStages, StagePeak
from ...engine.units import format_bytes
from ..draw.numbers import count_text, moment_text
from .planned import Candidate, PlannedStage


class MeasuredStage(NamedTuple):
    """The peaks of one stage of a job, of as many tensor ranks as the plan's figure is of."""

    stage: int
    allocated_bytes: int
    reserved_bytes: int | None
    word: str
    """`measured`, or `modelled` on a simulated card."""


class MatchedJob(NamedTuple):
    """What a job says of a candidate."""

    stages: tuple[MeasuredStage, ...] = ()
    sentence: str = ""
    """What was measured, or why it cannot be held against the candidate; empty without a job."""


def match_job(candidate: Candidate, job: JobStages) -> MatchedJob:
    """Return what the stages of a job say of a candidate."""
    if not job.stages or not candidate.stages:
        return MatchedJob()
    refusal = _refuse(candidate, job)
    if refusal is not None:
        return MatchedJob(sentence=refusal)
    found = [_measure(peak, candidate.tensor) for peak in job.stages]
    stages = tuple(each for each in found if each is not None)
    return MatchedJob(stages, _describe(candidate, job, stages))


def _refuse(candidate: Candidate, job: JobStages) -> str | None:
    """Return why a job and a candidate cannot be compared; None where they can."""
    count = job.pipeline or job.stages[-1].stage + 1
    is_alike = count == len(candidate.stages) if job.pipeline else count <= len(candidate.stages)
    if not is_alike:
        stages = count_text(count, "stage", "stages")
        return f"the job that runs has {stages}: choose a plan of as many to see what it needs"
    tensor = max(peak.tensor_ranks for peak in job.stages)
    if candidate.tensor not in (1, tensor):
        return f"the job splits each layer over {tensor} tensor ranks, this plan over {candidate.tensor}"
    return None


def _measure(peak: StagePeak, tensor: int) -> MeasuredStage | None:
    """Return the peaks of a stage: of one rank, or of all tensor ranks together where the plan has one."""
    is_whole = tensor < peak.tensor_ranks
    allocated = peak.whole_allocated_bytes if is_whole else peak.allocated_bytes
    reserved = peak.whole_reserved_bytes if is_whole else peak.reserved_bytes
    if allocated is None:
        return None
    return MeasuredStage(peak.stage, allocated, reserved, "modelled" if peak.is_simulated else "measured")


def _describe(candidate: Candidate, job: JobStages, stages: tuple[MeasuredStage, ...]) -> str:
    count = f"{len(stages)} of {len(candidate.stages)} stages"
    since = "" if job.since_s is None else f" since {moment_text(job.since_s, job.clock)}"
    tensor = max(peak.tensor_ranks for peak in job.stages)
    ranks = f", {tensor} tensor ranks together" if candidate.tensor < tensor else ""
    word = "modelled" if any(each.word == "modelled" for each in stages) else "measured"
    told = f"{count} {word}{since}{ranks}"
    planned = [(each.allocated_bytes, candidate.stages[each.stage].peak_bytes) for each in stages]
    differences = [size - peak for size, peak in planned if peak is not None]
    if not differences:
        return told
    most = max(differences, key=abs)
    return f"{told}: at most {say_signed(most)} beside the plan" if most else f"{told}: as planned"


def say_measured(stage: PlannedStage, measured: MeasuredStage) -> tuple[str, str, str]:
    """Return what was measured beside what was planned: at length, in brief, as briefly as can be."""
    allocated = measured.allocated_bytes
    reserved = measured.reserved_bytes
    text = f"{measured.word} {format_bytes(allocated)}"
    more = "" if reserved is None else f", reserved {format_bytes(reserved)}"
    if not stage.peak_bytes:
        return f"{text}{more}", text, format_bytes(allocated)
    difference = allocated - stage.peak_bytes
    share = say_percent(100.0 * difference / stage.peak_bytes)
    return f"{text}, {say_signed(difference)} ({share}){more}", f"{text} {share}", share
