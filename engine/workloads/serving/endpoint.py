"""Serves what a simulated server says of itself over HTTP, on loopback only."""

import http.server
import threading
import time
from collections.abc import Callable
from typing import Any

from .formats import Format, answer
from .server import SimulatedServer

Page = Callable[[str], tuple[str, str] | None]


class Endpoint:
    """An HTTP server on a thread of its own; `url` is where it listens.

    Args:
        page: Returns content type and body for a path, or None for 404.
        port: 0 for any free port.
    """

    def __init__(self, page: Page, port: int = 0) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = page(self.path)
                if found is None:
                    self.send_error(404)
                    return
                kind, text = found
                body = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as of the base class
                """Print nothing: the output is a start-up log."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class SimulatedEndpoint(Endpoint):
    """A simulated server that goes on by itself.

    Args:
        clock_s: Returns the seconds that the simulation has reached; the time since now by default.
    """

    def __init__(
        self,
        server: SimulatedServer,
        kind: Format,
        *,
        port: int = 0,
        clock_s: Callable[[], float] | None = None,
    ) -> None:
        self.server = server
        self._kind: Format = kind
        self._lock = threading.Lock()
        started_s = time.monotonic()
        self._clock_s = clock_s or (lambda: time.monotonic() - started_s)
        super().__init__(self._answer, port)

    def advance(self) -> int:
        """Go on to now; return the bytes that each rank uses of its device."""
        with self._lock:
            self.server.advance(self._clock_s())
            return self.server.used_bytes

    def sleep(self) -> None:
        with self._lock:
            self.server.sleep()

    def wake(self) -> None:
        with self._lock:
            self.server.wake()

    def _answer(self, path: str) -> tuple[str, str] | None:
        self.advance()
        with self._lock:
            return answer(self.server, self._kind, path.partition("?")[0])
