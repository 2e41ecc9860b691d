"""Where figures are served, how they are protected, and what is refused."""

import base64
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import bcrypt
import pytest

from tests.engine.alerts.test_deliverer import make_certificate
from tests.waiting import wait_until
from vramscope.engine.cluster.addresses import TcpAddress, describe_holder
from vramscope.engine.errors import InputFileError, PackageMissingError, UsageError
from vramscope.exporters.prometheus import server as server_module
from vramscope.exporters.prometheus.endpoint import (
    Passwords,
    make_tls_context,
    parse_listen_address,
    read_endpoint_options,
    read_web_config,
)
from vramscope.exporters.prometheus.server import MOST_CONNECTIONS, MetricsServer

ANYWHERE = TcpAddress("127.0.0.1", 0)


@contextmanager
def serving(
    tls: ssl.SSLContext | None = None, passwords: Passwords | None = None, *, size: int = 0
) -> Iterator[MetricsServer]:
    def render(accepted: str) -> tuple[bytes, str]:
        return f"for {accepted}\n".encode() + b"#" * size, "text/plain"

    server = MetricsServer(ANYWHERE, render, tls, passwords)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def hash_password(password: str) -> str:
    """Return a hash of the least cost."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def fetch(url: str, *, accept: str = "", tls: ssl.SSLContext | None = None, user: str | None = None) -> bytes:
    headers = {"Accept": accept}
    if user is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
    with urlopen(Request(url, headers=headers), context=tls, timeout=5) as answer:  # noqa: S310
        body: bytes = answer.read()
    return body


def _read_tls(config: Path) -> ssl.SSLContext:
    tls = read_web_config(config).tls_server_config
    assert tls is not None
    return make_tls_context(tls)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", "127.0.0.1:9464"),
        (":9500", "127.0.0.1:9500"),
        ("9500", "127.0.0.1:9500"),
        ("localhost:9500", "127.0.0.1:9500"),
        ("[::1]:9500", "[::1]:9500"),
        ("0.0.0.0:9500", "0.0.0.0:9500"),
    ],
)
def test_a_port_alone_is_of_loopback(text: str, address: str) -> None:
    assert parse_listen_address(text).text == address


@pytest.mark.parametrize("text", ["gpu7:9464", "::1:9464", ":70000", "127.0.0.1", "http://127.0.0.1:1"])
def test_what_is_no_address_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(UsageError, match="expected a port or address:port"):
        parse_listen_address(text)


def test_beyond_loopback_nothing_is_served_unprotected_unless_that_is_typed() -> None:
    with pytest.raises(UsageError, match=r"--web-config FILE .*add --insecure"):
        read_endpoint_options("0.0.0.0:9464", None, is_insecure=False)
    assert read_endpoint_options("0.0.0.0:9464", None, is_insecure=True).address.port == 9464


def test_without_the_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(PackageMissingError, match=r"pip install 'vramscope\[prometheus\]'"):
        read_endpoint_options("", None, is_insecure=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "basic_auth_users:\n  alice: sesame\n",
            "alice: expected a user without a colon and the bcrypt hash",
        ),
        (f"basic_auth_users:\n  alice: $2b$31${'a' * 53}\n", "cost 4 to 16, not 31"),
        ("tls_server_config:\n  cert_file: a\n  key_file: b\n  cipher_suites: [x]\n", "cipher_suites"),
        ("tls_server_config:\n  cert_file: a\n", "key_file"),
        ("http_server_config:\n  http2: true\n", "http_server_config"),
        ("tls_server_config:\n  cert_file: a\n  key_file: b\n  client_ca_file: c\n", "go together"),
        ("{}\n", "no tls_server_config"),
        ("tls_server_config: {\n", "line 1"),
    ],
)
def test_a_web_configuration_that_is_not_supported_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "web.yml"
    path.write_text(text)
    with pytest.raises(InputFileError, match=reason) as refused:
        read_web_config(path)
    assert "web.yml" in str(refused.value)


def test_a_port_that_is_taken_is_named_with_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} is taken by process \d+ \(.*\); choose another"):
            MetricsServer(TcpAddress("127.0.0.1", port), lambda _: (b"", ""))


def test_the_same_port_of_another_address_is_somebody_elses() -> None:
    listen = "import socket, sys; it = socket.create_server(('127.0.0.2', 0)); "
    tell = "print(it.getsockname()[1], flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", listen + tell], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        with socket.create_server(("127.0.0.1", port)):
            assert f"process {os.getpid()} " in describe_holder("127.0.0.1", port)
            assert f"process {other.pid} " in describe_holder("127.0.0.2", port)
        other.communicate(timeout=60)


def test_metrics_are_at_one_path_and_told_in_the_form_that_is_asked_for() -> None:
    with serving() as server:
        assert fetch(server.url, accept="this") == b"for this\n"
        with pytest.raises(URLError, match="404"):
            fetch(server.url.replace("/metrics", "/other"))
        with socket.create_connection(("127.0.0.1", server.server_port)) as peer:
            peer.sendall(b"\x16\x03\x01 no request\r\n\r\n")
            assert b"400" in peer.recv(4096)


def test_a_certificate_is_shown_while_a_peer_that_never_shakes_hands_holds_up_nobody(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config:\n  cert_file: certificate.pem\n  key_file: key.pem\n")
    with serving(_read_tls(config)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=tmp_path / "certificate.pem")
        with socket.create_connection(("127.0.0.1", server.server_port)):
            assert fetch(server.url, tls=trusting) == b"for \n"
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(server.url)


def test_who_has_no_right_password_is_told_nothing_and_asked_for_one(tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  alice: {hash_password('sesame')}\n")
    with serving(passwords=Passwords(read_web_config(config).basic_auth_users)) as server:
        for _ in range(2):
            assert fetch(server.url, user="alice:sesame") == b"for \n"
        for user in (None, "alice:sesam", "bob:sesame", "alice", "alice:", "alice:" + "s" * 100, "\xff:\0"):
            with pytest.raises(HTTPError, match="401") as refused:
                fetch(server.url, user=user)
            assert refused.value.headers["WWW-Authenticate"] == 'Basic realm="vramscope"'
            assert refused.value.read() == b"Unauthorized\n"


def test_on_loopback_metrics_are_for_everybody_until_there_are_passwords(tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  alice: {hash_password('sesame')}\n")
    assert not read_endpoint_options("", None, is_insecure=False).protection.basic_auth_users
    with serving() as server:
        assert fetch(server.url) == b"for \n"
    users = read_endpoint_options("", config, is_insecure=False).protection.basic_auth_users
    with serving(passwords=Passwords(users)) as server, pytest.raises(HTTPError, match="401"):
        fetch(server.url)


def test_passwords_alone_do_not_open_an_address_beyond_loopback(tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  alice: {hash_password('sesame')}\n")
    with pytest.raises(UsageError, match="TLS configuration"):
        read_endpoint_options("0.0.0.0:9464", config, is_insecure=False)


def test_a_key_that_is_missing_is_named(tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config:\n  cert_file: here.pem\n  key_file: there.pem\n")
    with pytest.raises(UsageError, match=r"here\.pem.*there\.pem.*No such file"):
        _read_tls(config)


SLOW = 300
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"


@contextmanager
def holding(port: int, text: bytes) -> Iterator[None]:
    """Hold many connections open, each of which has said the same and reads nothing."""
    with ExitStack() as stack:
        for _ in range(SLOW):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with suppress(OSError):
                peer.sendall(text)
        yield


@pytest.mark.parametrize(
    "text",
    [b"", REQUEST, REQUEST + b"\r\n", REQUEST + b"Authorization: Basic YWxpY2U6eA==\r\n\r\n"],
    ids=["silent", "half a request", "reads no answer", "wrong password"],
)
def test_three_hundred_slow_peers_keep_no_scrape_waiting(text: bytes) -> None:
    passwords = Passwords({"alice": hash_password("sesame")})
    has_passwords = b"Authorization" in text
    user = "alice:sesame" if has_passwords else None
    with serving(passwords=passwords if has_passwords else None, size=1 << 22) as server:
        fetch(server.url, user=user)
        with holding(server.server_port, text):
            for _ in range(3):
                assert len(fetch(server.url, user=user)) > 1 << 22
            assert len(server._peers) <= MOST_CONNECTIONS


def test_slow_peers_of_tls_keep_no_scrape_waiting(tmp_path: Path) -> None:
    make_certificate(tmp_path)
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config:\n  cert_file: certificate.pem\n  key_file: key.pem\n")
    trusting = ssl.create_default_context(cafile=tmp_path / "certificate.pem")
    with serving(_read_tls(config), size=1 << 22) as server, holding(server.server_port, b""):
        assert len(fetch(server.url, tls=trusting)) > 1 << 22


def test_a_peer_that_sends_a_byte_now_and_then_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PATIENCE_S", 0.3)
    with serving(size=1 << 24) as server:
        for text in (b"GET ", REQUEST + b"\r\n"):
            with socket.create_connection(("127.0.0.1", server.server_port)) as peer:
                peer.sendall(text)
                wait_until(lambda: len(server._peers) == 1, what="the peer")
                wait_until(lambda: not server._peers, what="its end")


def test_a_head_without_end_is_refused() -> None:
    with serving() as server, socket.create_connection(("127.0.0.1", server.server_port)) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 2730)
        assert peer.recv(64).startswith(b"HTTP/1.0 431")


def test_a_scrape_that_fails_ends_no_other() -> None:
    told = iter([ValueError("no picture")])

    def render(accepted: str) -> tuple[bytes, str]:
        for error in told:
            raise error
        return b"fine\n", "text/plain"

    server = MetricsServer(ANYWHERE, render)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.raises(HTTPError, match="500"):
        fetch(server.url)
    assert fetch(server.url) == b"fine\n"
    server.shutdown()
    server.server_close()
