"""What a finding's evidence says, read back: by a successor that adopts it, and by whoever words it."""

from ...engine.model import Finding
from .subjects import SubjectKey

PROCESS = "process"
STARTED = "started"
JOB = "job"
"""Evidence that tells which process a finding is about: pid, start time, name of its `vramscope run`."""


def read_evidence(finding: Finding, name: str) -> float | int | str | None:
    """Return one value of a finding's evidence, or None."""
    return next((evidence.value for evidence in finding.evidence if evidence.name == name), None)


def read_number(finding: Finding, name: str) -> float:
    """Return one number of a finding's evidence; 0 where it has none."""
    value = read_evidence(finding, name)
    return float(value) if isinstance(value, int | float) else 0.0


def read_process(finding: Finding) -> tuple[int | None, float | None]:
    """Return pid and start time of the process that a finding is about; None where it names none."""
    pid = read_evidence(finding, PROCESS)
    started_s = read_evidence(finding, STARTED)
    return (
        pid if isinstance(pid, int) else None,
        float(started_s) if isinstance(started_s, int | float) else None,
    )


def read_subject_key(finding: Finding) -> SubjectKey:
    """Return whom a finding is about, as `Subject.key` has it."""
    return finding.node, finding.device_uuid or "", *read_process(finding)
