"""Findings of every kind and stage, as an agent that has run for a while tells of them."""

from tests.tui.canned import NODE, NOON_S, make_hub, make_snapshot
from vramscope.engine.alerts.state import Acknowledgement, AlertState, FindingChange, Mute
from vramscope.engine.model import Evidence, Finding, HookStatus, Severity, make_finding_id
from vramscope.engine.units import GIB, MIB
from vramscope.engine.viewer.snapshot import Snapshot


def make_alert(
    kind: str,
    severity: Severity,
    index: int,
    title: str,
    *,
    age_s: float,
    closed_s: float | None = None,
    evidence: tuple[Evidence, ...] = (),
    advice: str = "",
) -> Finding:
    """Return a finding that opened some seconds before noon."""
    uuid = f"GPU-{index:04d}"
    return Finding(
        id=make_finding_id(kind, NODE, uuid, NOON_S - age_s),
        kind=kind,
        node=NODE,
        device_uuid=uuid,
        device=str(index),
        severity=severity,
        title=title,
        opened_s=NOON_S - age_s,
        updated_s=NOON_S if closed_s is None else closed_s,
        closed_s=closed_s,
        evidence=evidence,
        method="Step floors that rise over three scales, weighed against the horizon (horizon-ratio rule).",
        advice=advice,
    )


LEAK = make_alert(
    "leak",
    "high",
    5,
    "GPU 5 (rank 5) leaks 20 MiB a step since step 1,310: tensors kept by eval() at train.py:212",
    age_s=488,
    evidence=(
        Evidence("process", 4050),
        Evidence("growth", 20 * MIB, "bytes"),
        Evidence("growth rate", 18.5 * MIB, "bytes/s"),
        Evidence("grown", int(10.4 * GIB), "bytes"),
        Evidence("since step", 1310),
        Evidence("onset", NOON_S - 600, "s"),
        Evidence("watched for", 3725.0, "s"),
        Evidence("time left", None, "s"),
        Evidence("suspected line", "train.py:212"),
    ),
    advice="Detach what `losses.append(loss)` keeps: `losses.append(loss.item())` would free 10.4 GiB.",
)
OOM = make_alert(
    "oom",
    "critical",
    5,
    "GPU 5 (rank 5) out of memory in 1 m 16 s (65–90 s, 93 %)",
    age_s=78,
    evidence=(Evidence("probability", 0.93), Evidence("within", 300.0, "s")),
    advice="Stop the leak at train.py:212, or lower the micro-batch from 8 to 6.",
)
FRAGMENTATION = make_alert(
    "fragmentation",
    "medium",
    2,
    "GPU 2 holds 3.1 GiB that its own requests cannot use",
    age_s=2389,
    closed_s=NOON_S - 2110,
)
IDLE = make_alert("idle_held", "low", 3, "GPU 3 has held 40.0 GiB idle for 12 m", age_s=86_400 * 2)
PRESSURE = make_alert("pressure", "medium", 10, "GPU 10 has 3.2 of 79.6 GiB left (4 %)", age_s=300)

ALERTS = AlertState(
    acknowledged=(Acknowledgement(PRESSURE.id, "pressure", NODE, "GPU-0010", NOON_S - 200),),
    mutes=(Mute("idle_held", NODE, "GPU-0003", NOON_S - 100, until_s=NOON_S + 3000),),
    changes=(
        FindingChange(LEAK.id, NOON_S - 488, "opened, medium", "GPU 5 (rank 5) leaks 18 MiB a step"),
        FindingChange(LEAK.id, NOON_S - 120, "raised to high", LEAK.title),
        FindingChange(PRESSURE.id, NOON_S - 200, "acknowledged"),
    ),
)


def make_alerts(count: int = 8, **changes: object) -> Snapshot:
    """Return a snapshot with two open findings, one acknowledged, one muted and one closed."""
    hooks = (
        HookStatus("command", "notify-send", delivered=3),
        HookStatus(
            "webhook",
            "https://chat.example.org/…",
            delivered=1,
            failed=2,
            waiting=1,
            reason="webhook: https://chat.example.org/… answered 500 Internal Server Error, twice",
        ),
    )
    fields: dict[str, object] = {
        "findings": (OOM, PRESSURE, LEAK, IDLE, FRAGMENTATION),
        "alerts": ALERTS,
        "hub": make_hub(hooks=hooks),
        **changes,
    }
    return make_snapshot(count, **fields)  # type: ignore[arg-type]  # a test's own field names
