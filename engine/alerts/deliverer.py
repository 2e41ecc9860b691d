"""The process that delivers one alert, which it reads from its standard input.

It is a process of its own because it looks up names, checks certificates and waits for programs, and the hub
may not wait for any of these. Its last line on stderr says why it failed; nothing secret is in it.
"""

import base64
import http.client
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request

import msgspec

from ..http_opener import make_opener
from ..model import SEVERITIES, Severity
from ..settings.layers import FINDING_PREFIX
from ..settings.model import AlertFormat
from ..text import last_printable_line, make_printable
from .delivery import Alert, DeliveryJob

MAX_REASON_CHARS = 300
# The kernel limits all variables together.
MAX_VARIABLE_CHARS = 4000


class DeliveryError(Exception):
    """The alert did not arrive; the text says why in one sentence."""


def main() -> int:
    """Deliver the job on standard input; return 0, or 1 if it did not arrive."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=DeliveryJob)
    try:
        deliver(job)
    except DeliveryError as error:
        sys.stderr.write(f"{error}\n"[:MAX_REASON_CHARS])
        return 1
    return 0


def deliver(job: DeliveryJob) -> None:
    if job.hook.command is not None:
        _run_command(job, job.hook.command)
    else:
        _post(job)


def _run_command(job: DeliveryJob, command: tuple[str, ...]) -> None:
    """Run a command, and end it with all its children if it takes too long."""
    with _open_memory(encode_alert(job.alert, job.hook.format)) as given, _open_memory(b"") as said:
        try:
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env={**os.environ, **make_variables(job.alert)},
                start_new_session=True,
            )
        except OSError as error:
            raise DeliveryError(f"cannot run {command[0]}: {error.strerror}") from error
        try:
            code = process.wait(job.hook.timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            late = f"did not end within {job.hook.timeout_s:g} s and was stopped"
            raise DeliveryError(f"{command[0]} {late}") from None
        if code != 0:
            size = os.lseek(said, 0, os.SEEK_END)
            last = last_printable_line(os.pread(said, MAX_REASON_CHARS, max(0, size - MAX_REASON_CHARS)))
            raise DeliveryError(f"{command[0]} ended with status {code}" + (f": {last}" if last else ""))


def _post(job: DeliveryJob) -> None:
    """Post to a webhook; a failure that may pass by itself is tried once more."""
    hook = job.hook
    body = encode_alert(job.alert, hook.format)
    for is_last in (False, True):
        try:
            with _at_most(hook.timeout_s):
                post(hook.url or "", body, version=job.alert.version, timeout_s=hook.timeout_s)
        except (WebhookError, TimeoutError) as error:
            may_pass = not isinstance(error, WebhookError) or error.may_pass
            if is_last or not may_pass:
                reason = str(error) or f"did not answer within {hook.timeout_s:g} s"
                raise DeliveryError(f"{hook.target} {reason}{', twice' if is_last else ''}") from error
            time.sleep(hook.retry_after_s)
        else:
            return


REPEATED_S = 0.5


@contextmanager
def _at_most(duration_s: float) -> Iterator[None]:
    """Raise TimeoutError when a block takes longer; a socket's own limit restarts with every byte."""

    def give_up(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeoutError

    signal.signal(signal.SIGALRM, give_up)
    # Again and again: an exception is lost where it is raised inside a finalizer.
    signal.setitimer(signal.ITIMER_REAL, duration_s, REPEATED_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def _open_memory(content: bytes) -> Iterator[int]:
    """Yield a file in memory with these bytes, to be read from its beginning."""
    descriptor = os.memfd_create("vramscope-alert")
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


# Client errors that pass by themselves.
BUSY = (408, 425, 429)
MAX_ANSWER_BYTES = 4096


class WebhookError(Exception):
    """A webhook did not accept the alert; the text continues after its name."""

    def __init__(self, reason: str, *, may_pass: bool) -> None:
        super().__init__(reason)
        # Trying again may help.
        self.may_pass = may_pass


def post(url: str, body: bytes, *, version: str, timeout_s: float) -> None:
    """Post JSON and return once it was accepted.

    Args:
        url: Address, http or https; a user and password in it are sent as basic authentication.
        version: Version of vramscope, for the receiver.
        timeout_s: Seconds that connecting, sending and answering may each take.

    Raises:
        WebhookError: It was not accepted.
        TimeoutError: There was no answer in time.
    """
    headers = {"Content-Type": "application/json", "User-Agent": f"vramscope/{version}"}
    try:
        address, authorization = _split_authorization(url)
        request = Request(address, data=body, headers=headers | authorization, method="POST")  # noqa: S310
        with make_opener(address).open(request, timeout=timeout_s) as answer:
            answer.read(MAX_ANSWER_BYTES)
    except HTTPError as error:
        error.close()
        may_pass = error.code >= 500 or error.code in BUSY
        hint = "; give the address it points to" if 300 <= error.code < 400 else ""
        raise WebhookError(f"answered {error.code} {error.reason}{hint}", may_pass=may_pass) from error
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise TimeoutError from error
        raise WebhookError(_explain(error.reason), may_pass=True) from error
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise WebhookError(_explain(error), may_pass=True) from error
    except ValueError as error:  # its text repeats the address
        raise WebhookError("has an invalid address", may_pass=False) from error


def _split_authorization(url: str) -> tuple[str, dict[str, str]]:
    """Return an address without user and password, and their header."""
    parts = urlsplit(url)
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))
    if parts.username is None:
        return bare, {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return bare, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _explain(reason: object) -> str:
    """Describe what went wrong on the way, without the address."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"has an untrusted certificate: {reason.verify_message}"
    if isinstance(reason, socket.gaierror):
        return f"has an unknown host name: {reason.strerror}"
    if isinstance(reason, OSError) and reason.strerror:
        return f"cannot be reached: {reason.strerror}"
    return f"is not a web server ({type(reason).__name__})"


# What a command finds in its variables.


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


def _clean(text: str) -> str:
    """Make text fit for a variable: no zero bytes or line breaks, and not endless."""
    return make_printable(text)[:MAX_VARIABLE_CHARS]


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


if __name__ == "__main__":
    sys.exit(main())
