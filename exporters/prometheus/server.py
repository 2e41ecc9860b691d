"""A small web server of one page: the metrics, over HTTP or HTTPS, all connections on one thread.

A connection costs no thread, has a deadline for its request and one for taking the answer, and the oldest
makes way where there are too many: so hundreds of peers that are slow or silent keep no scrape waiting.
"""

import errno
import queue
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Literal

from ...engine.cluster.addresses import TcpAddress, describe_holder
from ...engine.errors import UsageError
from .endpoint import MOST_CHECKS, Passwords

METRICS_PATH = "/metrics"
PATIENCE_S = 10.0
"""How long a peer may take for its handshake and request together, and then for the answer."""
MOST_CONNECTIONS = 256
"""Connections at a time; one more closes the oldest."""
MOST_ACCEPTED = 64
"""Connections that are accepted before those that are there are served."""
SEND_BUFFER_BYTES = 128 * 1024
"""For each connection in the kernel, which would else take megabytes for a peer that does not read."""
MAX_REQUEST_BYTES = 16 * 1024
MOST_CHECKS_WAITING = 32
"""Requests with a password that is not known yet; those beyond are turned away."""
SAME_WITHIN_S = 0.1
"""Scrapes of one format within this time get the same text."""
MOST_KINDS = 8
INDEX = b"<!DOCTYPE html><title>vramscope</title><a href=/metrics>Metrics</a>\n"
HTML = "text/html; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"

CHALLENGE = 'Basic realm="vramscope"'
"""Asks a peer without a password for one."""

Render = Callable[[str], tuple[bytes, str]]
"""Returns the text and its type for what a peer says it accepts."""


class _Peer:
    """One connection.

    Args:
        ends_s: When it is closed, in monotonic seconds.
        is_tls: Whether a handshake comes first.
    """

    def __init__(self, connection: socket.socket, ends_s: float, *, is_tls: bool) -> None:
        self.socket = connection
        self.ends_s = ends_s
        self.state: Literal["handshake", "request", "check", "answer"] = "handshake" if is_tls else "request"
        self.received = bytearray()
        self.unsent: list[memoryview] = []


class MetricsServer:
    """Serves the metrics until it is shut down.

    Args:
        tls: What to speak TLS with; None for plain HTTP.
        passwords: Who may ask; None for everybody.

    Raises:
        UsageError: It cannot listen there.
    """

    def __init__(
        self,
        address: TcpAddress,
        render: Render,
        tls: ssl.SSLContext | None = None,
        passwords: Passwords | None = None,
    ) -> None:
        self._render = render
        self._tls = tls
        self._passwords = passwords
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((address.host, address.port))
            self._listener.listen(MOST_CONNECTIONS)
        except OSError as error:
            self._listener.close()
            raise UsageError(_explain(address, error)) from error
        self._listener.setblocking(False)
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._ours, selectors.EVENT_READ)
        self._peers: dict[_Peer, None] = {}
        self._rendered: dict[str, tuple[float, bytes, str]] = {}
        self._unchecked: queue.Queue[tuple[_Peer, str, str] | None] = queue.Queue(MOST_CHECKS_WAITING)
        self._checked: queue.SimpleQueue[tuple[_Peer, str, str, bool]] = queue.SimpleQueue()
        self._is_stopping = False
        self._has_ended = threading.Event()
        self._has_ended.set()

    @property
    def server_port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{TcpAddress(*self._listener.getsockname()[:2]).text}{METRICS_PATH}"

    def serve_forever(self) -> None:
        """Serve until `shutdown` is called; sleeps between requests."""
        self._has_ended.clear()
        for number in range(0 if self._passwords is None else MOST_CHECKS):
            threading.Thread(target=self._check_passwords, name=f"passwords-{number}", daemon=True).start()
        try:
            while not self._is_stopping:
                self._turn()
        finally:
            self._has_ended.set()

    def shutdown(self) -> None:
        """End `serve_forever`, and wait for that."""
        self._is_stopping = True
        self._wake()
        self._has_ended.wait()

    def server_close(self) -> None:
        for _ in range(MOST_CHECKS):
            with suppress(queue.Full):
                self._unchecked.put_nowait(None)
        for peer in list(self._peers):
            self._close(peer)
        self._selector.close()
        for each in (self._listener, self._ours, self._theirs):
            each.close()

    def _turn(self) -> None:
        ends_s = min((peer.ends_s for peer in self._peers), default=None)
        wait_s = None if ends_s is None else max(0.0, ends_s - time.monotonic())
        for key, _ in self._selector.select(wait_s):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._ours:
                self._take_checked()
            elif key.data in self._peers:
                self._advance(key.data)
        now_s = time.monotonic()
        for peer in [peer for peer in self._peers if peer.ends_s <= now_s]:
            self._close(peer)

    def _wake(self) -> None:
        with suppress(OSError):
            self._theirs.send(b"x", socket.MSG_DONTWAIT)

    def _accept(self) -> None:
        """Accept a connection; a request that arrived with it is answered before the next connection."""
        for _ in range(MOST_ACCEPTED):
            while len(self._peers) >= MOST_CONNECTIONS:
                self._close(next(iter(self._peers)))
            try:
                connection, _address = self._listener.accept()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._peers:
                    return
                self._close(next(iter(self._peers)))
                continue
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            if self._tls is not None:
                try:
                    connection = self._tls.wrap_socket(
                        connection, server_side=True, do_handshake_on_connect=False
                    )
                except OSError:
                    connection.close()
                    continue
            peer = _Peer(connection, time.monotonic() + PATIENCE_S, is_tls=self._tls is not None)
            self._peers[peer] = None
            self._selector.register(connection, selectors.EVENT_READ, peer)
            self._advance(peer)

    def _advance(self, peer: _Peer) -> None:
        """Go on with a connection as far as that is possible without waiting."""
        try:
            if peer.state == "handshake" and isinstance(peer.socket, ssl.SSLSocket):
                peer.socket.do_handshake()
                peer.state = "request"
            if peer.state == "request":
                self._read(peer)
            if peer.state == "answer":
                self._write(peer)
        except ssl.SSLWantReadError:
            self._await(peer, selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._await(peer, selectors.EVENT_WRITE)
        except BlockingIOError:
            self._await(peer, selectors.EVENT_WRITE if peer.state == "answer" else selectors.EVENT_READ)
        except (OSError, ValueError):  # a peer that hung up, or failed its handshake, is its own affair
            self._close(peer)

    def _await(self, peer: _Peer, events: int) -> None:
        if peer in self._peers and self._selector.get_key(peer.socket).events != events:
            self._selector.modify(peer.socket, events, peer)

    def _close(self, peer: _Peer) -> None:
        if peer in self._peers:
            del self._peers[peer]
            with suppress(KeyError, ValueError):
                self._selector.unregister(peer.socket)
            with suppress(OSError):
                peer.socket.shutdown(socket.SHUT_WR)
            peer.socket.close()

    def _read(self, peer: _Peer) -> None:
        """Read until the head of a request is there, and answer it; what follows it says nothing here."""
        while peer.state == "request":
            data = peer.socket.recv(4096)
            if not data:
                self._close(peer)
                return
            peer.received += data
            head, end, _ = peer.received.replace(b"\r\n", b"\n").partition(b"\n\n")
            if end:
                peer.received.clear()
                self._take_request(peer, head.decode("latin-1"))
            elif len(peer.received) > MAX_REQUEST_BYTES:
                self._answer(peer, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"", PLAIN)

    def _take_request(self, peer: _Peer, head: str) -> None:
        first, *lines = head.split("\n")
        words = first.split()
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            self._answer(peer, HTTPStatus.BAD_REQUEST, b"Bad request\n", PLAIN)
            return
        method = words[0]
        path = words[1].partition("?")[0]
        named = [line.partition(":") for line in reversed(lines)]
        fields = {name.strip().lower(): value.strip() for name, _, value in named}
        if method not in ("GET", "HEAD"):
            self._answer(peer, HTTPStatus.NOT_IMPLEMENTED, b"only GET and HEAD\n", PLAIN)
            return
        page = f"{method} {path}"
        authorization = fields.get("authorization")
        if self._passwords is None or self._passwords.knows(authorization):
            self._show(peer, page, fields.get("accept", ""))
        elif authorization is None:
            self._refuse(peer)
        else:
            self._have_checked(peer, page, fields.get("accept", ""), authorization)

    def _have_checked(self, peer: _Peer, page: str, accept: str, authorization: str) -> None:
        """Have a password checked by another thread, since that takes long on purpose."""
        peer.state = "check"
        self._selector.unregister(peer.socket)
        try:
            self._unchecked.put_nowait((peer, f"{page}\n{accept}", authorization))
        except queue.Full:
            self._go_on(peer)
            self._answer(peer, HTTPStatus.SERVICE_UNAVAILABLE, b"too many passwords to check\n", PLAIN)

    def _check_passwords(self) -> None:
        while (waiting := self._unchecked.get()) is not None:
            peer, request, authorization = waiting
            page, _, accept = request.partition("\n")
            is_right = self._passwords is not None and self._passwords.allow(authorization)
            self._checked.put((peer, page, accept, is_right))
            self._wake()

    def _take_checked(self) -> None:
        with suppress(BlockingIOError):
            self._ours.recv(4096)
        while not self._checked.empty():
            peer, page, accept, is_right = self._checked.get()
            if peer not in self._peers:
                continue
            self._go_on(peer)
            if is_right:
                self._show(peer, page, accept)
            else:
                self._refuse(peer)
            self._advance(peer)

    def _go_on(self, peer: _Peer) -> None:
        self._selector.register(peer.socket, selectors.EVENT_WRITE, peer)

    def _refuse(self, peer: _Peer) -> None:
        self._answer(peer, HTTPStatus.UNAUTHORIZED, b"Unauthorized\n", PLAIN, CHALLENGE)

    def _show(self, peer: _Peer, page: str, accept: str) -> None:
        method, _, path = page.partition(" ")
        if path == METRICS_PATH:
            try:
                body, kind = self._render_once(accept)
            except Exception:  # noqa: BLE001 - one scrape that fails ends no other
                self._answer(peer, HTTPStatus.INTERNAL_SERVER_ERROR, b"the text cannot be made\n", PLAIN)
                return
            self._answer(peer, HTTPStatus.OK, body, kind, has_body=method != "HEAD")
        elif path == "/":
            self._answer(peer, HTTPStatus.OK, INDEX, HTML, has_body=method != "HEAD")
        else:
            self._answer(peer, HTTPStatus.NOT_FOUND, b"metrics are at /metrics\n", PLAIN)

    def _render_once(self, accept: str) -> tuple[bytes, str]:
        """Return the text of a scrape, the same for all who ask within a moment."""
        now_s = time.monotonic()
        made_s, body, kind = self._rendered.get(accept, (-SAME_WITHIN_S, b"", ""))
        if now_s - made_s >= SAME_WITHIN_S:
            if len(self._rendered) >= MOST_KINDS:
                self._rendered.clear()
            body, kind = self._render(accept)
            self._rendered[accept] = (time.monotonic(), body, kind)
        return body, kind

    def _answer(
        self,
        peer: _Peer,
        status: HTTPStatus,
        body: bytes,
        kind: str,
        challenge: str = "",
        *,
        has_body: bool = True,
    ) -> None:
        lines = [
            f"HTTP/1.0 {status.value} {status.phrase}",
            "Server: vramscope",
            f"Date: {formatdate(usegmt=True)}",
            *([f"WWW-Authenticate: {challenge}"] if challenge else []),
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        peer.unsent = [memoryview(head), *([memoryview(body)] if has_body else [])]
        peer.state = "answer"
        peer.ends_s = time.monotonic() + PATIENCE_S

    def _write(self, peer: _Peer) -> None:
        while peer.unsent:
            part = peer.unsent[0]
            sent = peer.socket.send(part) if part else 0
            peer.unsent[:1] = [part[sent:]] if sent < len(part) else []
        self._close(peer)


def _explain(address: TcpAddress, error: OSError) -> str:
    """Say why nothing can be served, and who holds the port."""
    where = f"--prometheus {address.text}"
    if error.errno == errno.EADDRINUSE:
        holder = describe_holder(address.host, address.port)
        return f"{where}: port {address.port} is taken by {holder}; choose another"
    return f"{where}: cannot listen there: {error.strerror or error}"
