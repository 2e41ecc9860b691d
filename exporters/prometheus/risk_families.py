"""What is told of conclusions: how near each process is to running out of memory, and the open findings."""

from collections import Counter

from ...engine.model import Assessment
from .family import Family, label_text
from .picture import Picture

LEVELS = ("unknown", "low", "medium", "high", "critical")
LEVEL_NAME = "vramscope_oom_risk_level"
LEVEL_HELP = "Risk of running out of memory, estimated: 1 at the level that holds. `unknown` is one of them."
FINDINGS_NAME = "vramscope_findings"
FINDINGS_HELP = "Findings that hold, by kind and severity."
FINDINGS_LABELS = ("kind", "severity")

GAUGES = (
    Family[Assessment](
        "vramscope_oom_probability_ratio",
        "gauge",
        "ratio",
        "Estimated probability of an out-of-memory error within vramscope_oom_horizon_seconds, 0 to 1.",
        lambda it: it.probability,
    ),
    Family[Assessment](
        "vramscope_oom_horizon_seconds",
        "gauge",
        "seconds",
        "How far vramscope_oom_probability_ratio looks ahead.",
        lambda it: None if it.probability is None else it.horizon_s,
    ),
    Family[Assessment](
        "vramscope_oom_headroom_bytes",
        "gauge",
        "bytes",
        "What live tensors can really take, less their peak of recent steps; estimated.",
        lambda it: (
            None if it.capacity_bytes is None or it.peak_bytes is None else it.capacity_bytes - it.peak_bytes
        ),
    ),
)
TIMES = (
    Family[Assessment](
        "vramscope_oom_in_seconds",
        "gauge",
        "seconds",
        "Estimated seconds until an out-of-memory error, median; absent where none is foreseen.",
        lambda it: it.oom_in_s,
    ),
    Family[Assessment](
        "vramscope_oom_in_low_seconds",
        "gauge",
        "seconds",
        "Lower end of the 80 % interval of vramscope_oom_in_seconds.",
        lambda it: it.oom_in_low_s,
    ),
    Family[Assessment](
        "vramscope_oom_in_high_seconds",
        "gauge",
        "seconds",
        "Upper end of the 80 % interval of vramscope_oom_in_seconds.",
        lambda it: it.oom_in_high_s,
    ),
)
"""Counted from the sample that they rest on; told from now on."""


def list_assessments(picture: Picture) -> tuple[Assessment, ...]:
    """Return what is known of the risk, as long as it is of the present."""
    return picture.snapshot.assessments if picture.is_fresh else ()


def find_left_s(picture: Picture, assessment: Assessment, seconds: float) -> float:
    """Return what is left, at the scrape, of seconds that were counted from the assessment's sample."""
    sample = picture.sample
    passed_s = picture.age_s + (0.0 if sample is None else max(0.0, sample.time_s - assessment.time_s))
    return max(0.0, seconds - passed_s)


def count_findings(picture: Picture) -> Counter[tuple[str, ...]]:
    """Return how many findings hold, by the values of the labels."""
    return Counter(
        (*picture.label_device(it.device_uuid), label_text(it.kind), it.severity) for it in picture.findings()
    )
