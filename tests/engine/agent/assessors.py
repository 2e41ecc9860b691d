"""An analyzer that assesses by a rule that a test can follow, and assessments of its own making."""

from collections.abc import Sequence

from vramscope.engine.model import Assessment, Finding, Sample

GIB = 1024**3


def make_assessment(
    time_s: float = 1000.0, *, uuid: str = "GPU-a", pid: int | None = None, **more: object
) -> Assessment:
    """Return an assessment of low risk, unless told otherwise."""
    fields = {"node": "node", "device": "0", "level": "low", "reason": "steady", **more}
    return Assessment(device_uuid=uuid, time_s=time_s, pid=pid, **fields)  # type: ignore[arg-type]


class UsedAssessor:
    """Says of each device that its risk is high above half of its memory; tells a level when it changes."""

    name = "used"

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self._changed: list[Assessment] = []

    def observe(self, sample: Sample) -> Sequence[Finding]:
        for device in sample.devices:
            used, total = device.memory.used_bytes or 0, device.memory.total_bytes or 1
            level = "high" if used > total / 2 else "low"
            if self._told.get(device.uuid) != level:
                self._told[device.uuid] = level
                self._changed.append(make_assessment(sample.time_s, uuid=device.uuid, level=level))
        return ()

    def restore(self, findings: Sequence[Finding]) -> None:
        pass

    def assess(self) -> Sequence[Assessment]:
        changed, self._changed = self._changed, []
        return changed


class BrokenAssessor(UsedAssessor):
    """Observes well and cannot assess."""

    name = "broken"

    def assess(self) -> Sequence[Assessment]:
        raise ZeroDivisionError("oops")
