"""The socket to which training processes connect, and the packets that come and go through it."""

import os
import resource
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import RuntimeFolderError, WireError
from ..soundness import check_numbers, make_json_decoder
from ..text import clean_texts
from .messages import (
    MAX_PACKET_BYTES,
    PROBE_PROTOCOL,
    PROBE_SOCKET_NAME,
    Demand,
    ProbeMessage,
)

# Fewer if this process may not open twice as many files: the hub needs some for itself.
MAX_CONNECTIONS = 1024
# Read from one connection in one turn; the rest waits in the socket for the next.
MAX_PACKETS_PER_CONNECTION = 64
MAX_PACKETS_PER_TURN = 4096

# `struct ucred` of unix(7): pid, user id, group id.
_CREDENTIALS = struct.Struct("3i")


class Received(NamedTuple):
    """Result of one drain of a connection: a message, or why one was refused, or that it has ended."""

    connection: "Connection"
    message: ProbeMessage | None = None
    refused: str | None = None
    is_over: bool = False


class Connection:
    """One process that reports; identified by the kernel's word for its pid, not by its own."""

    def __init__(self, peer: socket.socket, pid: int, uid: int) -> None:
        # In the pid namespace of the hub; 0 if the process is not visible from it.
        self.pid = pid
        self.uid = uid
        self.is_open = True
        # The process has closed its end; what it sent before can still be read.
        self.is_gone = False
        self._socket = peer

    def drain(self, buffer: bytearray) -> Iterator[Received]:
        for _ in range(MAX_PACKETS_PER_CONNECTION):
            try:
                size = self._socket.recv_into(buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                size = 0
            if size == 0:
                self.close()
                yield Received(self, is_over=True)
                return
            try:
                yield Received(self, message=decode_packet(memoryview(buffer)[:size]))
            except WireError as error:
                yield Received(self, refused=str(error))

    def send(self, demand: Demand) -> bool:
        """Send a demand if that is possible at once; return whether it was."""
        if not self.is_open:
            return False
        try:
            self._socket.send(encode_packet(demand), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            self.is_gone = True
            return False
        return True

    def close(self) -> None:
        self.is_open = False
        self._socket.close()


class Listener:
    """Listens on `probe.sock` of a runtime folder; use from one thread."""

    def __init__(self, folder: Path, *, uid: int | None = None) -> None:
        # Connections that were closed at once: of another user, or beyond `MAX_CONNECTIONS`.
        self.turned_away = 0
        self.connections: list[Connection] = []
        self._uid = os.geteuid() if uid is None else uid
        self._buffer = bytearray(MAX_PACKET_BYTES + 1)
        self._path = folder / PROBE_SOCKET_NAME
        self._listen()

    def _listen(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            os.fchmod(self._socket.fileno(), 0o600)  # before the bind: at no moment is it open to others
            self._path.unlink(missing_ok=True)
            self._socket.bind(str(self._path))
            self._socket.listen(MAX_CONNECTIONS)
        except OSError as error:
            self._socket.close()
            raise RuntimeFolderError(f"cannot listen on {self._path}: {error.strerror or error}") from error
        self._poll = select.poll()  # costs less than an exception, once a second for ever
        self._poll.register(self._socket, select.POLLIN)

    def fileno(self) -> int:
        return self._socket.fileno()

    def restore(self) -> None:
        """Listen again if the file of the socket was removed; connections stay."""
        if not self._path.exists():
            self._socket.close()
            self._listen()

    def drain(self) -> Iterator[Received]:
        """Accept connections and yield what has arrived; never blocks."""
        self._accept()
        left = MAX_PACKETS_PER_TURN
        for connection in tuple(self.connections):
            for received in connection.drain(self._buffer) if left > 0 and connection.is_open else ():
                left -= 1
                yield received
        still = [connection for connection in self.connections if connection.is_open]
        self.connections = [
            *still[1:],
            *still[:1],
        ]  # next time another one is first, so a talkative one cannot hold up the rest

    def close(self) -> None:
        """Close all connections and the socket; its file is removed with the folder's other sockets."""
        for connection in self.connections:
            connection.close()
        self.connections = []
        self._socket.close()

    def _accept(self) -> None:
        for _ in range(MAX_CONNECTIONS if self._poll.poll(0) else 0):
            try:
                peer, _address = self._socket.accept()
            except OSError:
                return
            connection = self._welcome(peer)
            if connection is None:
                self.turned_away += 1
                peer.close()
            else:
                self.connections.append(connection)

    def _welcome(self, peer: socket.socket) -> Connection | None:
        most_files, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self.connections) >= min(MAX_CONNECTIONS, most_files // 2):
            return None
        with suppress(OSError):
            peer.setblocking(False)
            packed = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid, uid, _group = _CREDENTIALS.unpack(packed)
            if uid in (self._uid, 0):
                return Connection(peer, pid, uid)
        return None


class _VersionOnly(msgspec.Struct):
    v: int


_MESSAGE: "msgspec.json.Decoder[ProbeMessage]" = make_json_decoder(ProbeMessage)  # type: ignore[arg-type]
_VERSION = msgspec.json.Decoder(_VersionOnly)
# What decoding or encoding hostile content may raise.
_MALFORMED = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


def decode_packet(data: bytes | memoryview) -> ProbeMessage:
    """Decode one packet, with every text in it made printable."""
    if len(data) > MAX_PACKET_BYTES:
        raise WireError(f"sent a packet of more than {MAX_PACKET_BYTES} bytes")
    try:
        message = _MESSAGE.decode(data)
        if message.v <= PROBE_PROTOCOL:
            check_numbers(message)
            msgspec.msgpack.encode(message)  # JSON knows numbers that no stream of ours can carry
            return clean_texts(message)
    except WireError as error:
        raise WireError(f"sent a malformed message: {error}") from None
    except _MALFORMED as error:
        _refuse_newer(data)
        raise WireError(f"sent a malformed message: {error}") from error
    raise _too_new(message.v)


def encode_packet(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message)


def _refuse_newer(data: bytes | memoryview) -> None:
    try:
        version = _VERSION.decode(data).v
    except _MALFORMED:
        return
    if version > PROBE_PROTOCOL:
        raise _too_new(version)


def _too_new(version: int) -> WireError:
    return WireError(
        f"uses probe protocol {version}, this agent supports up to {PROBE_PROTOCOL}: start the agent "
        "from the newer vramscope"
    )
