"""What a hook receives: one object, `vramscope.alert/1`, and the same in variables for commands."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from ..model import SEVERITIES, Finding, Severity
from ..settings import AlertSettings
from ..settings.layers import FINDING_PREFIX
from ..settings.model import AlertEvent, AlertFormat
from ..text import clean_texts, make_printable
from ..units import format_age
from .state import Crossing

ALERT_SCHEMA: Final = "vramscope.alert/1"
# The kernel limits all variables together.
MAX_VARIABLE_CHARS = 4000


class Alert(msgspec.Struct, frozen=True):
    """One crossing of one finding, as hooks get it."""

    schema: Literal["vramscope.alert/1"]
    # The same for the same crossing, however often it arrives.
    id: str
    event: AlertEvent
    # In one line, for chats and pagers.
    text: str
    # When it opened, was raised or closed, in seconds since the epoch.
    time_s: float
    # Highest severity so far.
    gravest: Severity
    # As in `vramscope --json`.
    finding: Finding
    # Version of the vramscope that sent it.
    version: str
    # Somebody tries the hook out, and nothing is the matter.
    is_test: bool = False


def make_alert(crossing: Crossing, version: str, *, is_test: bool = False) -> Alert:
    """Make the alert of a crossing, with every text printable: chats and pagers show them too."""
    event = crossing.event
    gravest = crossing.gravest
    finding = clean_texts(crossing.finding)
    # A raise is sent once for each severity, all else once for a finding.
    rank = f"-{finding.severity}" if event == "raised" else ""
    time_s = {"opened": finding.opened_s, "raised": finding.updated_s, "closed": finding.closed_s}[event]
    return Alert(
        schema=ALERT_SCHEMA,
        id=f"{finding.id}-{event}{rank}",
        event=event,
        text=("TEST, nothing is wrong. " if is_test else "") + _summarize(event, finding),
        time_s=finding.updated_s if time_s is None else time_s,
        gravest=gravest,
        finding=finding,
        version=version,
        is_test=is_test,
    )


def make_variables(alert: Alert) -> dict[str, str]:
    """Return the variables in which a command finds the alert; what is not known is empty."""
    finding = alert.finding
    values = {
        "EVENT": alert.event,
        "TEXT": alert.text,
        "ID": finding.id,
        "KIND": finding.kind,
        "SEVERITY": finding.severity,
        "NODE": finding.node,
        "DEVICE": finding.device,
        "DEVICE_UUID": finding.device_uuid,
        "TITLE": finding.title,
        "ADVICE": finding.advice,
        "OPENED_S": f"{finding.opened_s:.3f}",
        "CLOSED_S": None if finding.closed_s is None else f"{finding.closed_s:.3f}",
        "IS_TEST": "1" if alert.is_test else "",
    }
    return {f"{FINDING_PREFIX}{name}": _clean(value or "") for name, value in values.items()}


def _summarize(event: AlertEvent, finding: Finding) -> str:
    if event == "closed":
        lasted = format_age(max(0.0, (finding.closed_s or finding.updated_s) - finding.opened_s))
        return f"{finding.node}: over after {lasted}: {finding.title}"
    head = f"{finding.node}: {finding.severity}" + (", more severe than before" if event == "raised" else "")
    advice = f" To do: {finding.advice}" if finding.advice else ""
    return f"{head}: {finding.title.rstrip('.')}.{advice}"


def _clean(text: str) -> str:
    """Make text fit for a variable: no zero bytes or line breaks, and not endless."""
    return make_printable(text)[:MAX_VARIABLE_CHARS]


RETRY_AFTER_S = 2.0
_HOST = re.compile(r"(https?)://(?:[^/?#]*@)?([^/?#@\s]+)")


class Hook(msgspec.Struct, frozen=True):
    command: tuple[str, ...] | None = None
    url: str | None = None
    format: AlertFormat = "vramscope"
    # For one try; a webhook has two.
    timeout_s: float = 10.0
    retry_after_s: float = RETRY_AFTER_S

    @property
    def name(self) -> str:
        return "command" if self.command is not None else "webhook"

    @property
    def target(self) -> str:
        """A program, or the host of an address, without what may be secret."""
        return self.command[0] if self.command is not None else describe_address(self.url or "")

    @property
    def longest_s(self) -> float:
        """How long delivering may take at most, the start of the process and both tries included."""
        return 2 * self.timeout_s + self.retry_after_s + 10.0


class DeliveryJob(msgspec.Struct, frozen=True):
    hook: Hook
    alert: Alert


def list_hooks(settings: AlertSettings) -> list[Hook]:
    hooks = []
    if settings.command is not None:
        hooks.append(
            Hook(command=settings.command, format=settings.command_format, timeout_s=settings.timeout_s)
        )
    if settings.webhook_url is not None:
        hooks.append(
            Hook(url=settings.webhook_url, format=settings.webhook_format, timeout_s=settings.timeout_s)
        )
    return hooks


def describe_address(url: str) -> str:
    """Return an address without user, password, path and query, which may be secret."""
    found = _HOST.match(url)  # urllib is for the process that delivers
    return f"{found[1]}://{found[2]}/…" if found else "an invalid address"


# What a hook gets in the form of another program: Alertmanager's API, or an event of Kubernetes.
#
# Sources: `api/v2/openapi.yaml` of prometheus/alertmanager (`postableAlerts`), and `Event` of the API of
# Kubernetes (core/v1) with its rules for a name, a namespace and lengths.


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
