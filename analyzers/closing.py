"""How a finding is closed: when, and why."""

import msgspec

from ..engine.model import Evidence, Finding
from ..engine.model.finding import CLOSED_BECAUSE


def close_finding(finding: Finding, time_s: float, because: str) -> Finding:
    """Return a finding as closed.

    Args:
        finding: An open finding.
        time_s: Time of the sample that closed it; it never closes before it opened.
        because: Why, in a clause.
    """
    closed_s = max(time_s, finding.opened_s)
    evidence = (*finding.evidence, Evidence(CLOSED_BECAUSE, because))
    return msgspec.structs.replace(finding, updated_s=closed_s, closed_s=closed_s, evidence=evidence)
