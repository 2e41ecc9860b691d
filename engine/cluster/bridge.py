"""The far end of `--ssh`: carries what one viewer and the hub of this node say between sockets and pipes."""

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import zmq

from ..child_processes import HUB_LOG_NAME, command_of, last_line, spawn
from ..errors import HubUnreachableError
from ..paths import open_runtime_folder
from ..viewer.stream import QUEUE_MESSAGES
from ..wire.endpoints import endpoints_of
from ..wire.envelope import MAX_HISTORY_BYTES, MAX_MESSAGE_BYTES
from ..wire.lock import is_hub_alive
from ..wire.messages import TOPIC_FINDING, TOPIC_HUB, TOPIC_SAMPLE, TOPIC_SEGMENTS, TOPIC_VIEWER
from .frames import HELLO, FrameReader, frame

LINGER_S = 5.0
"""How long an agent that was started for a viewer stays when ssh ends: it may come back."""
AGENT_WITHIN_S = 15.0
SILENCE_S = 60.0
"""A viewer that has shown no life for so long has gone, and the network with it."""
TURN_MS = 1_000
POLL_S = 0.02
RESPAWN_S = 2.0
TOPICS = (TOPIC_SAMPLE, TOPIC_SEGMENTS, TOPIC_FINDING, TOPIC_HUB, TOPIC_VIEWER)


def run_bridge(runtime_dir: Path, agent_arguments: Sequence[str]) -> int:
    """Serve the viewer on standard input and output until it leaves; start an agent where none runs.

    Args:
        runtime_dir: Folder of the hub.
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
    """Carries messages both ways and reads none of them.

    Args:
        agent: Whose hub is served.
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
        """Disconnect from the hub."""
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
