"""What Alertmanager and Kubernetes get of a finding that opens, rises and closes: as their APIs define it."""

import json
import re
from datetime import datetime
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from tests.engine.alerts.findings import NOON_S, make_finding
from tests.engine.alerts.receiver import Receiver
from vramscope.engine.alerts.deliverer import deliver, encode_alert
from vramscope.engine.alerts.delivery import Alert, DeliveryJob, list_hooks, make_alert
from vramscope.engine.alerts.state import Crossing
from vramscope.engine.model import Finding, Severity
from vramscope.engine.settings.model import AlertEvent, AlertFormat, AlertSettings

TIME = {"type": "string", "format": "date-time"}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
POSTABLE_ALERTS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["labels"],
        "additionalProperties": False,
        "properties": {
            "labels": LABELS,
            "annotations": LABELS,
            "startsAt": TIME,
            "endsAt": TIME,
            "generatorURL": {"type": "string", "format": "uri"},
        },
    },
}
"""`postableAlerts` of `api/v2/openapi.yaml` of Alertmanager; it refuses fields that it does not know."""

TEXT = {"type": "string"}
NAME = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"
EVENT = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "involvedObject"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "v1"},
        "kind": {"const": "Event"},
        "metadata": {
            "type": "object",
            "required": ["name", "namespace"],
            "additionalProperties": False,
            "properties": {
                "name": {"type": "string", "maxLength": 253, "pattern": NAME},
                # Of an event about an object without a namespace, as a node is.
                "namespace": {"const": "default"},
            },
        },
        "involvedObject": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"apiVersion": TEXT, "kind": TEXT, "name": TEXT, "uid": TEXT},
        },
        "reason": {"type": "string", "maxLength": 128, "pattern": r"^[A-Z][A-Za-z0-9]*$"},
        "message": {"type": "string", "maxLength": 1024},
        "type": {"enum": ["Normal", "Warning"]},
        "source": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"component": TEXT, "host": TEXT},
        },
        "firstTimestamp": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
        "lastTimestamp": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
        "count": {"type": "integer", "minimum": 1},
        "reportingComponent": TEXT,
        "reportingInstance": {"type": "string", "maxLength": 128},
    },
}
"""`Event` of the API of Kubernetes, core/v1, with the rules of its server for names and lengths."""


def alert(event: AlertEvent, finding: Finding, gravest: Severity = "high") -> Alert:
    return make_alert(Crossing(event, finding, gravest), "9.9")


def read(told: Alert, form: AlertFormat) -> Any:
    found = json.loads(encode_alert(told, form))
    jsonschema.validate(
        found,
        POSTABLE_ALERTS if form == "alertmanager" else EVENT,
        format_checker=jsonschema.FormatChecker(),
    )
    return found


def list_active(told: Alert, now_s: float) -> list[dict[str, str]]:
    """Return the labels of the alerts that Alertmanager would show then."""
    return [
        it["labels"]
        for it in read(told, "alertmanager")
        if datetime.fromisoformat(it["startsAt"]).timestamp() <= now_s
        and datetime.fromisoformat(it["endsAt"]).timestamp() > now_s
    ]


def test_one_alert_holds_from_the_opening_to_the_end_at_the_severity_of_then() -> None:
    opened = alert("opened", make_finding("host_stall", "low"), "low")
    (labels,) = list_active(opened, NOON_S + 3600)
    assert (labels["alertname"], labels["severity"], labels["node"]) == ("VramscopeHostStall", "low", "node")
    assert (labels["uuid"], labels["device"]) == ("GPU-a", "0")

    raised = alert("raised", make_finding("host_stall", "high", updated_s=NOON_S + 60), "high")
    (higher,) = list_active(raised, NOON_S + 61)
    assert higher == {**labels, "severity": "high"}, "the same finding: what was low is over"
    ended = {it["labels"]["severity"]: it for it in read(raised, "alertmanager")}["low"]
    assert ended["labels"] == labels

    closed = alert("closed", make_finding("host_stall", "high", closed_s=NOON_S + 90), "high")
    assert list_active(closed, NOON_S + 91) == []
    severities = [it["labels"]["severity"] for it in read(closed, "alertmanager")]
    assert severities == ["low", "medium", "high"]


def test_an_alert_says_what_and_what_to_do_and_leaves_out_what_is_unknown() -> None:
    told = read(alert("opened", make_finding(), "high"), "alertmanager")[-1]
    assert told["annotations"]["summary"] == "GPU 0 leaks 20 MiB a step"
    assert told["annotations"]["runbook"] == "detach what the list keeps"
    of_node = replace(make_finding(), device=None, device_uuid=None, advice="")
    told = read(alert("opened", of_node), "alertmanager")[-1]
    assert not {"device", "uuid"} & told["labels"].keys()
    assert "runbook" not in told["annotations"]


def test_an_event_is_about_the_node_and_a_warning_until_it_is_over() -> None:
    told = read(alert("opened", make_finding("host_stall")), "kubernetes-event")
    assert told["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "node"}
    assert (told["reason"], told["type"]) == ("VramscopeHostStall", "Warning")
    assert told["message"].startswith("node: high: GPU 0 leaks 20 MiB a step")
    over = read(alert("closed", make_finding("host_stall", closed_s=NOON_S + 90)), "kubernetes-event")
    assert (over["reason"], over["type"]) == ("VramscopeHostStallOver", "Normal")
    assert over["metadata"]["name"] != told["metadata"]["name"]
    assert told == read(alert("opened", make_finding("host_stall")), "kubernetes-event"), "sent twice"


@pytest.mark.parametrize("node", ["Rack_7/Node 3.", "-" * 300, "n" * 300, "ünï"])
def test_any_name_and_length_stays_an_event(node: str) -> None:
    finding = replace(make_finding(title="x" * 3000), node=node)
    told = encode_alert(alert("opened", finding), "kubernetes-event")
    event = json.loads(told)
    assert len(event["message"]) == 1024
    assert re.fullmatch(NAME, event["metadata"]["name"])
    assert len(event["metadata"]["name"]) <= 253


def test_each_hook_gets_the_form_that_its_setting_names() -> None:
    settings = AlertSettings(
        command=("true",),
        command_format="kubernetes-event",
        webhook_url="http://127.0.0.1:1/",
        webhook_format="alertmanager",
    )
    command, webhook = list_hooks(settings)
    assert (command.format, webhook.format) == ("kubernetes-event", "alertmanager")
    told = alert("opened", make_finding())
    with Receiver() as receiver:
        deliver(DeliveryJob(replace(webhook, url=receiver.url()), told))
    assert receiver.bodies[0] == json.loads(encode_alert(told, "alertmanager"))
    script = "import json, sys; sys.exit(json.load(sys.stdin)['kind'] != 'Event')"
    deliver(DeliveryJob(replace(command, command=("python3", "-c", script)), told))
