"""Servers that answer with impossible times, garbage, too much, or one byte now and then."""

import gzip
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.vramscope.cli.terminals import TerminalRun
from tests.waiting import wait_until
from vramscope.engine.errors import ServerUnreachableError
from vramscope.engine.history import History
from vramscope.engine.model import Sample
from vramscope.engine.prometheus import assembly
from vramscope.engine.prometheus import server as server_module
from vramscope.engine.prometheus.assembly import Assembler
from vramscope.engine.prometheus.feed import FirstAnswer, PrometheusFeed
from vramscope.engine.prometheus.follower import PrometheusFollower
from vramscope.engine.prometheus.server import PrometheusServer, Series, parse_server_url
from vramscope.engine.viewer.snapshot import Snapshot

Handle = Callable[[BaseHTTPRequestHandler], None]
T = 1_800_000_000.0


@contextmanager
def serving(handle: Handle) -> Iterator[str]:
    """Run a server that handles each request so; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                handle(self)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def answer(body: bytes, **headers: str) -> Handle:
    def handle(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(body)

    return handle


def used(uuid: str, *values: tuple[float, str], host: str = "gpu7", **labels: str) -> Series:
    metric = {"__name__": "DCGM_FI_DEV_FB_USED", "UUID": uuid, "gpu": "0", "Hostname": host, **labels}
    return Series(metric, values)


def matrix(*series: Series) -> bytes:
    result = [{"metric": it.metric, "values": it.values} for it in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def poll(url: str, **options: float) -> tuple[list[Sample], tuple[str, ...]]:
    follower = PrometheusFollower(PrometheusServer(parse_server_url(url), **options))
    return follower.poll(), follower.notes


def run_once(url: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "vramscope", "--from-prometheus", url, "--once", "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_times_that_cannot_be_are_left_out_and_counted_and_the_rest_is_shown() -> None:
    now_s = time.time()
    bad = [(1e300, "5"), (-7.0, "5"), (now_s + 1e9, "5"), (now_s - 3, "1e999"), (now_s - 2, "-4")]
    with serving(answer(matrix(used("GPU-a", (now_s - 1, "1000"), *bad)))) as url:
        samples, notes = poll(url)
    assert [it.time_s for it in samples] == [now_s - 1]
    assert notes == (
        "left out of Prometheus's answer: 5 values that are not numbers or have impossible times",
    )


@pytest.mark.parametrize(
    "values", [[(1e300, "5"), (-7.0, "5")], [(T, "NaN"), (T, "x")], [(T, "1" * 5000)]], ids=str
)
def test_an_answer_of_garbage_alone_is_an_error_that_says_what_came(values: list[tuple[float, str]]) -> None:
    with serving(answer(matrix(used("GPU-a", *values)))) as url:
        ended = run_once(url)
    assert ended.returncode == 7
    assert ended.stdout == ""
    assert f"answered with 1 series and {len(values)} values, but no value is a valid number" in ended.stderr


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"status":"success","data":{"resultType":"matrix","result":' + b"[" * 10**5, "application/json"),
        (b"<html>", "text/html"),
        (b"\xff\xfe", "application/json"),
    ],
    ids=["deep", "page", "no text"],
)
def test_what_is_no_answer_is_named_by_what_it_is(body: bytes, kind: str) -> None:
    with (
        serving(answer(body, Content_Type=kind)) as url,
        pytest.raises(ServerUnreachableError, match=f"it sent {len(body):,} bytes of {kind}"),
    ):
        poll(url)


def test_a_compressed_answer_that_nobody_asked_for_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(50 << 20))
    with (
        serving(answer(bomb, Content_Encoding="gzip", Content_Type="application/json")) as url,
        pytest.raises(ServerUnreachableError, match=f"it sent {len(bomb):,} bytes"),
    ):
        poll(url)


def drip(text: bytes, head: bytes = b"") -> Handle:
    """Send the head at once, and then the text again and again, a byte every tenth of a second."""

    def handle(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(head)
        while True:
            for at in range(len(text)):
                request.wfile.write(text[at : at + 1])
                time.sleep(0.1)

    return handle


@pytest.mark.parametrize(
    "handle",
    [
        drip(b"HTTP/1.1 200 OK\r\nX-Long: "),
        drip(b"X", b"HTTP/1.1 200 OK\r\nX-Long: "),
        drip(b" ", b"HTTP/1.1 200 OK\r\n\r\n"),
        drip(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
        drip(b"X: y\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"),
    ],
    ids=["status", "header", "body", "continue", "trailer"],
)
def test_a_byte_now_and_then_does_not_prolong_a_request(handle: Handle) -> None:
    began_s = time.monotonic()
    with (
        serving(handle) as url,
        pytest.raises(ServerUnreachableError, match=r"did not send all of its answer within 0\.7 s"),
    ):
        poll(url, ends_within_s=0.7)
    assert time.monotonic() - began_s < 10.0


def test_q_quits_while_a_server_sends_a_byte_now_and_then(tmp_path: Path) -> None:
    environment = {**os.environ, "TERM": "xterm-256color", "HOME": str(tmp_path), "COLUMNS": "100"}
    with serving(drip(b" ", b"HTTP/1.1 200 OK\r\n\r\n")) as url:
        command = [sys.executable, "-m", "vramscope", "--from-prometheus", url]
        with TerminalRun(command, environment) as run:
            run.wait_for(b"has not answered yet")
            run.type(b"q")
            assert run.wait_for_end() == 0


def test_a_view_waits_for_a_slow_server_and_then_forgets_that_it_waited() -> None:
    released, now_s = threading.Event(), time.time()
    told: list[Snapshot] = []

    def handle(request: BaseHTTPRequestHandler) -> None:
        released.wait(30)
        answer(matrix(used("GPU-a", (now_s - 1, "1000"))))(request)

    with serving(handle) as url:
        follower = PrometheusFollower(PrometheusServer(parse_server_url(url)))
        feed = PrometheusFeed(follower, first=FirstAnswer(follower), make_analyzers=list)
        feed.start(told.append)
        wait_until(lambda: bool(told), what="the first word")
        released.set()
        wait_until(lambda: told[-1].node == "gpu7", what="the node")
        feed.stop()
    assert told[0].connection == "lost"
    assert told[0].reason == f"{url} has not answered yet"
    assert Snapshot(is_gone=True) in told


def test_what_is_beyond_all_bounds_is_counted_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "MOST_NODES", 3)
    monkeypatch.setattr(assembly, "MOST_DEVICES", 5)
    assembler = Assembler(1.0)
    series = [used(f"GPU-{at}", (T, "1000"), host=f"node{at // 3}") for at in range(60)]
    samples = list(assembler.add(series))
    assert sum(len(it.devices) for it in samples) == 5
    assert assembler.notes == ("left out of Prometheus's answer: 17 nodes beyond 3; 4 devices beyond 5",)
    # Those that are gone make room for those that came.
    later = [used(f"GPU-{at}", (T + 1000, "1000"), host=f"other{at // 3}") for at in range(3)]
    (sample,) = assembler.add(later)
    assert (sample.node, len(sample.devices)) == ("other0", 3)
    assert not assembler.notes


def test_where_every_value_has_a_moment_of_its_own_the_newest_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assembly, "MOST_DEVICES", 400)
    assembler, count = Assembler(1.0), 400
    series = [
        used(f"GPU-{at}", *((T + at / count + moment, "1") for moment in range(10))) for at in range(count)
    ]
    samples = list(assembler.add(series))
    assert sum(len(it.devices) for it in samples) < 4 * 10 * count
    assert samples[-1].time_s == max(time_s for it in series for time_s, _ in it.values)
    assert "moments: each value had a different time" in assembler.notes[0]


def test_values_and_labels_without_end_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MOST_VALUES", 10)
    now_s = time.time()
    values = [(now_s - 20 + at, "1000") for at in range(10)]
    series = [used("x" * 5000, *values[:1]), used("GPU-a", *values), used("GPU-b", *values)]
    with serving(answer(matrix(*series))) as url:
        samples, notes = poll(url)
    assert {device.uuid for it in samples for device in it.devices} == {"GPU-a"}
    assert notes[0].startswith("left out of Prometheus's answer: 2 series")


def test_numbers_in_labels_and_shares_without_end_are_no_numbers() -> None:
    """Neither Python's limit of digits nor a column of the history is met."""
    digits, history = "9" * 900, History()
    rank = {"node": "n", "pid": digits, "uuid": "GPU-a"}
    series = [
        used("GPU-a", (T, "1000"), gpu=digits, GPU_I_ID=digits),
        Series(
            {**used("GPU-a").metric, "__name__": "DCGM_FI_DEV_GPU_UTIL", "GPU_I_ID": digits}, ((T, "1e15"),)
        ),
        Series({"__name__": "vramscope_rank_up", **rank}, ((T, "1"),)),
        Series({"__name__": "vramscope_oom_risk_level", "level": "low", **rank}, ((T, "1"),)),
    ]
    assembler = Assembler(1.0)
    for sample in assembler.add(series):
        history.add(sample)
        assert sample.ranks == ()
        assert assembler.list_assessments(sample) == ()
        assert all(device.mig_index is None and math.isfinite(device.index) for device in sample.devices)
