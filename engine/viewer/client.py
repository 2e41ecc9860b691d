"""A viewer's end: the newest picture of a node, its history, and the state of the connection."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import zmq

from ..clock import Clock, SystemClock, ceil_ms
from ..errors import HubUnreachableError, UsageError
from ..history import History
from ..model import AdviceAction, Assessment, HubStatus, Sample
from ..paths import ROOT_VARIABLE, locate_runtime_folder
from ..ranks.demands import ADVICE_WITHIN_S, ANSWER_WITHIN_S
from ..text import make_printable
from ..wire.endpoints import endpoints_of, holder_pid, is_hub_alive
from ..wire.messages import MAX_HISTORY_BYTES, Advised
from .conversation import Event, HubConversation, HubStream, Joined
from .picture import NO_ANSWER, NodePicture, read_advised
from .snapshot import Snapshot

POLL_S = 0.25
MOST_PATIENCE_S = 1.5
# Between two questions of `connect` until it is answered: a question to a hub that is being replaced is lost.
REPEAT_S = 0.5
# A process answers within this time, unless it is stopped or its lock (GIL) is held.
USUAL_ANSWER_S = 1.0
# A hub that has missed this many ticks, and at least this many seconds, is silent.
SILENT_INTERVALS = 2.5


class Client(NodePicture):
    """One connection to a hub; use it from one thread (`history` may be read from any).

    Args:
        history: History to fill; a new one by default.
        closing_fd: Read end of a pipe; a byte that arrives, or its closing, makes `snapshot` return at once.
        is_counted: Whether it counts as a viewer: an agent that leaves with its viewers stays for it.
    """

    def __init__(
        self,
        runtime_dir: Path,
        *,
        history: History | None = None,
        closing_fd: int | None = None,
        is_counted: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._runtime_dir = runtime_dir
        clock = clock or SystemClock()
        self._stream = HubStream(runtime_dir, is_viewer=True, is_counted=is_counted, clock=clock)
        super().__init__(self._stream, clock, history=history)
        if closing_fd is not None:
            self._stream.watch(closing_fd)

    def snapshot(self, timeout_s: float = 1.0) -> Snapshot:
        """Return the newest picture: at once if something is new, else after at most `timeout_s`.

        Samples that arrived together are all in `history`; the picture has the newest.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            left_s = deadline_s - self._clock.monotonic_s()
            events = self._stream.events(max(0.0, min(self._patience_s, left_s)))
            is_changed = self.apply(events)
            is_changed = self._judge_connection() or is_changed
            is_changed = self.expire_questions() or is_changed
            is_called = self._stream.is_watched_closed or self._stream.is_woken
            is_over = is_called or self._clock.monotonic_s() >= deadline_s
            if is_changed or is_over:
                return self.newest

    @property
    def _patience_s(self) -> float:
        """How long to sleep without checking the connection: a living hub wakes us with each sample."""
        hub = self.newest.hub
        if hub is None or self.newest.connection != "live":
            return POLL_S
        return max(POLL_S, min(1.25 * hub.interval_s, MOST_PATIENCE_S))

    def samples(self) -> Iterator[Sample]:
        """Yield samples as they arrive, without end, each once and in order.

        Raises:
            HubUnreachableError: The agent ended.
        """
        while True:
            events = self._stream.events(POLL_S)
            self.apply(events)
            yield from (event for event in events if isinstance(event, Sample))
            self._judge_connection()
            if self.newest.connection == "lost" and not is_hub_alive(self._runtime_dir):
                raise HubUnreachableError(self.newest.reason or "the agent ended")

    @property
    def refused(self) -> str | None:
        """Why the newest message of the hub could not be accepted, as what the hub did; None if it could."""
        reason = self._stream.refused
        return None if reason is None else f"sent an answer that this version does not accept: {reason}"

    def ask_again(self) -> None:
        """Repeat an open question: a hub that was just replaced has not got it."""
        self._stream.repeat()

    def detach(
        self,
        pid: int,
        *,
        timeout_s: float = ANSWER_WITHIN_S,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        """Detach the probe of a training process and return once it has left.

        Args:
            pid: Process id as in `RankSample.pid`.
            timeout_s: How long to wait for the process; by default as long as the agent waits for it.
            on_wait: Called once if the process has not answered within a second.

        Raises:
            UsageError: No such process reports to the agent.
            HubUnreachableError: The agent or the process did not answer in time.
        """
        asked_s = self._clock.monotonic_s()
        number = self._questions.ask("detach", pid, asked_s)
        is_late = False
        while not self._questions.is_answered(number):
            waited_s = self._clock.monotonic_s() - asked_s
            if waited_s >= timeout_s:
                raise HubUnreachableError(self._explain_silence(pid, timeout_s))
            if waited_s >= USUAL_ANSWER_S and not is_late:
                is_late = True
                on_wait()
            self.snapshot(timeout_s=(timeout_s if is_late else min(timeout_s, USUAL_ANSWER_S)) - waited_s)
        refusal = self._questions.take_refusal(number)
        if refusal is not None:
            raise HubUnreachableError(refusal) if refusal == NO_ANSWER else UsageError(refusal)

    def advise_and_wait(
        self,
        pid: int,
        action: AdviceAction,
        *,
        reason: str = "",
        step_end_within_s: float = ADVICE_WITHIN_S,
    ) -> Advised:
        """Advise a training process as `advise` does, and return its answer.

        Args:
            pid: Process id as in `RankSample.pid`.
            action: What to do: `empty_cache`, `skip_long_batch`, `reduce_batch` or `checkpoint`.
            reason: Why, in one sentence; the callback of the program gets it.
            step_end_within_s: How long the process may wait for the end of a step, in seconds.

        Raises:
            UsageError: No such process reports to the agent, it takes no advice, or no step ended in time.
            HubUnreachableError: The agent has not answered, or is gone.
        """
        number = self.advise(pid, action, reason=reason, step_end_within_s=step_end_within_s)
        while (advised := read_advised(self.newest, number)) is None:
            self.snapshot(timeout_s=POLL_S)
            if self.newest.connection == "lost" and not is_hub_alive(self._runtime_dir):
                raise HubUnreachableError(self.newest.reason or "the agent ended")
        return advised

    def close(self) -> None:
        """Disconnect."""
        self._stream.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _explain_silence(self, pid: int, timeout_s: float) -> str:
        sample = self.newest.sample
        hub = self.newest.hub
        if sample is not None and any(rank.pid == pid and rank.state != "ended" for rank in sample.ranks):
            return (
                f"process {pid} has not answered within {timeout_s:g} s: it is stopped, or in a long "
                "call that holds Python's lock (GIL); it detaches as soon as it continues"
            )
        version = "" if hub is None else f" (vramscope {hub.version})"
        return f"the agent{version} that serves {self._runtime_dir} has not answered within {timeout_s:g} s"

    def _judge_connection(self) -> bool:
        """Set `lost` when the hub ended or has been silent too long; return whether that is news."""
        heard_s = self._stream.heard_s
        if heard_s is None:
            return False
        silent_s = self._clock.monotonic_s() - heard_s
        hub = self.newest.hub
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
        was_lost = self.newest.connection == "lost"
        self.tell_lost(reason, silent_s)
        return not was_lost


def explain_other_root(hub: HubStatus | None) -> str | None:
    """Return that an agent reads other devices than `VRAMSCOPE_ROOT` names here, and what to do; else None.

    Where the variable is not set here, the agent's root is followed: it is set for the agent alone.
    """
    root = os.environ.get(ROOT_VARIABLE)
    if hub is None or hub.root is None or not root or Path(root) == Path(hub.root):
        return None
    return (
        f"the running agent (process {hub.pid}) reads devices below {make_printable(hub.root)}, not below "
        f"{ROOT_VARIABLE}={make_printable(root)}: end it, or set VRAMSCOPE_RUNTIME_DIR to another folder"
    )


def ask_assessments(runtime_dir: Path, *, timeout_s: float) -> tuple[Assessment, ...]:
    """Ask the agent that serves a folder how near each process is to running out of memory, once.

    It sends neither samples nor the past, so that the answer is small. Empty if it does not answer in time.
    """
    clock = SystemClock()
    context = zmq.Context()
    try:
        control = context.socket(zmq.DEALER)
        control.setsockopt(zmq.LINGER, 0)
        control.setsockopt(zmq.MAXMSGSIZE, MAX_HISTORY_BYTES)
        control.connect(endpoints_of(runtime_dir).control)
        conversation = HubConversation(control.send, clock, detail="cells")
        conversation.ask()
        deadline_s = clock.monotonic_s() + timeout_s
        found: list[Event] = []
        while (left_s := deadline_s - clock.monotonic_s()) > 0:
            if control.poll(ceil_ms(left_s)):
                conversation.take(control.recv_multipart(zmq.NOBLOCK)[-1], found)
            for event in found:
                if isinstance(event, Joined):
                    return event.welcome.assessments
        return ()
    finally:
        context.destroy(linger=0)


def connect(runtime_dir: Path | None = None, *, timeout_s: float = 2.0) -> Client:
    """Connect to the agent of this node and return once it has answered.

    Args:
        runtime_dir: Runtime folder of the agent; by default this user's own.
        timeout_s: Seconds to wait for its answer.

    Returns:
        An open connection, to be used as a context manager or closed; one thread may use it.

    Raises:
        HubUnreachableError: No agent serves that folder, or it does not answer in time.
    """
    folder = runtime_dir or locate_runtime_folder()
    if not is_hub_alive(folder):
        raise HubUnreachableError(
            f"no agent serves {folder}: start one with `vramscope agent`, or run `vramscope`, which does"
        )
    client = Client(folder)
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + timeout_s
    repeat_s = clock.monotonic_s() + REPEAT_S
    while client.snapshot(timeout_s=0.05).hub is None:
        now_s = clock.monotonic_s()
        if now_s > deadline_s:
            client.close()
            what = client.refused or f"has not answered within {timeout_s:g} s"
            raise HubUnreachableError(f"the agent (process {holder_pid(folder)}) that serves {folder} {what}")
        if not is_hub_alive(folder):
            client.close()
            raise HubUnreachableError(f"the agent that served {folder} ended before it answered")
        if now_s > repeat_s:
            client.ask_again()
            repeat_s = now_s + REPEAT_S
    return client
