"""Findings and a clock for the tests of alerts."""

from vramscope.engine.model import Evidence, Finding, Severity, make_finding_id

NOON_S = 1_760_011_200.0


class HandClock:
    """A clock that moves only when told."""

    def __init__(self, wall_s: float = NOON_S) -> None:
        self.now_s = wall_s

    def wall_s(self) -> float:
        return self.now_s

    def monotonic_s(self) -> float:
        return self.now_s


def make_finding(
    kind: str = "leak",
    severity: Severity = "high",
    *,
    opened_s: float = NOON_S,
    updated_s: float | None = None,
    closed_s: float | None = None,
    uuid: str = "GPU-a",
    title: str = "GPU 0 leaks 20 MiB a step",
) -> Finding:
    """Return a finding; the same kind, device and time of opening give the same id."""
    return Finding(
        id=make_finding_id(kind, "node", uuid, opened_s),
        kind=kind,
        node="node",
        device_uuid=uuid,
        device="0",
        severity=severity,
        title=title,
        opened_s=opened_s,
        updated_s=closed_s or updated_s or opened_s,
        closed_s=closed_s,
        evidence=(Evidence("growth", 20 << 20, "bytes"), Evidence("steps", 532)),
        method="step floors that rise",
        advice="detach what the list keeps",
    )
