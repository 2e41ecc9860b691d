"""The hub's end of the hooks: alerts in bounded queues, a process for each delivery, nothing that waits."""

import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, cast

import msgspec

from ..child_processes import module_command, own_environment
from ..clock import Clock, SystemClock
from ..model import Evidence, Finding, HookStatus, Severity, make_finding_id
from ..settings import AlertSettings
from ..settings.model import AlertEvent, AlertFormat
from ..text import clean_texts, last_printable_line
from ..units import format_age
from .state import Crossing, is_wanted

ALERT_SCHEMA: Final = "vramscope.alert/1"
RETRY_AFTER_S = 2.0
_HOST = re.compile(r"(https?)://(?:[^/?#]*@)?([^/?#@\s]+)")
# For one hook; the oldest make room.
MAX_WAITING = 64
BURST = 20
# So many may be sent at once, and so many a minute from then on.
PER_MINUTE = 20.0
MAX_REASON_CHARS = 300
POLL_S = 0.02
PROGRAM = "vramscope.engine.alerts.deliverer"

Process = subprocess.Popen[bytes]
# Starts a process for a job; returns it and a file in memory with its output.
Start = Callable[[bytes], tuple[Process, int]]


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
        gravest=crossing.highest,
        finding=finding,
        version=version,
        is_test=is_test,
    )


def _summarize(event: AlertEvent, finding: Finding) -> str:
    if event == "closed":
        lasted = format_age(max(0.0, (finding.closed_s or finding.updated_s) - finding.opened_s))
        return f"{finding.node}: over after {lasted}: {finding.title}"
    head = f"{finding.node}: {finding.severity}" + (", more severe than before" if event == "raised" else "")
    advice = f" To do: {finding.advice}" if finding.advice else ""
    return f"{head}: {finding.title.rstrip('.')}.{advice}"


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


def start_deliverer(job: bytes) -> tuple[Process, int]:
    """Start the process that delivers one job; a file in memory passes it, so that no pipe can block."""
    given = os.memfd_create("vramscope-job")
    said = os.memfd_create("vramscope-said")
    try:
        os.write(given, job)
        os.lseek(given, 0, os.SEEK_SET)
        process = subprocess.Popen(
            module_command(PROGRAM),
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=own_environment(),
            start_new_session=True,
        )
    except BaseException:
        os.close(said)
        raise
    finally:
        os.close(given)
    return process, said


class HookLane:
    """One hook: its alerts are sent one after the other, in their order."""

    def __init__(self, hook: Hook, clock: Clock, start: Start = start_deliverer) -> None:
        self._hook = hook
        self._clock = clock
        self._start = start
        self._waiting: deque[Alert] = deque()
        self._process: Process | None = None
        self._said = -1
        self._ends_s = 0.0
        self._tokens = float(BURST)
        self._refilled_s = clock.monotonic_s()
        self._delivered = self._failed = self._dropped = 0
        self._reason: str | None = None

    @property
    def is_busy(self) -> bool:
        """An alert waits or is being delivered."""
        return self._process is not None or bool(self._waiting)

    def put(self, alert: Alert) -> None:
        """Queue an alert; if too many wait the oldest is dropped."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(alert)

    def poll(self, *, is_hurried: bool = False) -> None:
        """Note an ended delivery and send the next alert; `is_hurried` ignores the limit per minute."""
        if self._process is not None:
            self._check_process(self._process)
        if self._process is None and self._waiting and (self._take_token() or is_hurried):
            self._send(self._waiting.popleft())

    def status(self) -> HookStatus:
        return HookStatus(
            name=cast('Literal["command", "webhook"]', self._hook.name),
            target=self._hook.target,
            delivered=self._delivered,
            failed=self._failed,
            dropped=self._dropped,
            waiting=len(self._waiting) + (self._process is not None),
            reason=self._reason,
        )

    def _send(self, alert: Alert) -> None:
        try:
            job = msgspec.json.encode(DeliveryJob(self._hook, alert))
            self._process, self._said = self._start(job)
        except OSError as error:
            self._note_failure(f"cannot start a process that alerts {self._hook.target}: {error.strerror}")
        self._ends_s = self._clock.monotonic_s() + self._hook.longest_s

    def _check_process(self, process: Process) -> None:
        code = process.poll()
        if code is None and self._clock.monotonic_s() >= self._ends_s:
            process.kill()
            process.wait()
            code = process.returncode
        if code is None:
            return
        said = _read_all(self._said)
        self._process = None
        if code == 0:
            self._delivered = self._delivered + 1
            self._reason = None
        else:
            self._note_failure(
                said or f"the process that alerts {self._hook.target} ended with status {code}"
            )

    def _note_failure(self, reason: str) -> None:
        self._failed = self._failed + 1
        self._reason = f"{self._hook.name}: {reason}"

    def _take_token(self) -> bool:
        now_s = self._clock.monotonic_s()
        gained = (now_s - self._refilled_s) * PER_MINUTE / 60
        self._tokens = min(float(BURST), self._tokens + gained)
        self._refilled_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Delivery:
    """Sends crossings to the hooks of a hub."""

    def __init__(
        self,
        settings: AlertSettings,
        version: str,
        *,
        clock: Clock | None = None,
        start: Start = start_deliverer,
    ) -> None:
        self._settings = settings
        self._version = version
        clock = clock or SystemClock()
        self._lanes = [HookLane(hook, clock, start) for hook in list_hooks(settings)]

    @property
    def is_busy(self) -> bool:
        return any(lane.is_busy for lane in self._lanes)

    def put(self, crossings: Sequence[Crossing]) -> None:
        """Queue the crossings that the settings ask for."""
        for crossing in crossings:
            if crossing.event in self._settings.on and is_wanted(crossing, self._settings):
                self.put_alert(make_alert(crossing, self._version))

    def put_alert(self, alert: Alert) -> None:
        for lane in self._lanes:
            lane.put(alert)

    def poll(self, *, is_hurried: bool = False) -> None:
        """Continue deliveries; returns at once. Call it at every turn of the hub."""
        for lane in self._lanes:
            lane.poll(is_hurried=is_hurried)

    def status(self) -> tuple[HookStatus, ...]:
        return tuple(lane.status() for lane in self._lanes)

    def finish(self, timeout_s: float) -> str | None:
        """Send what waits, for so long at most; return what was left undone in one sentence, or None.

        A delivery that is under way then continues by itself.
        """
        deadline_s = time.monotonic() + timeout_s
        self.poll(is_hurried=True)
        while self.is_busy and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
            self.poll(is_hurried=True)
        left = [f"{status.waiting} for the {status.name}" for status in self.status() if status.waiting]
        return f"alerts that may not have been delivered: {', '.join(left)}" if left else None


def _read_all(descriptor: int) -> str:
    """Return the last line of a process's output, fit to be printed, and close its file."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    data = os.pread(descriptor, 4 * MAX_REASON_CHARS, max(0, size - 4 * MAX_REASON_CHARS))
    os.close(descriptor)
    return last_printable_line(data, MAX_REASON_CHARS)


def try_hooks(settings: AlertSettings, node: str, version: str) -> tuple[HookStatus, ...]:
    """Send a test alert to every hook, whatever level and kinds are set; return the results."""
    delivery = Delivery(settings, version)
    alert = make_alert(Crossing("opened", _make_finding(node), "low"), version, is_test=True)
    delivery.put_alert(alert)
    delivery.finish(max((hook.longest_s for hook in list_hooks(settings)), default=0.0))
    return delivery.status()


def _make_finding(node: str) -> Finding:
    now_s = time.time()
    return Finding(
        id=make_finding_id("test", node, None, now_s),
        kind="test",
        node=node,
        device_uuid=None,
        device=None,
        severity="low",
        title="This alert is a test of the hook",
        opened_s=now_s,
        updated_s=now_s,
        evidence=(Evidence("example", 1 << 30, "bytes"),),
        method="Nothing was measured: someone ran `vramscope agent --test-alert`.",
        advice="nothing",
    )
