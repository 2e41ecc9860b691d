"""A real HTTP receiver on loopback that answers as a test tells it."""

import json
import ssl
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Receiver:
    """Takes what is posted; `answers` are the codes it gives, the last one for ever; 0 hangs.

    Args:
        answers: Status codes.
        certificate: PEM file with key and certificate, to speak TLS.
    """

    def __init__(self, *answers: int, certificate: Path | None = None) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Method, path and headers of each request."""
        self.answers = deque(answers or (200,))
        self.released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._make_handler())
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if certificate is None else "https"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str = "/hook?token=s3cret", user: str = "") -> str:
        return f"{self._scheme}://{user}127.0.0.1:{self.port}{path}"

    def _make_handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def do_GET(self) -> None:
                receiver._take(self)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
        self.requests.append((handler.command, handler.path, dict(handler.headers)))
        if body:
            self.bodies.append(json.loads(body))
        code = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        if code == 0:
            self.released.wait(60)
            return
        handler.send_response(code)
        if 300 <= code < 400:
            handler.send_header("Location", self.url("/elsewhere"))
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def __enter__(self) -> "Receiver":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
