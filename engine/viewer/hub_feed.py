"""Feeds the screens: a thread that follows a hub, starts one if none runs, and reconnects to it."""

import os
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ..child_processes import HUB_LOG_NAME, command_of, last_line, spawn
from ..clock import SystemClock
from ..errors import RuntimeFolderError
from ..history import History
from ..paths import locate_runtime_folder, open_runtime_folder
from ..units import format_age
from ..wire.endpoints import LOCK_NAME, SOCKET_NAMES, describe_holder, is_hub_alive
from .client import Client, explain_other_root
from .feed import AskingFeed
from .picture import NodePicture
from .snapshot import Snapshot

# A hub that ended is started again no more often than this.
RESPAWN_S = 2.0
# A view that has had no sample for so long says what it waits for.
EXPLAIN_WAIT_AFTER_S = 3.0
# Between two updates of a lost connection's age.
AGE_INTERVAL_S = 1.0
MOST_QUESTIONS = 16

Question = Callable[[NodePicture], object]


class HubFeed(AskingFeed):
    """Follows the hub of one runtime folder.

    Args:
        agent_arguments: Arguments of `vramscope agent` for a hub that this feed starts.
        is_private: The folder was made for this feed alone and is removed with it.
    """

    def __init__(
        self,
        runtime_dir: Path | None = None,
        *,
        agent_arguments: Sequence[str] = (),
        is_private: bool = False,
    ) -> None:
        super().__init__("hub-feed")
        self._folder = runtime_dir or locate_runtime_folder()
        self._is_private = is_private
        kind = ("--leave-with-viewers", "--private-folder") if is_private else ("--leave-with-viewers",)
        self._arguments = (*kind, "--runtime-dir", str(self._folder), *agent_arguments)
        self._clock = SystemClock()
        self._hub: subprocess.Popen[bytes] | None = None
        self._spawn_due_s = 0.0
        self._log_bytes = 0
        # Why no hub could be started at the last attempt.
        self._obstacle: str | None = None
        # Why the hub that was started last ended.
        self._last_end: str | None = None
        self._waits_since_s: float | None = None
        self._open_fd: int | None
        self._closing_fd, self._open_fd = os.pipe()
        self._pipe_lock = threading.Lock()
        self._questions: deque[Question] = deque(maxlen=MOST_QUESTIONS)
        self.history = History(keeps_ranks=False)
        self._handing_over = threading.Lock()
        self._is_followed = False
        # The newest before `start`.
        self._kept: Snapshot | None = None

    def start_hub(self) -> None:
        """Start a hub if none serves the folder; returns at once, so that it starts while the screen does."""
        if is_hub_alive(self._folder):
            open_runtime_folder(self._folder)  # refuses one that is not this user's own
        else:
            open_runtime_folder(self._folder)
            self._spawn()

    def follow(self) -> None:
        """Follow the hub from now on; `start` then begins with the newest snapshot."""
        self._is_followed = True
        super().start(self._keep)

    def start(self, on_snapshot: Callable[[Snapshot], None]) -> None:
        if not self._is_followed:
            super().start(on_snapshot)
            return
        with self._handing_over:
            self._on_snapshot = on_snapshot
            if self._kept is not None:
                on_snapshot(self._kept)

    def _keep(self, snapshot: Snapshot) -> None:
        self._kept = snapshot

    def stop(self) -> None:
        """End the thread and leave the hub, which ends by itself if this was its last viewer."""
        super().stop()
        if self._hub is not None:
            # A moment to end and be reaped; a hung hub is not waited for.
            try:
                self._hub.wait(timeout=0.3)
            except subprocess.TimeoutExpired:
                # Whoever goes on without the feed is left no zombie; who ends now takes the thread along.
                threading.Thread(target=self._hub.wait, name="hub-reaper", daemon=True).start()
        if self._is_private:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, question: Question) -> None:
        with self._pipe_lock:
            if self._open_fd is not None:
                self._questions.append(question)
                os.write(self._open_fd, b"?")  # wakes the thread

    def _wake(self) -> None:
        with self._pipe_lock:
            if self._open_fd is not None:
                os.close(self._open_fd)
                self._open_fd = None

    def _run(self) -> None:
        client = Client(self._folder, history=self.history, closing_fd=self._closing_fd)
        shown: Snapshot | None = None
        shown_s = 0.0
        while not self._stopped.is_set():
            is_live = shown is not None and shown.connection == "live"
            while self._questions:
                self._questions.popleft()(client)
            snapshot = client.snapshot(timeout_s=1.5 if is_live else 0.25)
            now_s = self._clock.monotonic_s()
            if snapshot.connection == "live":
                self._waits_since_s = self._last_end = None
            else:
                snapshot = self._tend(snapshot, now_s)
            other_root = explain_other_root(snapshot.hub)
            if other_root is not None:  # the devices of another place are never shown in the place of these
                snapshot = Snapshot("lost", reason=other_root)
            is_old_news = snapshot == shown or (
                snapshot.connection == "lost" and now_s - shown_s < AGE_INTERVAL_S
            )
            if is_old_news and shown is not None and snapshot.connection == shown.connection:
                continue
            shown = snapshot
            shown_s = now_s
            with self._handing_over:
                self._on_snapshot(snapshot)
        client.close()
        os.close(self._closing_fd)

    def _tend(self, snapshot: Snapshot, now_s: float) -> Snapshot:
        """Start a hub if none is left, and say what the view waits for."""
        is_alive = is_hub_alive(self._folder)
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        if not is_alive and now_s >= self._spawn_due_s:
            self._spawn()
        waited_s = now_s - self._waits_since_s
        if snapshot.connection == "connecting" and waited_s >= EXPLAIN_WAIT_AFTER_S:
            why = snapshot.reason or self._explain_wait()
            waiting = f"no agent for {format_age(waited_s)}: {why}"
            return msgspec.structs.replace(snapshot, connection="lost", reason=waiting)
        reason = None if is_alive else self._explain_end()
        return snapshot if reason is None else msgspec.structs.replace(snapshot, reason=reason)

    def _explain_wait(self) -> str:
        """Describe a hub that has never answered, and what to do."""
        if not is_hub_alive(self._folder):
            log = self._folder / HUB_LOG_NAME
            return self._explain_end() or f"it is starting; its output goes to {log}"
        who = describe_holder(self._folder)
        if not all((self._folder / name).exists() for name in SOCKET_NAMES):
            return (
                f"{who} has locked {self._folder / LOCK_NAME} but does not listen there; end it to "
                "start an agent"
            )
        return f"{who} does not answer; if it hangs, end it to start another"

    def _explain_end(self) -> str | None:
        if self._obstacle is not None:
            return self._obstacle
        code = None if self._hub is None else self._hub.poll()
        if code is None:
            return self._last_end
        log = self._folder / HUB_LOG_NAME
        said = last_line(log, self._log_bytes)
        if said is not None:
            return f"{said.removeprefix('vramscope: ')}; see {log}"
        end = f"by signal {-code}" if code < 0 else f"with status {code}"
        return f"the agent ended {end} without a message" if code else None

    def _spawn(self) -> None:
        """Start a hub; if that fails, keep the reason for the screen, and try again later."""
        self._last_end = self._explain_end() if self._obstacle is None else None
        self._spawn_due_s = self._clock.monotonic_s() + RESPAWN_S
        log = self._folder / HUB_LOG_NAME
        try:
            open_runtime_folder(self._folder)  # a hub that ended took a private folder along
            self._log_bytes = log.stat().st_size if log.exists() else 0
            # An agent may have been started in this moment by another viewer: the log is that one's.
            self._hub = spawn(
                command_of("agent", *self._arguments),
                log,
                own_session=True,
                stdin=subprocess.DEVNULL,
                keeps_log=True,
            )
        except RuntimeFolderError as error:
            self._obstacle = str(error)
        except OSError as error:
            self._obstacle = f"cannot start the agent: {error.strerror or error}"
        else:
            self._obstacle = None


def attach_or_start(
    *,
    runtime_dir: Path | None = None,
    interval_s: float = 1.0,
    memory_interval_s: float = 0.1,
    serving: Sequence[str] = (),
    config: Path | None = None,
) -> HubFeed:
    """Return a feed of this node, whose hub is already starting if none was running."""
    named = () if config is None else ("--config", str(config.absolute()))
    intervals = ("--interval", str(interval_s), "--memory-interval", str(memory_interval_s))
    servers = [word for name in serving for word in ("--serving", name)]
    feed = HubFeed(runtime_dir, agent_arguments=(*intervals, *servers, *named))
    feed.start_hub()
    return feed
