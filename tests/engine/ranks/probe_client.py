"""A training process as its hub sees it: the packets of a probe, sent when a test says so."""

import json
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from vramscope.engine.model import Backend, RankCoordinates
from vramscope.engine.ranks.listener import encode_packet
from vramscope.engine.ranks.messages import (
    MAX_PACKET_BYTES,
    PROBE_SOCKET_NAME,
    Demand,
    Figure,
    Goodbye,
    Hello,
    ProbedDevice,
    Readings,
    StepRow,
    Steps,
)

from ...waiting import wait_until

GIB = 1024**3
MIB = 1024**2


def make_hello(
    pid: int = 1,
    *,
    rank: int | None = None,
    backend: Backend | None = "cuda",
    device: ProbedDevice | None = None,
    is_simulated: bool = False,
    **more: Any,
) -> Hello:
    """Return the hello of a process; a simulated one is on a card of 24 GiB unless told otherwise."""
    if device is None and is_simulated:
        device = ProbedDevice(index=0, uuid="sim-job-0", total_bytes=24 * GIB)
    coordinates = None if rank is None else RankCoordinates(rank, source="environment")
    return Hello(
        v=1,
        pid=pid,
        backend=backend,
        device=device,
        is_simulated=is_simulated,
        coordinates=coordinates,
        **more,
    )


def make_readings(
    *allocated: Figure,
    reserved: tuple[Figure, ...] = (),
    retries: Figure = None,
    ooms: Figure = None,
    time_s: float | None = None,
    **more: Any,
) -> Readings:
    """Return readings, 0.1 s apart, the newest taken now; reserved is what is allocated unless told."""
    last_s = time.time() if time_s is None else time_s
    segments = reserved or allocated
    count = len(allocated)
    rows = tuple(
        (last_s - 0.1 * (count - 1 - n), used, None, used, held, None, retries, ooms, None, None)
        for n, (used, held) in enumerate(zip(allocated, segments, strict=True))
    )
    return Readings(v=1, rows=rows, **more)


_CONNECT_FOR_PARENT = """
import socket, sys
probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
probe.connect(sys.argv[1])
socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b"-"], [probe.fileno()])
probe.close()
sys.stdin.read()
"""


class ProbeClient:
    """One connection to a hub's `probe.sock`.

    Args:
        folder: Runtime folder of the hub.
        has_own_process: Let a child process connect, so that the kernel gives another pid for it.
    """

    def __init__(self, folder: Path, *, has_own_process: bool = False) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        path = str(folder / PROBE_SOCKET_NAME)
        if has_own_process:
            self._socket = self._connect_child(path)
        else:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            wait_until(lambda: self._is_let_in(path), what="the hub to listen")

    def _is_let_in(self, path: str) -> bool:
        """Connect; a hub that has just begun has its socket a moment before it listens."""
        try:
            self._socket.connect(path)
        except ConnectionRefusedError:
            return False
        return True

    @property
    def pid(self) -> int:
        """Process id of the child that has connected."""
        assert self._child is not None
        return self._child.pid

    def _connect_child(self, path: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-S", "-c", _CONNECT_FOR_PARENT, path, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )
            _, fds, _, _ = socket.recv_fds(ours, 1, 1)
            return socket.socket(fileno=fds[0])

    def kill(self) -> None:
        """Kill the child, and with it the connection."""
        assert self._child is not None
        self._child.kill()
        self.close()

    def send(self, *messages: msgspec.Struct) -> None:
        """Send messages, one packet each."""
        for message in messages:
            self.send_bytes(encode_packet(message))

    def send_bytes(self, packet: bytes) -> None:
        """Send a packet as it is."""
        self._socket.send(packet)

    def send_steps(self, *rows: StepRow) -> None:
        """Tell steps that ended."""
        self.send(Steps(v=1, rows=rows))

    def say_goodbye(self, *, detached: bool = False) -> None:
        """End in order."""
        self.send(Goodbye(v=1, reason="detached" if detached else "exit"))

    def receive(self) -> Demand:
        """Wait for a demand of the hub."""
        self._socket.settimeout(10.0)
        return msgspec.json.decode(self._socket.recv(MAX_PACKET_BYTES), type=Demand)

    def has_demand(self) -> bool:
        """Tell whether a demand of the hub waits."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def is_cut_off(self) -> bool:
        """Return whether the hub has closed the connection."""
        self._socket.settimeout(0.0)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def close(self) -> None:
        """End without a goodbye, as a process does that is killed."""
        self._socket.close()
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()
            self._child.wait(60)

    def __enter__(self) -> "ProbeClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def encode_json(**fields: object) -> bytes:
    """Return a packet of any content."""
    return json.dumps(fields).encode()
