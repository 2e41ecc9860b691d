"""The time that is left in the sentence of a forecast, as of now: it is not stated anew every second."""

import re
from collections.abc import Sequence

from ..engine.model import Assessment, Finding
from ..engine.units import format_age
from .finding_evidence import read_process

_TIME = r"\d+ [smhd](?: \d+ [smh])?"
_LEFT = re.compile(rf"(out of memory in )({_TIME})")
_RANGE = re.compile(rf"\((\d+)-(\d+) s, |\(({_TIME}) to ({_TIME}), ")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def count_down(finding: Finding, assessments: Sequence[Assessment], now_s: float) -> str:
    """Return the title of a forecast with its times as of now; as it is where they are not known.

    Times come from the newest assessment of its process; else they are those of the title, less what has
    passed since it was stated.

    Args:
        finding: An open finding of kind `oom`.
        assessments: Those of its node.
        now_s: Time of the newest sample.
    """
    match = _LEFT.search(finding.title)
    if match is None:
        return finding.title
    words = [found for found in assessments if _is_about(found, finding)]
    word = min(words, key=lambda found: (found.oom_in_s or 0.0) + found.time_s, default=None)
    if word is None or word.oom_in_s is None:
        left_s = _read(match[2])
        past_s = now_s - finding.updated_s
        return _tell(finding.title, left_s - past_s, _read_range(finding.title, past_s))
    past_s = now_s - word.time_s
    low_s = word.oom_in_low_s
    high_s = word.oom_in_high_s
    known = None if low_s is None or high_s is None else (low_s - past_s, high_s - past_s)
    return _tell(finding.title, word.oom_in_s - past_s, known)


def _is_about(assessment: Assessment, finding: Finding) -> bool:
    pid, _ = read_process(finding)
    is_of_device = assessment.device_uuid == finding.device_uuid and assessment.oom_in_s is not None
    return is_of_device and (pid is None or assessment.pid == pid)


def _read(text: str) -> float:
    """Return the seconds in `1 m 16 s`."""
    words = text.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return float(sum(int(number) * _UNIT_S[unit] for number, unit in pairs))


def _read_range(title: str, past_s: float) -> tuple[float, float] | None:
    match = _RANGE.search(title)
    if match is None:
        return None
    low, high = (float(match[1]), float(match[2])) if match[1] else (_read(match[3]), _read(match[4]))
    return low - past_s, high - past_s


def _tell(title: str, left_s: float, span_s: tuple[float, float] | None) -> str:
    told = _LEFT.sub(lambda match: f"{match[1]}{format_age(round(max(0.0, left_s)))}", title, count=1)
    if span_s is None:
        return told
    low_s, high_s = (max(0, round(value)) for value in span_s)
    text = f"({low_s}-{high_s} s, " if high_s < 600 else f"({format_age(low_s)} to {format_age(high_s)}, "
    return _RANGE.sub(text, told, count=1)
