"""`--once` and `--json`: the state of this node, from its agent or sampled by this process."""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from vramscope.engine.errors import HubUnreachableError, UsageError
from vramscope.engine.settings import Settings
from vramscope.engine.units import parse_duration
from vramscope.engine.viewer.this_node import LocalNode, ThisNode

from .frame.emit import complain, leave_now
from .frame.errors import EXIT_INTERRUPTED
from .frame.settings import read_settings

if TYPE_CHECKING:
    from pathlib import Path

    from vramscope.engine.model import Finding, NodeStatus, Sample
    from vramscope.engine.viewer.client import Client


AGENT_ANSWERS_WITHIN_S = 2.0
ONCE_INTERVAL_S = 0.1
# Servers of models are read while a node is sampled; where there are none, nothing waits for them.
SERVERS_ANSWER_WITHIN_S = 2.0


def _do_nothing() -> None:
    pass


class Observer:
    """Yields the state of this node; starts no process.

    Args:
        interval_s: Seconds from one status to the next.
        memory_interval_s: Seconds between two readings of device memory, where this process samples.
        serving: Servers of models to read, as in the settings, where this process samples.
    """

    def __init__(self, *, interval_s: float, memory_interval_s: float, serving: Sequence[str] = ()) -> None:
        self._interval_s = interval_s
        self._memory_interval_s = memory_interval_s
        self._serving = tuple(serving)
        self._local_interval_s = interval_s
        self._source: ThisNode[Client, LocalNode] = ThisNode(self._connect, self._make_local)
        self._findings: dict[str, Finding] = {}
        self._due_s: float | None = None
        self._shown: tuple[int, float] | None = None
        self._has_devices = False
        self.has_asked_agent = False
        """Whether an agent answered `once`, also if it had nothing to report and this process sampled."""
        # True before the first status, so that a reason is printed then too.
        self._is_without_devices = True

    @property
    def sentences(self) -> list[str]:
        """What is missing here, for stderr; the list grows."""
        sentences = self._source.sentences
        local = self._source.local
        if local is not None and self._is_without_devices and local.is_decided:
            sentences += [text for text in local.sentences if text not in sentences]
        return sentences

    @property
    def is_decided(self) -> bool:
        """Whether it is known that there is a device, or why there is none."""
        return self._has_devices or self._source.local is None or self._source.local.is_decided

    @property
    def exit_code(self) -> int:
        """0 where devices or ranks were seen, else the code of what is missing."""
        if self._has_devices:
            return 0
        return 0 if self._source.local is None else self._source.local.exit_code

    def once(self, meanwhile: Callable[[], None] = _do_nothing) -> "NodeStatus":
        """Return the state of the node now, after two readings 0.1 s apart where this process samples.

        Args:
            meanwhile: Called once between the two readings, or at once where an agent answers.
        """
        self._local_interval_s = ONCE_INTERVAL_S
        self._source.open()
        status = None if self._source.agent is None else self._ask_agent(self._source.agent)
        self.has_asked_agent = status is not None
        if status is not None and (status.devices or status.ranks or status.findings):
            meanwhile()
            return self._noted(status)
        # An agent without a device does not report the exit code: look again here.
        local = self._source.leave_agent()
        sample = local.take(None)[-1]
        while not (sample.devices or local.is_decided):
            sample = local.take(None)[-1]
        answers_until_s = time.monotonic() + SERVERS_ANSWER_WITHIN_S
        while time.monotonic() < answers_until_s and any(it.state == "starting" for it in sample.servers):
            sample = local.take(None)[-1]
        local.analyzers.observe(sample)  # the second sample needs the time of the first
        meanwhile()
        return self._describe(local, local.take(None)[-1])

    def next(self, timeout_s: float | None) -> "NodeStatus | None":
        """Return the state of the node when the next is due, or None when the time is up first.

        Args:
            timeout_s: Seconds until the time is up; None for never.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._source.open()
        agent = self._source.agent
        if agent is not None:
            status = self._await_news(agent, end_s)
            if status is not None:
                return self._noted(status)
            if end_s is not None and time.monotonic() >= end_s:
                return None
            reason = agent.snapshot(timeout_s=0.0).reason or "the agent is gone"
            self._source.leave_agent(f"{reason}; sampling in this process from here on")
        local = self._source.open_local()
        samples = local.take(None if end_s is None else end_s - time.monotonic())
        return self._describe(local, samples[-1]) if samples else None

    def close(self) -> None:
        self._source.close()

    def _connect(self, folder: "Path") -> "Client":
        from vramscope.engine.viewer.client import connect, explain_other_root

        client = connect(folder, timeout_s=AGENT_ANSWERS_WITHIN_S)
        other_root = explain_other_root(client.newest.hub)
        if other_root is not None:
            client.close()
            raise HubUnreachableError(other_root)
        return client

    def _make_local(self) -> LocalNode:
        return LocalNode(
            interval_s=self._local_interval_s,
            memory_interval_s=self._memory_interval_s,
            serving=self._serving,
        )

    def _ask_agent(self, client: "Client") -> "NodeStatus | None":
        """Return what the agent reports now, or None where it has gone or does not answer."""
        from vramscope.exporters.status.document import describe_snapshot

        snapshot = client.snapshot(timeout_s=0.0)
        end_s = time.monotonic() + AGENT_ANSWERS_WITHIN_S
        while snapshot.sample is None and snapshot.connection != "lost" and time.monotonic() < end_s:
            snapshot = client.snapshot(timeout_s=0.1)
        if snapshot.connection == "lost" and not self._source.is_agent_alive:
            return None
        return describe_snapshot(snapshot)

    def _await_news(self, client: "Client", end_s: float | None) -> "NodeStatus | None":
        """Return the agent's state when the next status is due and a new sample came.

        None when the time is up first, or when the agent ended or stopped answering.
        """
        from vramscope.exporters.status.document import describe_snapshot

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

    def _describe(self, local: LocalNode, sample: "Sample") -> "NodeStatus":
        from vramscope.exporters.status.document import describe_sample

        self._findings.update({finding.id: finding for finding in local.analyze(sample).findings})
        ordered = sorted(self._findings.values(), key=lambda f: (not f.is_open, -f.opened_s))
        failed = local.analyzers.reason
        notes = [*local.notes, *([] if failed is None else [failed])]
        assessments = local.assessments.all()
        return self._noted(describe_sample(sample, ordered, assessments=assessments, notes=notes))

    def _noted(self, status: "NodeStatus") -> "NodeStatus":
        self._has_devices = self._has_devices or bool(status.devices or status.ranks)
        self._is_without_devices = not status.devices
        return status


def show_status(arguments: Namespace) -> NoReturn:
    """Print the state of this node once, or one JSON line a tick, and end the process.

    Raises:
        UsageError: The flags contradict each other.
    """
    settings = read_settings(arguments)
    duration_s = read_duration(arguments)
    observer = Observer(
        interval_s=settings.interval_s,
        memory_interval_s=settings.memory_interval_s,
        serving=settings.serving,
    )
    code = 0
    try:
        if not arguments.once:
            code = _print_stream(observer, duration_s)
        elif arguments.json:
            code = _print_json(observer)
        else:
            code = _print_table(observer, settings)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BaseException:
        observer.close()
        raise
    # Everything is written. A normal exit would take a tenth of a second, and would wait for a call that
    # hangs in the driver.
    leave_now(code)


def read_duration(arguments: Namespace) -> float | None:
    """Return the seconds after which to stop; None for never.

    Raises:
        UsageError: It is not a time, or `--once` is given too.
    """
    if arguments.duration is None:
        return None
    if arguments.once:
        raise UsageError("--duration does not go with --once, which prints once and exits")
    try:
        duration_s = parse_duration(arguments.duration)
    except UsageError as error:
        raise UsageError(f"--duration {arguments.duration}: {error}") from error
    if duration_s <= 0:
        raise UsageError(f"--duration {arguments.duration}: expected a time above zero, for example 10m")
    return duration_s


def _print_stream(observer: Observer, duration_s: float | None) -> int:
    from vramscope.exporters.json_lines import write_line

    end_s = None if duration_s is None else time.monotonic() + duration_s
    printed = 0
    for status in _follow(observer, end_s):
        write_line(status, sys.stdout.buffer)
        printed = _print_sentences(observer, printed)
    _print_sentences(observer, printed)
    return observer.exit_code


def _follow(observer: Observer, end_s: float | None) -> "Iterator[NodeStatus]":
    """Yield a status an interval; after the end, go on until it is known what is missing."""
    while True:
        left_s = None if end_s is None else end_s - time.monotonic()
        is_over = left_s is not None and left_s <= 0
        if is_over and observer.is_decided:
            return
        status = observer.next(None if is_over else left_s)
        if status is not None:
            yield status


def _print_json(observer: Observer) -> int:
    from vramscope.exporters.json_lines import write_line

    write_line(observer.once(), sys.stdout.buffer)
    _print_sentences(observer)
    return observer.exit_code


def _print_table(observer: Observer, settings: Settings) -> int:
    # Rich takes a while to import, so that happens between the two readings.
    status = observer.once(meanwhile=_import_table)
    from vramscope.exporters.status.table import render_table

    from .frame.emit import choose_style, emit

    style = choose_style(settings)
    text = render_table(status, style, hidden_notes=observer.sentences)
    emit(text, is_ascii=style.is_ascii, is_styled=style.has_color)
    _print_sentences(observer)
    return observer.exit_code


def _import_table() -> None:
    import vramscope.exporters.status.table  # noqa: F401 - loaded while the readings are awaited


def _print_sentences(observer: Observer, printed: int = 0) -> int:
    """Print new sentences on stderr; return how many were printed in all."""
    for sentence in observer.sentences[printed:]:
        complain(sentence)
    return len(observer.sentences)
