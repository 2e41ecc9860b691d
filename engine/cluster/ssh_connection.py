"""A connection to a hub through the user's own ssh, which is started again whenever it ends."""

import os
import subprocess
from contextlib import suppress
from typing import IO, cast

import zmq

from ..errors import WireError
from ..text import make_printable
from .frames import FrameReader, frame
from .remote_link import MAX_INCOMING_BYTES
from .ssh_host import SshHost

LEAST_PAUSE_S = 1.0
MOST_PAUSE_S = 30.0
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
        self._host = host
        self._poller = poller
        self._process: SshProcess | None = None
        self._polled_fd: int | None = None
        self._received: list[bytes] = []
        self._pause_s = LEAST_PAUSE_S
        self._start_s = 0.0
        self._life_s = 0.0
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
        received = self._received
        self._received = []
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
            self.is_connected = True
            self.trouble = None
            self._pause_s = LEAST_PAUSE_S
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
        self._process = None
        self._closed_s = None
        self.is_connected = False

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


READ_BYTES = 256 * 1024
MOST_UNSENT_BYTES = 1024**2
MOST_TOLD_BYTES = 4096
MOST_REASON_CHARS = 300
EXIT_SSH = 255
"""Ssh itself failed; any other code is that of the command there."""
EXITS_NOT_FOUND = (126, 127)
ENDS_WITHIN_S = 0.2


class SshProcess:
    """Talks through pipes that never block; use from one thread.

    Ssh gets no terminal and so asks nothing. Its standard input closes with this process, however that ends,
    and so does that of the bridge there.

    Args:
        host: Where to.

    Raises:
        OSError: Ssh cannot be started here.
    """

    def __init__(self, host: SshHost) -> None:
        self._host = host
        self._process = subprocess.Popen(
            host.words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._pipes = cast(
            tuple[IO[bytes], IO[bytes], IO[bytes]],
            (self._process.stdin, self._process.stdout, self._process.stderr),
        )
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        self._reader = FrameReader(MAX_INCOMING_BYTES, awaits_hello=True)
        self._unsent = bytearray()
        self._told = bytearray()
        self._fault: str | None = None
        self.is_closed_there = False
        """Whether nothing more will come."""

    @property
    def output_fd(self) -> int:
        """What becomes readable when something has come."""
        return self._pipes[1].fileno()

    @property
    def has_greeted(self) -> bool:
        """Whether the bridge there is at work."""
        return self._reader.has_greeted

    def read(self) -> list[bytes]:
        """Return the messages that have come; none after what is no message."""
        found: list[bytes] = []
        data = b"" if self.is_closed_there else _read(self._pipes[1])
        if data == b"":
            self.is_closed_there = True
        elif data is not None:
            try:
                found = self._reader.take(data)
            except WireError as error:
                self._fault = f"no bridge of vramscope answers there: {error}"
                self.is_closed_there = True
        return [message for message in found if message]

    def send(self, data: bytes) -> None:
        """Send a message; it is left out where the other end has not read for long."""
        if len(self._unsent) + len(data) <= MOST_UNSENT_BYTES:
            self._unsent += frame(data)
        self.pump()

    def pump(self) -> None:
        """Send what could not be sent yet, and take what ssh has to say."""
        with suppress(OSError):  # a pipe that is full or closed
            while self._unsent:
                del self._unsent[: os.write(self._pipes[0].fileno(), self._unsent)]
        while told := _read(self._pipes[2]):
            self._told = (self._told + told)[-MOST_TOLD_BYTES:]

    def find_end(self) -> str | None:
        """Return why it has ended or is of no use, in one sentence; None while it may go on."""
        code = self._process.poll()
        if self._fault is not None or code is None:
            return self._fault
        self.pump()
        return self._explain(code, _last_line(bytes(self._told)))

    def close(self) -> None:
        """End it; whoever is at the other end notices."""
        self._process.terminate()
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in self._pipes:
            pipe.close()

    def _explain(self, code: int, line: str) -> str:
        where = self._host.typed_words
        command = self._host.bridge_command
        if code < 0:
            return f"ssh was ended by signal {-code}"
        if code in EXITS_NOT_FOUND:
            return (
                f"`{command}` could not be started there ({line}): name the path of vramscope there with "
                "--ssh-command"
            )
        if code != EXIT_SSH:
            return f"`{command}` has ended there: {line or f'exit code {code}'}"
        if "Permission denied" in line:
            return (
                f"{line.rstrip('.')}: no password is asked for here; load your key with `ssh-add`, or "
                f"install one there with `ssh-copy-id {where}`"
            )
        if "Host key verification failed" in line:
            return f"{line.rstrip('.')}: type `ssh {where}`, which shows the key of that host and says why"
        return line or "ssh has ended and does not say why"


def _read(pipe: IO[bytes]) -> bytes | None:
    """Return what has come, nothing at its end, None where there is nothing yet."""
    try:
        return os.read(pipe.fileno(), READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _last_line(told: bytes) -> str:
    """Return the last line that ssh said, without what a terminal would obey."""
    lines = [line.strip() for line in told.decode(errors="replace").splitlines() if line.strip()]
    return make_printable(lines[-1], MOST_REASON_CHARS) if lines else ""
