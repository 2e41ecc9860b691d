"""A connection to a hub through the user's own ssh, which is started again whenever it ends."""

import zmq

from .ssh_host import SshHost
from .ssh_process import SshProcess

LEAST_PAUSE_S, MOST_PAUSE_S = 1.0, 30.0
"""From an ssh that ended to the next; doubled each time until one comes through."""
SIGN_OF_LIFE_S = 5.0
CLOSED_WITHIN_S = 2.0
"""An ssh that has closed its output should have ended by then."""


class SshConnection:
    """Keeps one ssh at work; use from one thread.

    Args:
        host: Where to.
        poller: Told what to wait for.
    """

    answers_within_s = 20.0
    node = ""

    def __init__(self, host: SshHost, poller: zmq.Poller) -> None:
        self.trouble: str | None = None
        """Why the hub cannot be reached, in one sentence; None where nothing speaks against it."""
        self.warning: str | None = None
        """Nothing: ssh knows who answers."""
        self.is_connected = False
        self._host, self._poller = host, poller
        self._process: SshProcess | None = None
        self._polled_fd: int | None = None
        self._received: list[bytes] = []
        self._pause_s, self._start_s, self._life_s = LEAST_PAUSE_S, 0.0, 0.0
        self._closed_s: float | None = None

    @property
    def sources(self) -> tuple[object, ...]:
        """Descriptors that the loop waits for."""
        return () if self._polled_fd is None else (self._polled_fd,)

    @property
    def silence(self) -> str:
        """What is said of a hub that has not answered yet, and nobody knows why."""
        return "ssh has not come through yet"

    def silence_s(self, now_s: float) -> float | None:
        """Return None: nobody is between who could have heard of the node."""
        return None

    def send(self, data: bytes) -> None:
        """Send a message; it is lost where nobody is connected."""
        if self._process is not None and self.is_connected:
            self._process.send(data)

    def receive(self) -> list[bytes]:
        """Return the messages that have come, without waiting."""
        received, self._received = self._received, []
        return received

    def note_events(self) -> bool:
        """Take what has come; return whether the bridge there began its work with it."""
        if self._process is None or self._polled_fd is None:
            return False
        self._received += self._process.read()
        if self._process.is_closed_there:
            self._stop_polling()
        was_made = self._process.has_greeted and not self.is_connected
        if was_made:
            self.is_connected, self.trouble, self._pause_s = True, None, LEAST_PAUSE_S
        return was_made

    def mend(self, now_s: float, *, is_silent: bool = False) -> None:
        """Start ssh where none is at work, and find out why one is no longer."""
        if self._process is None:
            if now_s >= self._start_s:
                self._start(now_s)
            return
        self._show_life(now_s)
        self._process.pump()
        ended = self._process.find_end()
        if ended is None and self._has_hung_up(now_s):
            ended = "the connection of ssh was closed"
        if ended is not None:
            self._give_up(ended, now_s)

    def close(self) -> None:
        """End ssh, and with it the bridge there."""
        self._stop_polling()
        if self._process is not None:
            self._process.close()
        self._process, self._closed_s, self.is_connected = None, None, False

    def _start(self, now_s: float) -> None:
        try:
            self._process = SshProcess(self._host)
        except OSError as error:
            self._give_up(f"ssh cannot be started here: {error.strerror or error}", now_s)
            return
        self._polled_fd = self._process.output_fd
        self._poller.register(self._polled_fd, zmq.POLLIN | zmq.POLLERR)

    def _show_life(self, now_s: float) -> None:
        """Let the bridge know that somebody is here: of a cut network ssh there hears late."""
        if self.is_connected and now_s >= self._life_s:
            self._life_s = now_s + SIGN_OF_LIFE_S
            self.send(b"")

    def _has_hung_up(self, now_s: float) -> bool:
        """Return whether nothing more can come, and ssh has had time to say why."""
        if self._polled_fd is not None:
            return False
        self._closed_s = now_s if self._closed_s is None else self._closed_s
        return now_s - self._closed_s > CLOSED_WITHIN_S

    def _give_up(self, reason: str, now_s: float) -> None:
        self.close()
        self.trouble = reason
        self._start_s, self._pause_s = now_s + self._pause_s, min(2 * self._pause_s, MOST_PAUSE_S)

    def _stop_polling(self) -> None:
        if self._polled_fd is not None:
            self._poller.unregister(self._polled_fd)
        self._polled_fd = None
