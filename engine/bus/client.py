"""A viewer's end: the newest picture of a node, its history, and what became of the connection."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..clock import Clock, SystemClock
from ..errors import HubUnreachableError
from ..history import History
from ..model import Finding, Sample
from ..paths import locate_runtime_folder
from .lock import holder_pid, is_hub_alive
from .snapshot import Snapshot
from .stream import Event, HubStream, Joined

POLL_S = 0.25
MOST_PATIENCE_S = 1.5
REPEAT_S = 0.5
"""How often `connect` asks until it is answered: what is sent to a hub that is being replaced is lost."""
SILENT_INTERVALS = 2.5
"""A hub that has missed this many ticks, and at least this many seconds, is called silent."""


class Client:
    """One connection to a hub; use from one thread (`history` may be read from any).

    Args:
        runtime_dir: Folder of the hub.
        history: History to fill; a fresh one by default.
        closing_fd: Read end of a pipe whose closing makes `snapshot` return at once.
        clock: Injected in tests.
    """

    def __init__(
        self,
        runtime_dir: Path,
        *,
        history: History | None = None,
        closing_fd: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.history = history or History()
        self._runtime_dir = runtime_dir
        self._clock = clock or SystemClock()
        self._stream = HubStream(runtime_dir, is_viewer=True, clock=self._clock)
        if closing_fd is not None:
            self._stream.watch(closing_fd)
        self._findings: dict[str, Finding] = {}
        self._snapshot = Snapshot()

    def snapshot(self, timeout_s: float = 1.0) -> Snapshot:
        """Return the newest picture: at once when something is new, else after at most `timeout_s`.

        Samples that arrived together are all in `history`; the picture holds the newest.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            left_s = deadline_s - self._clock.monotonic_s()
            events = self._stream.events(max(0.0, min(self._patience_s, left_s)))
            is_changed = self._apply(events)
            is_changed = self._judge_connection() or is_changed
            is_over = self._stream.is_watched_closed or self._clock.monotonic_s() >= deadline_s
            if is_changed or is_over:
                return self._snapshot

    @property
    def _patience_s(self) -> float:
        """How long to sleep without looking at the connection: a hub that lives wakes us with each sample."""
        hub = self._snapshot.hub
        if hub is None or self._snapshot.connection != "live":
            return POLL_S
        return max(POLL_S, min(1.25 * hub.interval_s, MOST_PATIENCE_S))

    def samples(self) -> Iterator[Sample]:
        """Yield samples as they arrive, for ever; ends when the hub is gone.

        Raises:
            HubUnreachableError: The hub ended.
        """
        while True:
            events = self._stream.events(POLL_S)
            self._apply(events)
            yield from (event for event in events if isinstance(event, Sample))
            self._judge_connection()
            if self._snapshot.connection == "lost" and not is_hub_alive(self._runtime_dir):
                raise HubUnreachableError(self._snapshot.reason or "the agent ended")

    @property
    def refused(self) -> str | None:
        """Why the newest message of the hub could not be accepted, as what the hub did; None if it could."""
        reason = self._stream.refused
        return None if reason is None else f"answered with what this version does not accept: {reason}"

    def ask_again(self) -> None:
        """Repeat a question to the hub that is still open: a hub that was just replaced has not got it."""
        self._stream.repeat()

    def close(self) -> None:
        """Disconnect."""
        self._stream.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _apply(self, events: list[Event]) -> bool:
        snapshot = self._snapshot
        for event in events:
            if isinstance(event, Joined):
                snapshot = self._join(event, snapshot)
            elif isinstance(event, Sample):
                self.history.add(event)
                snapshot = msgspec.structs.replace(snapshot, sample=event)
            elif isinstance(event, Finding):
                self._findings[event.id] = event
                snapshot = msgspec.structs.replace(snapshot, findings=self._ordered())
            else:
                snapshot = msgspec.structs.replace(snapshot, hub=event)
        if events:
            self._snapshot = msgspec.structs.replace(
                snapshot,
                connection="live" if snapshot.sample is not None else "connecting",
                reason=self._stream.refused,
                silent_s=None,
                samples_dropped=self._stream.samples_dropped,
            )
        return bool(events)

    def _join(self, event: Joined, snapshot: Snapshot) -> Snapshot:
        welcome = event.welcome
        self.history.extend(welcome.history)
        if event.is_new_hub:
            self._findings = {}
        self._findings.update({finding.id: finding for finding in welcome.findings})
        return msgspec.structs.replace(
            snapshot, sample=welcome.sample or snapshot.sample, findings=self._ordered(), hub=welcome.hub
        )

    def _ordered(self) -> tuple[Finding, ...]:
        return tuple(sorted(self._findings.values(), key=lambda f: (not f.is_open, -f.opened_s)))

    def _judge_connection(self) -> bool:
        """Say `lost` when the hub ended or has been silent too long; return whether that is news."""
        heard_s = self._stream.heard_s
        if heard_s is None:
            return False
        silent_s = self._clock.monotonic_s() - heard_s
        hub = self._snapshot.hub
        interval_s = hub.interval_s if hub is not None else 1.0
        if silent_s < max(1.2 * interval_s, 0.5):
            return False
        is_alive = is_hub_alive(self._runtime_dir)
        if is_alive and silent_s < max(SILENT_INTERVALS * interval_s, SILENT_INTERVALS):
            return False
        if is_alive and not self._stream.is_asking:
            self._stream.ask()
        pid = holder_pid(self._runtime_dir) if is_alive else None
        reason = f"the agent (process {pid}) is silent" if is_alive else "the agent ended"
        was_lost = self._snapshot.connection == "lost"
        self._snapshot = msgspec.structs.replace(
            self._snapshot, connection="lost", reason=reason, silent_s=round(silent_s, 1)
        )
        return not was_lost


def connect(runtime_dir: Path | None = None, *, timeout_s: float = 2.0) -> Client:
    """Connect to the hub that runs on this node and return once it has answered.

    Args:
        runtime_dir: Folder of the hub; by default this user's own.
        timeout_s: How long to wait for its answer.

    Raises:
        HubUnreachableError: No hub runs there, or it does not answer.
    """
    folder = runtime_dir or locate_runtime_folder()
    if not is_hub_alive(folder):
        raise HubUnreachableError(
            f"no agent serves {folder}: start one with `vramscope agent`, or run `vramscope`, which does"
        )
    client = Client(folder)
    clock = SystemClock()
    deadline_s, repeat_s = clock.monotonic_s() + timeout_s, clock.monotonic_s() + REPEAT_S
    while client.snapshot(timeout_s=0.05).hub is None:
        now_s = clock.monotonic_s()
        if now_s > deadline_s:
            client.close()
            what = client.refused or f"has not answered within {timeout_s:g} s"
            raise HubUnreachableError(f"the agent (process {holder_pid(folder)}) that serves {folder} {what}")
        if now_s > repeat_s:
            client.ask_again()
            repeat_s = now_s + REPEAT_S
    return client
