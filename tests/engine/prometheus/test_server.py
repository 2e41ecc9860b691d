"""A server that is none, refuses, hangs or answers too much; and a password that is never repeated."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vramscope.cli.frame.parse import parse
from vramscope.cli.view import check_prometheus_flags, read_server, read_span
from vramscope.engine.errors import (
    InputFileError,
    ServerUnreachableError,
    SourceUnavailableError,
    UsageError,
    VramscopeError,
)
from vramscope.engine.prometheus import server as server_module
from vramscope.engine.prometheus.follower import PastRange, PrometheusFollower
from vramscope.engine.prometheus.server import PrometheusServer, parse_server_url

EMPTY = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}}).encode()


class Answering:
    """A server that gives one answer to everything, and keeps what it was asked."""

    def __init__(self, status: int, body: bytes, **headers: str) -> None:
        self.status, self.body, self.headers = status, body, headers
        self.asked: list[tuple[str, str | None]] = []
        self.released = threading.Event()
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append((request.path, request.headers.get("Authorization")))
        if self.status == 0:
            self.released.wait(30)
            return
        request.send_response(self.status)
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(self.body)


@contextmanager
def answering(status: int = 200, body: bytes = EMPTY, **headers: str) -> Iterator[Answering]:
    """Run a server that answers so, or with status 0 not at all, while the block runs."""
    answers = Answering(status, body, **headers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    answers.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield answers
    finally:
        answers.released.set()
        server.shutdown()
        server.server_close()


def ask(url: str, **options: float) -> None:
    PrometheusFollower(PrometheusServer(parse_server_url(url), **options)).poll()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, b"", "refuses: 401 Unauthorized; give user and password with --auth-file"),
        (302, b"", "points elsewhere: 302 Found"),
        (404, b"", "answered 404 Not Found: check that it is a Prometheus"),
        (
            400,
            b'{"status":"error","errorType":"bad_data","error":"parse error"}',
            "400 Bad Request: parse error",
        ),
        (503, b"", "answered 503 Service Unavailable"),
        (200, b"<html>", "is not a Prometheus API"),
        (200, b'{"status":"success"}', "answered with an error"),
        (
            200,
            b'{"status":"success","data":{"resultType":"matrix","result":[1]}}',
            "is not a Prometheus API",
        ),
    ],
)
def test_what_is_no_answer_is_said_in_words(status: int, body: bytes, reason: str) -> None:
    with answering(status, body, Location="http://127.0.0.1:1/") as answers:
        with pytest.raises(ServerUnreachableError, match=reason) as refused:
            ask(answers.url.replace("http://", "http://me:s3cret@"))
        assert "s3cret" not in str(refused.value)
        assert refused.value.exit_code == 7


def test_user_and_password_are_sent_and_nowhere_else_shown() -> None:
    with answering() as answers:
        with pytest.raises(SourceUnavailableError, match=r"looked for .*DCGM_FI_DEV_FB_USED") as refused:
            ask(answers.url.replace("http://", "http://me:s3%40cret@") + "/prefix/")
        path, authorization = answers.asked[0]
    assert path.startswith("/prefix/api/v1/query?query=")
    assert authorization == "Basic bWU6czNAY3JldA=="
    assert "s3" not in str(refused.value)
    assert "bWU6" not in repr(parse_server_url("http://me:s3cret@host:9090"))


def test_a_server_that_hangs_or_is_not_there_is_given_up() -> None:
    with (
        answering(0) as answers,
        pytest.raises(ServerUnreachableError, match=r"did not answer within 0\.1 s"),
    ):
        ask(answers.url, timeout_s=0.1)
    with pytest.raises(ServerUnreachableError, match="cannot be reached: Connection refused"):
        ask(answers.url)


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_ANSWER_BYTES", 1 << 20)
    with (
        answering(body=b"[" * (2 << 20)) as answers,
        pytest.raises(ServerUnreachableError, match="more than 1 MiB"),
    ):
        ask(answers.url)


def test_a_span_without_a_device_is_said_to_be_empty() -> None:
    with answering() as answers:
        past = PastRange(PrometheusServer(parse_server_url(answers.url)), 1e9, 1e9 + 60)
        with pytest.raises(SourceUnavailableError, match="has no GPU in this span"):
            list(past.samples())


@pytest.mark.parametrize("url", ["ftp://host", "host:9090", "http://", "http://me:s3cret@", "http://host:x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="expected one such as") as refused:
        parse_server_url(url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "text", "reason"),
    [
        (0o644, "me:s3cret\n", r"others can read this file \(mode 0644\)"),
        (0o600, "s3cret\n", "user:password"),
        (0o600, "me:s3cret\n", None),
    ],
)
def test_a_password_is_read_from_a_file_of_ones_own(
    tmp_path: Path, mode: int, text: str, reason: str | None
) -> None:
    path = tmp_path / "auth"
    path.write_text(text)
    path.chmod(mode)
    arguments = parse(["--from-prometheus", "http://host:9090", "--auth-file", str(path)])
    if reason is None:
        assert read_server(arguments).authorization == "Basic bWU6czNjcmV0"
        return
    with pytest.raises(InputFileError, match=reason) as refused:
        read_server(arguments)
    assert "s3cret" not in str(refused.value)


def test_a_span_is_a_time_ago_or_a_date() -> None:
    def span(*words: str) -> float:
        start_s, end_s = read_span(parse(["--from-prometheus", "http://host", *words]))
        return end_s - start_s

    assert span("--from", "2h") == pytest.approx(7200)
    assert span("--from", "2h", "--to", "30m ago") == pytest.approx(5400)
    assert span("--from", "2026-01-31T10:00", "--to", "2026-01-31T10:20") == 1200
    assert span("--from", "1800000000", "--to", "1800000060") == 60


@pytest.mark.parametrize(
    ("words", "check", "reason"),
    [
        ("--from 2h", check_prometheus_flags, "needs --from-prometheus"),
        ("--from-prometheus http://h --to 2h", check_prometheus_flags, "--to needs --from"),
        ("--from-prometheus http://h --from 2h --once", check_prometheus_flags, "does not go with --once"),
        ("--from-prometheus http://h --connect h", check_prometheus_flags, "give only one of them"),
        ("--from-prometheus http://h --duration 1m", check_prometheus_flags, "--duration needs --json"),
        ("--from-prometheus http://h --from yesterday", read_span, "expected a time ago such as 2h"),
        ("--from-prometheus http://h --from 1h --to 2h", read_span, "expected a time before --to 2h"),
    ],
)
def test_flags_that_mean_nothing_together_are_refused(
    words: str, check: Callable[[object], object], reason: str
) -> None:
    with pytest.raises(VramscopeError, match=reason):
        check(parse(words.split()))
