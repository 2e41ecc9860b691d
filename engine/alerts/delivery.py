"""The hub's end of the hooks: bounded queues, a process for each delivery, nothing that waits."""

import os
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, cast

import msgspec

from ..child_processes import module_command, own_environment
from ..clock import Clock, SystemClock
from ..model import Evidence, Finding, HookStatus, make_finding_id
from ..settings import AlertSettings
from ..text import last_printable_line
from .payload import Alert, DeliveryJob, Hook, list_hooks, make_alert
from .state import Crossing, is_told

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
            if crossing.event in self._settings.on and is_told(crossing, self._settings):
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
