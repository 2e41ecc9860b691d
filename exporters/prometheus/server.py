"""A small web server of one page: the metrics, over HTTP or HTTPS, a thread a request."""

import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from ...engine.cluster.address import describe_holder
from ...engine.errors import UsageError
from .address import ListenAddress
from .passwords import Passwords

if TYPE_CHECKING:
    from ssl import SSLContext

METRICS_PATH = "/metrics"
PATIENCE_S = 10.0
"""How long a peer may take for its handshake, its request or the answer."""
MOST_REQUESTS = 16
"""Requests that are answered at a time; a peer beyond them is turned away."""
INDEX = b"<!DOCTYPE html><title>vramscope</title><a href=/metrics>Metrics</a>\n"

CHALLENGE = 'Basic realm="vramscope"'
"""Tells a peer without a password to give one."""

Render = Callable[[str], tuple[bytes, str]]
"""Returns the text and its type for what a peer says it accepts."""


class MetricsServer(ThreadingHTTPServer):
    """Serves the metrics until it is shut down.

    Args:
        address: Where to listen.
        render: Makes the text of a scrape.
        tls: What to speak TLS with; None for plain HTTP.
        passwords: Who may ask; None for everybody.

    Raises:
        UsageError: It cannot listen there.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        address: ListenAddress,
        render: Render,
        tls: "SSLContext | None" = None,
        passwords: Passwords | None = None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.render, self._tls, self.passwords = render, tls, passwords
        self._places = threading.BoundedSemaphore(MOST_REQUESTS)
        try:
            super().__init__((address.host, address.port), _Handler)
        except OSError as error:
            raise UsageError(_explain(address, error)) from error

    @property
    def url(self) -> str:
        """Where the metrics are."""
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{ListenAddress(*self.server_address[:2])}{METRICS_PATH}"  # type: ignore[arg-type]

    def server_bind(self) -> None:
        """Bind; unlike the library, ask no name server what this machine is called."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a connection; its handshake is made on the thread that answers it."""
        connection, peer = self.socket.accept()
        connection.settimeout(PATIENCE_S)
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, peer

    def process_request(self, request: object, client_address: object) -> None:
        """Answer on a thread, if there is a place."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)  # type: ignore[arg-type]
        else:
            self.shutdown_request(request)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Answer, and give the place back."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a peer that hung up, or failed its handshake, is its own affair."""


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    server_version, sys_version = "vramscope", ""
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        path, passwords = self.path.partition("?")[0], self.server.passwords
        if passwords is not None and not passwords.allow(self.headers.get("Authorization")):
            self._answer(HTTPStatus.UNAUTHORIZED, b"Unauthorized\n", "text/plain; charset=utf-8", CHALLENGE)
        elif path == METRICS_PATH:
            body, kind = self.server.render(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, body, kind)
        elif path == "/":
            self._answer(HTTPStatus.OK, INDEX, "text/html; charset=utf-8")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"metrics are at /metrics\n", "text/plain; charset=utf-8")

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, challenge: str = "") -> None:
        self.send_response(status)
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no line for each scrape."""


def _explain(address: ListenAddress, error: OSError) -> str:
    """Say why nothing can be served, and who holds the port."""
    import errno

    where = f"--prometheus {address}"
    if error.errno == errno.EADDRINUSE:
        holder = describe_holder(address.host, address.port)
        return f"{where}: port {address.port} is taken by {holder}; choose another"
    return f"{where}: cannot listen there: {error.strerror or error}"
