"""An agent through ssh: the bridge at its end, frames on the pipes, the connection at this end."""

import os
import struct
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

import zmq

from ..child_processes import HUB_LOG_NAME, command_of, last_line, spawn
from ..errors import HubUnreachableError, WireError
from ..paths import open_runtime_folder
from ..text import last_printable_line
from ..viewer.conversation import QUEUE_MESSAGES
from ..wire.endpoints import endpoints_of, is_hub_alive
from ..wire.messages import (
    MAX_HISTORY_BYTES,
    MAX_MESSAGE_BYTES,
    TOPIC_FINDING,
    TOPIC_HUB,
    TOPIC_SAMPLE,
    TOPIC_SEGMENTS,
    TOPIC_VIEWER,
)
from .addresses import SshHost
from .links import MAX_INCOMING_BYTES

HELLO = b"vramscope bridge 1\n"
"""What a bridge says first. Whatever precedes it was printed by the shell that started it."""
MOST_BEFORE_HELLO_BYTES = 64 * 1024

_LENGTH = struct.Struct("!I")


def frame(message: bytes) -> bytes:
    """Return a message as it goes through a pipe."""
    return _LENGTH.pack(len(message)) + message


class FrameReader:
    """Puts messages together again from the pieces in which a pipe yields them.

    Args:
        awaits_hello: Whether the other end greets first.
    """

    def __init__(self, limit_bytes: int, *, awaits_hello: bool = False) -> None:
        self.has_greeted = not awaits_hello
        """Whether messages follow from here on."""
        self._limit_bytes = limit_bytes
        self._left = bytearray()

    def take(self, data: bytes) -> list[bytes]:
        """Return the messages that are whole with this piece; an empty one is a sign of life.

        Raises:
            WireError: There is no greeting, or a message is too large.
        """
        self._left += data
        if not (self.has_greeted or self._find_hello()):
            return []
        found = []
        at = 0
        while len(self._left) - at >= _LENGTH.size:
            length = self._read_length(at)
            end = at + _LENGTH.size + length
            if end > len(self._left):
                break
            found.append(bytes(self._left[at + _LENGTH.size : end]))
            at = end
        del self._left[:at]
        return found

    def _read_length(self, at: int) -> int:
        (length,) = _LENGTH.unpack_from(self._left, at)
        if length > self._limit_bytes:
            raise WireError(f"a message of {length} bytes: expected at most {self._limit_bytes}")
        return int(length)

    def _find_hello(self) -> bool:
        at = self._left.find(HELLO)
        if at >= 0:
            del self._left[: at + len(HELLO)]
            self.has_greeted = True
        elif len(self._left) > MOST_BEFORE_HELLO_BYTES:
            raise WireError("vramscope did not answer")
        return self.has_greeted


LINGER_S = 5.0
"""How long an agent that was started for a viewer stays when ssh ends: it may come back."""
AGENT_WITHIN_S = 15.0
SILENCE_S = 60.0
"""Seconds of silence after which a viewer counts as gone, as when the network fails."""
TURN_MS = 1_000
POLL_S = 0.02
RESPAWN_S = 2.0
TOPICS = (TOPIC_SAMPLE, TOPIC_SEGMENTS, TOPIC_FINDING, TOPIC_HUB, TOPIC_VIEWER)


def run_bridge(runtime_dir: Path, agent_arguments: Sequence[str]) -> int:
    """Serve the viewer on standard input and output until it leaves; start an agent where none runs.

    Args:
        agent_arguments: Arguments of `vramscope agent`, for one that is started.

    Raises:
        HubUnreachableError: An agent cannot be started; the text says why.
        RuntimeFolderError: The folder is not private.
    """
    agent = ViewersAgent(open_runtime_folder(runtime_dir), agent_arguments)
    agent.await_hub()
    bridge = Bridge(agent)
    with suppress(BrokenPipeError):
        bridge.run()
    bridge.close()
    return 0


class ViewersAgent:
    """The agent of a runtime folder; one that is started here ends with its last viewer.

    Args:
        folder: Runtime folder, found to be private.
        arguments: Arguments of `vramscope agent`.
    """

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        self.folder = folder
        kind = ("--leave-with-viewers", "--linger", str(LINGER_S), "--runtime-dir", str(folder))
        self._command = command_of("agent", *kind, *arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._due_s = 0.0

    def await_hub(self) -> None:
        """Return once a hub serves the folder.

        Raises:
            HubUnreachableError: None does.
        """
        end_s = time.monotonic() + AGENT_WITHIN_S
        self.keep()
        while not (is_hub_alive(self.folder) and self._has_sockets()):
            has_ended = self._process is not None and self._process.poll() is not None
            if time.monotonic() > end_s or (has_ended and not is_hub_alive(self.folder)):
                reason = last_line(self.folder / HUB_LOG_NAME) if has_ended else None
                raise HubUnreachableError(f"no agent could be started: {reason or 'it does not answer'}")
            time.sleep(POLL_S)

    def keep(self) -> None:
        """Start an agent where none runs; call again and again."""
        now_s = time.monotonic()
        if now_s < self._due_s or is_hub_alive(self.folder):
            return
        self._due_s = now_s + RESPAWN_S
        if self._process is not None:
            self._process.poll()
        log = self.folder / HUB_LOG_NAME
        self._process = spawn(self._command, log, own_session=True, stdin=subprocess.DEVNULL, keeps_log=True)

    def _has_sockets(self) -> bool:
        return Path(endpoints_of(self.folder).control.removeprefix("ipc://")).exists()


class Bridge:
    """Carries messages both ways without reading them.

    Args:
        input_fd: Where the viewer's frames come from.
        output_fd: Where frames for it go.
    """

    def __init__(self, agent: ViewersAgent, *, input_fd: int = 0, output_fd: int = 1) -> None:
        self._agent = agent
        self._input_fd = input_fd
        self._output_fd = output_fd
        self._reader = FrameReader(MAX_MESSAGE_BYTES)
        self._context = zmq.Context()
        self._subscriber = self._context.socket(zmq.SUB)
        self._control = self._context.socket(zmq.DEALER)
        self._poller = zmq.Poller()
        self._poller.register(input_fd, zmq.POLLIN | zmq.POLLERR)
        self._heard_s = time.monotonic()
        self._connect()

    def run(self) -> None:
        """Carry messages until the viewer leaves.

        Raises:
            BrokenPipeError: It has left, and does not read any more.
            WireError: What it sends is no message.
        """
        self._write(HELLO)
        while time.monotonic() - self._heard_s < SILENCE_S:
            ready = dict(self._poller.poll(TURN_MS))
            if self._input_fd in ready and not self._take():
                return
            for socket in (self._control, self._subscriber):
                if socket in ready:
                    self._hand_on(socket)
            self._agent.keep()

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _connect(self) -> None:
        endpoints = endpoints_of(self._agent.folder)
        for socket, limit_bytes in (
            (self._subscriber, MAX_MESSAGE_BYTES),
            (self._control, MAX_HISTORY_BYTES),
        ):
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES)
            socket.setsockopt(zmq.RECONNECT_IVL, 100)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
            socket.setsockopt(zmq.MAXMSGSIZE, limit_bytes)
            self._poller.register(socket, zmq.POLLIN)
        for topic in TOPICS:
            self._subscriber.setsockopt(zmq.SUBSCRIBE, topic)
        self._subscriber.connect(endpoints.stream)
        self._control.connect(endpoints.control)

    def _take(self) -> bool:
        """Hand requests of the viewer on; return whether it is still there."""
        data = os.read(self._input_fd, 64 * 1024)
        self._heard_s = time.monotonic()
        for message in self._reader.take(data):
            if message:
                with suppress(zmq.Again):
                    self._control.send(message, zmq.NOBLOCK)
        return bool(data)

    def _hand_on(self, socket: "zmq.Socket[bytes]") -> None:
        for _ in range(QUEUE_MESSAGES):
            try:
                message = socket.recv_multipart(zmq.NOBLOCK)[-1]
            except zmq.Again:
                return
            self._write(frame(message))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._output_fd, view) :]


LEAST_PAUSE_S = 1.0
MOST_PAUSE_S = 30.0
"""From an ssh that ended to the next; doubled each time until one comes through."""
SIGN_OF_LIFE_S = 5.0
CLOSED_WITHIN_S = 2.0
"""An ssh that has closed its output should have ended by then."""


class SshConnection:
    """Keeps one ssh at work; use from one thread.

    Args:
        poller: Waits for the output of ssh.
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
        return () if self._polled_fd is None else (self._polled_fd,)

    @property
    def silence(self) -> str:
        return "ssh has not connected yet"

    def silence_s(self, now_s: float) -> float | None:
        return None

    def send(self, data: bytes) -> None:
        if self._process is not None and self.is_connected:
            self._process.send(data)

    def receive(self) -> list[bytes]:
        received = self._received
        self._received = []
        return received

    def note_events(self) -> bool:
        """Process what has arrived; return whether the bridge has started with it."""
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
        # Send a sign of life to the bridge: its ssh notices a failed network late.
        if self.is_connected and now_s >= self._life_s:
            self._life_s = now_s + SIGN_OF_LIFE_S
            self.send(b"")
        self._process.pump()
        ended = self._process.find_end()
        if ended is None and self._has_hung_up(now_s):
            ended = "the ssh connection was closed"
        if ended is not None:
            self._give_up(ended, now_s)

    def close(self) -> None:
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
            self._give_up(f"cannot start ssh here: {error.strerror or error}", now_s)
            return
        self._polled_fd = self._process.output_fd
        self._poller.register(self._polled_fd, zmq.POLLIN | zmq.POLLERR)

    def _has_hung_up(self, now_s: float) -> bool:
        """Return whether nothing more can come, and ssh has had time to say why."""
        if self._polled_fd is not None:
            return False
        self._closed_s = now_s if self._closed_s is None else self._closed_s
        return now_s - self._closed_s > CLOSED_WITHIN_S

    def _give_up(self, reason: str, now_s: float) -> None:
        self.close()
        self.trouble = reason
        self._start_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, MOST_PAUSE_S)

    def _stop_polling(self) -> None:
        if self._polled_fd is not None:
            self._poller.unregister(self._polled_fd)
        self._polled_fd = None


READ_BYTES = 256 * 1024
MOST_UNSENT_BYTES = 1024**2
MOST_ERROR_BYTES = 4096
MOST_REASON_CHARS = 300
EXIT_SSH = 255
"""Ssh itself failed; any other code is that of the command there."""
EXITS_NOT_FOUND = (126, 127)
ENDS_WITHIN_S = 0.2


class SshProcess:
    """Talks through pipes that never block; use from one thread.

    Ssh gets no terminal and so asks nothing. Its standard input closes with this process, however that ends,
    and so does that of the bridge there.

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
        self._errors = bytearray()
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
                self._fault = f"no vramscope answers there: {error}"
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
        while data := _read(self._pipes[2]):
            self._errors = (self._errors + data)[-MOST_ERROR_BYTES:]

    def find_end(self) -> str | None:
        """Return why it has ended or is of no use, in one sentence; None while it may go on."""
        code = self._process.poll()
        if self._fault is not None or code is None:
            return self._fault
        self.pump()
        return self._explain(code, last_printable_line(bytes(self._errors), MOST_REASON_CHARS))

    def close(self) -> None:
        """End it; the other end notices."""
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
            return f"ssh was killed by signal {-code}"
        if code in EXITS_NOT_FOUND:
            return (
                f"cannot start `{command}` there ({line}): give the path of vramscope there with "
                "--ssh-command"
            )
        if code != EXIT_SSH:
            return f"`{command}` ended there: {line or f'exit code {code}'}"
        if "Permission denied" in line:
            return (
                f"{line.rstrip('.')}: passwords cannot be entered here; load your key with `ssh-add`, "
                f"or install one there with `ssh-copy-id {where}`"
            )
        if "Host key verification failed" in line:
            return f"{line.rstrip('.')}: run `ssh {where}` to see the host's key and the reason"
        return line or "ssh ended without a message"


def _read(pipe: IO[bytes]) -> bytes | None:
    """Return what has arrived; empty at the end, None where there is nothing yet."""
    try:
        return os.read(pipe.fileno(), READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""
