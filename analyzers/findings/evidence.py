"""Evidence of findings by name and unit: analyzers write it; their successors and the texts read it."""

from typing import NamedTuple

from ...engine.model import Evidence, Finding
from .subjects import SubjectKey

Value = float | int | str | None


class EvidenceKey(NamedTuple):
    name: str
    unit: str = ""

    def __call__(self, value: Value) -> Evidence:
        return Evidence(self.name, value, self.unit)

    def read(self, finding: Finding) -> Value:
        """Return its value in a finding; None where the finding has none."""
        return next((evidence.value for evidence in finding.evidence if evidence.name == self.name), None)

    def read_number(self, finding: Finding) -> float | None:
        value = self.read(finding)
        return float(value) if isinstance(value, int | float) else None

    def read_count(self, finding: Finding) -> int | None:
        """Return its value where that is a whole number, as bytes and steps are."""
        value = self.read(finding)
        return value if isinstance(value, int) else None


# The process that a finding is about: pid, start time, name of its `vramscope run`.
PROCESS = EvidenceKey("process")
STARTED = EvidenceKey("started", "s")
JOB = EvidenceKey("job")

# Growth of floors, in a leak and in a forecast that rests on it.
ONSET = EvidenceKey("onset", "s")
ONSET_STEP = EvidenceKey("step at onset")
FLOOR_AT_ONSET = EvidenceKey("floor at onset", "bytes")
WINDOW = EvidenceKey("window", "s")
RATE = EvidenceKey("growth a second", "bytes/s")
RATE_PER_STEP = EvidenceKey("growth a step", "bytes")
GROWN = EvidenceKey("grown since onset", "bytes")
FLOOR = EvidenceKey("floor", "bytes")
CAPACITY = EvidenceKey("capacity", "bytes")
TIME_LEFT = EvidenceKey("time to out of memory", "s")
# The 80 % interval of that.
TIME_AT_LEAST = EvidenceKey("time at least", "s")
TIME_AT_MOST = EvidenceKey("time at most", "s")
PROBABILITY = EvidenceKey("probability")
BELIEF = EvidenceKey("probability that growth goes on")
PEAK_ABOVE_FLOOR = EvidenceKey("peak above floor", "bytes")
LIVE = EvidenceKey("live tensors", "bytes")
# The place in a program that keeps the memory of a leak.
SOURCE = EvidenceKey("source")
SOURCE_FILE = EvidenceKey("source file")


def read_process(finding: Finding) -> tuple[int | None, float | None]:
    """Return pid and start time of the process that a finding is about; None where it names none."""
    return PROCESS.read_count(finding), STARTED.read_number(finding)


def read_subject_key(finding: Finding) -> SubjectKey:
    return finding.node, finding.device_uuid or "", *read_process(finding)
