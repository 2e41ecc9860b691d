"""Opens http and https addresses, and sockets that speak http, with the standard library alone."""

import http.client
import io
import socket
import ssl
import time
from functools import partial
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class DeadlineError(TimeoutError):
    """Part of an answer came, but not all of it in time."""


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: a password goes only to the typed address, and a POST does not become a GET."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until a moment; a timeout of the socket would restart with every byte."""

    def __init__(self, connection: socket.socket, ends_s: float) -> None:
        self._socket = connection
        self._ends_s = ends_s
        self._patience_s = connection.gettimeout() or 0.0
        # The socket stays open for as long as one of its files does: the connection itself is closed early.
        self._file = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - a writable buffer, as of the base class
        self._socket.settimeout(min(self._patience_s, _left_s(self._ends_s)))
        try:
            return self._file.readinto(buffer)
        except TimeoutError:
            _left_s(self._ends_s)
            raise

    def close(self) -> None:
        self._file.close()
        super().close()


class _Connection(http.client.HTTPConnection):
    """A connection with a deadline for the whole exchange, from connecting to the last byte."""

    def __init__(self, *args: Any, ends_within_s: float | None, **options: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **options)
        self._ends_s = time.monotonic() + (ends_within_s or self.timeout or 0.0)
        self._create_connection = self._connect_in_time
        self.response_class = partial(_open_answer, self._ends_s)  # type: ignore[assignment]

    def _connect_in_time(self, address: tuple[str, int], *_: object) -> socket.socket:
        """Return a socket that is connected to the first address of a host that answers."""
        failed: OSError | None = None
        for family, kind, protocol, _name, numeric in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(min(self.timeout or 0.0, _left_s(self._ends_s)))
                connection.connect(numeric)
            except OSError as error:
                connection.close()
                failed = error
            else:
                return connection
        raise failed or OSError("this name has no address")


def _open_answer(
    ends_s: float, connection: socket.socket, debuglevel: int = 0, method: str | None = None
) -> http.client.HTTPResponse:
    """Read an answer before the time is up."""
    answer = http.client.HTTPResponse(connection, debuglevel, method)
    answer.fp.close()
    answer.fp = io.BufferedReader(_DeadlineReader(connection, ends_s))
    return answer


class _TlsConnection(_Connection, http.client.HTTPSConnection):
    pass


class _HttpHandler(HTTPHandler):
    def __init__(self, ends_within_s: float | None) -> None:
        super().__init__()
        self._ends_within_s = ends_within_s

    def http_open(self, req: Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_Connection, ends_within_s=self._ends_within_s), req)


class _HttpsHandler(HTTPSHandler):
    def __init__(self, ends_within_s: float | None) -> None:
        super().__init__()
        self._ends_within_s = ends_within_s

    def https_open(self, req: Request) -> http.client.HTTPResponse:
        context = ssl.create_default_context()
        make = partial(_TlsConnection, context=context, ends_within_s=self._ends_within_s)
        return self.do_open(make, req)


def make_opener(url: str, *, ends_within_s: float | None = None) -> OpenerDirector:
    """Return an opener for an address: through the proxy of the environment, except to this machine.

    Args:
        ends_within_s: Seconds that a request may take in all, however often a byte comes; by default its
            timeout, which is for each part.
    """
    proxies = [ProxyHandler({})] if urlsplit(url).hostname in LOOPBACK_NAMES else []
    return build_opener(_NoRedirect(), _HttpHandler(ends_within_s), _HttpsHandler(ends_within_s), *proxies)


def read_over_socket(path: str, target: str, *, ends_within_s: float, most_bytes: int) -> bytes | None:
    """Return the beginning of what a server at a Unix socket answers to GET; None without one in time."""
    connection = _Connection("localhost", timeout=ends_within_s, ends_within_s=ends_within_s)
    try:
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(ends_within_s)
        connection.sock.connect(path)
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.read(most_bytes) if answer.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _left_s(ends_s: float) -> float:
    """Return the seconds that are left; raises `DeadlineError` at 0."""
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise DeadlineError
    return left_s


def explain_failure(reason: object, timeout_s: float, ends_within_s: float) -> str:
    """Say why a server did not answer, as the end of a sentence that begins with its address."""
    if isinstance(reason, DeadlineError):
        return f"did not send all of its answer within {ends_within_s:g} s"
    if isinstance(reason, TimeoutError):
        return f"did not answer within {timeout_s:g} s"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"has an untrusted certificate: {reason.verify_message}; set SSL_CERT_FILE to a file of "
            "trusted certificates"
        )
    if isinstance(reason, socket.gaierror):
        return f"has an unknown host name: {reason.strerror}"
    if isinstance(reason, OSError) and reason.strerror:
        return f"cannot be reached: {reason.strerror}"
    return f"is not a web server ({type(reason).__name__})"
