"""What a headless verb looks at: the agent where one runs, else this process samples for itself."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from vramscope.engine.bus.lock import is_hub_alive
from vramscope.engine.errors import HubUnreachableError
from vramscope.engine.paths import locate_runtime_folder

if TYPE_CHECKING:
    from vramscope.engine.bus.client import Client
    from vramscope.engine.model import NodeStatus

    from .local_node import LocalNode

AGENT_ANSWERS_WITHIN_S = 2.0
ONCE_INTERVAL_S = 0.1


def _do_nothing() -> None:
    pass


class Observer:
    """Yields the state of this node; starts no process.

    Args:
        interval_s: Seconds from one status to the next.
        memory_interval_s: Seconds between two readings of device memory, where this process samples.
    """

    def __init__(self, *, interval_s: float, memory_interval_s: float) -> None:
        self._interval_s = interval_s
        self._memory_interval_s = memory_interval_s
        self._client: Client | None = None
        self._local: LocalNode | None = None
        self._due_s: float | None = None
        self._shown: tuple[int, float] | None = None
        self._has_devices = False
        self._is_without_devices = True
        """Of the newest status; where the time was up before the first, the reason is told all the same."""
        self._news: list[str] = []

    @property
    def sentences(self) -> list[str]:
        """What was looked for and not found, for stderr; it grows."""
        if self._local is not None and self._is_without_devices and self._local.is_decided:
            self._news += [text for text in self._local.sentences if text not in self._news]
        return self._news

    @property
    def is_decided(self) -> bool:
        """Whether it is known if there is a device, and if not, why."""
        return self._has_devices or self._local is None or self._local.is_decided

    @property
    def exit_code(self) -> int:
        """0 where devices or ranks were seen, else the code of what is missing."""
        if self._has_devices:
            return 0
        return 0 if self._local is None else self._local.exit_code

    def once(self, meanwhile: Callable[[], None] = _do_nothing) -> "NodeStatus":
        """Return the state of the node now, after two readings 0.1 s apart where this process samples.

        Args:
            meanwhile: Called once between the two readings, or at once where an agent answers.
        """
        self._start(interval_s=ONCE_INTERVAL_S)
        if self._client is not None:
            status = self._ask_agent()
            if status is not None and (status.devices or status.ranks or status.findings):
                meanwhile()
                return self._noted(status)
            # An agent that knows no device cannot say why in an exit code: look again here.
            self._leave_agent()
        return self._noted(self._open_local(interval_s=ONCE_INTERVAL_S).once(meanwhile))

    def next(self, timeout_s: float | None) -> "NodeStatus | None":
        """Return the state of the node when the next is due, or None when the time is up first.

        Args:
            timeout_s: Seconds until the time is up; None for never.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        if self._client is None and self._local is None:
            self._start(interval_s=self._interval_s)
        if self._client is not None:
            status = self._await_news(self._client, end_s)
            if status is not None:
                return self._noted(status)
            if end_s is not None and time.monotonic() >= end_s:
                return None
            reason = self._client.snapshot(timeout_s=0.0).reason or "the agent is gone"
            self._news.append(f"{reason}; sampling in this process from here on")
            self._leave_agent()
        status = self._open_local(interval_s=self._interval_s).next(end_s)
        return None if status is None else self._noted(status)

    def close(self) -> None:
        """Give back the connection and end the threads."""
        self._leave_agent()
        if self._local is not None:
            self._local.stop()

    def _start(self, *, interval_s: float) -> None:
        if self._client is not None or self._local is not None:
            return
        folder = locate_runtime_folder()
        if is_hub_alive(folder):
            from vramscope.engine.bus.client import connect

            try:
                self._client = connect(folder, timeout_s=AGENT_ANSWERS_WITHIN_S)
            except HubUnreachableError as error:
                self._news.append(f"{error}; sampling in this process instead")
            else:
                return
        self._open_local(interval_s=interval_s)

    def _open_local(self, *, interval_s: float) -> "LocalNode":
        if self._local is None:
            from .local_node import LocalNode

            self._local = LocalNode(interval_s=interval_s, memory_interval_s=self._memory_interval_s)
            self._local.start()
        return self._local

    def _ask_agent(self) -> "NodeStatus | None":
        """Return what the agent says now, or None where it has gone or says nothing."""
        from vramscope.exporters.status import describe_snapshot

        if self._client is None:
            return None
        snapshot = self._client.snapshot(timeout_s=0.0)
        end_s = time.monotonic() + AGENT_ANSWERS_WITHIN_S
        while snapshot.sample is None and snapshot.connection != "lost" and time.monotonic() < end_s:
            snapshot = self._client.snapshot(timeout_s=0.1)
        if snapshot.connection == "lost" and not is_hub_alive(locate_runtime_folder()):
            return None
        return describe_snapshot(snapshot)

    def _await_news(self, client: "Client", end_s: float | None) -> "NodeStatus | None":
        """Return what the agent says when the next status is due and a sample came since the last one.

        None when the time is up first, or when the agent ended or fell silent.
        """
        from vramscope.exporters.status import describe_snapshot

        now_s = time.monotonic()
        self._due_s = now_s if self._due_s is None else max(now_s, self._due_s + self._interval_s)
        snapshot = client.snapshot(timeout_s=0.0)
        while snapshot.connection != "lost":
            sample = snapshot.sample
            key = None if sample is None else (sample.seq, sample.time_s)
            is_new = key not in (None, self._shown)
            now_s = time.monotonic()
            if is_new and now_s >= self._due_s:
                self._shown = key
                return describe_snapshot(snapshot)
            if end_s is not None and now_s >= end_s:
                return None
            ends_s = [end_s] if end_s is not None else []
            ends_s += [self._due_s] if is_new else []
            snapshot = client.snapshot(timeout_s=max(0.0, min(ends_s, default=now_s + 1.0) - now_s))
        return None

    def _leave_agent(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _noted(self, status: "NodeStatus") -> "NodeStatus":
        self._has_devices = self._has_devices or bool(status.devices or status.ranks)
        self._is_without_devices = not status.devices
        return status
