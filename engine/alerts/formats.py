"""What a hook gets in the form of another program: Alertmanager's API, or an event of Kubernetes.

Sources: `api/v2/openapi.yaml` of prometheus/alertmanager (`postableAlerts`), and `Event` of the API of
Kubernetes (core/v1) with its rules for a name, a namespace and lengths.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ..model import SEVERITIES, Severity
from ..settings.model import AlertFormat
from .payload import Alert

# Alertmanager ends an alert by itself after five minutes unless it is sent again or says until when it holds.
# A hook sends once: an alert ends when the finding closes, or after this time if the agent died.
HOLDS = timedelta(hours=24)
# Of Kubernetes, in characters.
MOST_MESSAGE = 1024
MOST_NAME = 253
_DEFAULT_NAMESPACE = "default"


def encode_alert(alert: Alert, form: AlertFormat) -> bytes:
    """Return the JSON that a hook gets."""
    if form == "alertmanager":
        return msgspec.json.encode(make_postable_alerts(alert))
    if form == "kubernetes-event":
        return msgspec.json.encode(make_event(alert))
    return msgspec.json.encode(alert)


def make_postable_alerts(alert: Alert) -> list[dict[str, Any]]:
    """Return one alert for each severity that the finding can have had; at most one of them holds.

    The severity is a label, by which alerts are routed, and labels are the identity of an alert: what had
    another severity before must end, as nobody else ends it. Alertmanager notifies nobody of the end of what
    it never knew.
    """
    finding = alert.finding
    is_over = alert.event == "closed"
    opened = _as_time(finding.opened_s)
    changed = _as_time(alert.time_s)

    def make(severity: Severity) -> dict[str, Any]:
        holds = severity == finding.severity and not is_over
        labels = {
            "alertname": f"Vramscope{_as_word(finding.kind)}",
            "severity": severity,
            "kind": finding.kind,
            "node": finding.node,
            "device": finding.device,
            "uuid": finding.device_uuid,
            "finding": finding.id,
        }
        annotations = {"summary": finding.title, "description": alert.text, "runbook": finding.advice}
        return {
            "labels": {name: text for name, text in labels.items() if text},
            "annotations": {name: text for name, text in annotations.items() if text},
            "startsAt": opened.isoformat(),
            "endsAt": (changed + HOLDS if holds else max(opened, changed)).isoformat(),
        }

    known = SEVERITIES[: SEVERITIES.index(max(alert.gravest, finding.severity, key=SEVERITIES.index)) + 1]
    return [make(it) for it in known]


def make_event(alert: Alert) -> dict[str, Any]:
    """Return an event about the node; its name is the crossing, so that a second one is refused as known."""
    finding = alert.finding
    is_over = alert.event == "closed"
    time = _as_time(alert.time_s).isoformat(timespec="seconds").replace("+00:00", "Z")
    name = re.sub(r"[^a-z0-9.-]+", "-", f"{finding.node}.{alert.id}".lower()).strip("-.")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name[-MOST_NAME:].strip("-."), "namespace": _DEFAULT_NAMESPACE},
        # Nodes are in no namespace, and their own name is what `kubectl describe node` looks for as UID.
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": finding.node, "uid": finding.node},
        "reason": f"Vramscope{_as_word(finding.kind)}{'Over' if is_over else ''}",
        "message": alert.text[:MOST_MESSAGE],
        "type": "Normal" if is_over else "Warning",
        "source": {"component": "vramscope", "host": finding.node},
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
        "reportingComponent": "vramscope",
        "reportingInstance": finding.node,
    }


def _as_word(kind: str) -> str:
    """Return `HostStall` for `host_stall`."""
    return "".join(part.capitalize() for part in re.split(r"[^a-zA-Z0-9]+", kind))


def _as_time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
