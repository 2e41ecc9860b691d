"""A real Prometheus between an agent, an exporter that speaks as DCGM's does, and the view of both."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import bcrypt
import psutil
import pytest

from tests.engine.prometheus.prometheus_server import dcgm_text, exporting, scraping
from tests.exporters.prometheus.scraped import OPENMETRICS, Series, read_scrape
from tests.pretend_nvml.driver import GIB, PretendDriver
from tests.structure.tree import ROOT
from tests.vramscope.cli.running import Program, run, start
from tests.waiting import wait_until
from vramscope.cli.prometheus_view import keep_past
from vramscope.engine.prometheus.follower import PastRange
from vramscope.engine.prometheus.server import PrometheusServer, parse_server_url
from vramscope.engine.recording import Recording
from vramscope.engine.sampling.live import node_name
from vramscope.engine.units import MIB

pytestmark = pytest.mark.waits

METRICS_AT = "vramscope agent: metrics are available at "


@contextmanager
def running_agent(*flags: str) -> Iterator[tuple[Program, str]]:
    """Run an agent that serves Prometheus; gives it and the address."""
    with start("agent", "--prometheus", ":0", *flags) as agent:
        try:
            assert agent.stderr is not None
            line = agent.stderr.readline()
            assert line.startswith(METRICS_AT), line
            url = line.removeprefix(METRICS_AT).strip()
            yield agent, url
        finally:
            agent.kill()
    wait_until(lambda: read_metrics(url) is None, what="the exporter to end with its agent")


def read_metrics(url: str) -> Series | None:
    """Return what is served, or None where nothing is."""
    try:
        with urlopen(Request(url, headers={"Accept": OPENMETRICS}), timeout=5) as answer:  # noqa: S310 - our own
            return read_scrape(answer.read().decode())
    except OSError:
        return None


def is_measured(url: str) -> bool:
    series = read_metrics(url)
    return series is not None and len(series.of("vramscope_device_used_bytes")) == 2


def read_line(agent: Program) -> str:
    assert agent.stderr is not None
    return agent.stderr.readline()


def kill_exporter(agent: Program) -> None:
    (exporter,) = [it for it in psutil.Process(agent.pid).children() if "exporter" in it.cmdline()]
    exporter.kill()


@pytest.fixture
def two_devices(pretend_driver: PretendDriver, pretend_environment: dict[str, str]) -> PretendDriver:
    for number in range(2):
        pretend_driver.add_device(used_bytes=(number + 1) * 10 * GIB)
    return pretend_driver


def test_the_exporter_is_started_again_after_a_crash_and_ends_with_its_agent(
    two_devices: PretendDriver,
) -> None:
    with running_agent() as (agent, url):
        wait_until(lambda: is_measured(url), what="both devices")
        assert "serving" in read_line(agent)
        kill_exporter(agent)
        assert "the metrics exporter ended" in read_line(agent)
        again = read_line(agent).partition("metrics are available again at ")[2].strip()
        wait_until(lambda: is_measured(again), what="both devices again")
        assert agent.poll() is None
        agent.send_signal(signal.SIGINT)
        assert agent.wait(10) == 0
        assert read_metrics(again) is None


def test_prometheus_scrapes_with_the_password_and_is_refused_without(
    two_devices: PretendDriver, tmp_path: Path
) -> None:
    hashed = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  prometheus: {hashed}\n")
    with running_agent("--web-config", str(config)) as (_, url):
        target = urlsplit(url).netloc
        targets = {"known": target, "wrong": target, "unnamed": target}
        passwords = {"known": "prometheus:open sesame", "wrong": "prometheus:sesame"}
        with scraping(tmp_path, targets, passwords=passwords) as address:
            server = PrometheusServer(parse_server_url(address))
            wait_until(lambda: server.query('vramscope_device_used_bytes{job="known"}'), 60, "a scrape")
            wait_until(lambda: len(server.query("up == 0")) == 2, 60, "both others to be refused")
            assert not server.query('vramscope_device_used_bytes{job!="known"}')


def test_what_prometheus_scraped_of_agents_and_of_dcgm_is_viewed_now_and_in_the_past(
    two_devices: PretendDriver, tmp_path: Path
) -> None:
    with (
        running_agent() as (_, url),
        exporting(lambda: dcgm_text({0: 30_000, 1: 60_000})) as port,
        scraping(
            tmp_path,
            {"vramscope": urlsplit(url).netloc, "dcgm": f"127.0.0.1:{port}"},
            rules=ROOT / "docs/prometheus/alerts.yml",
        ) as address,
    ):
        server = PrometheusServer(parse_server_url(address))

        def has(expression: str) -> bool:
            return bool(server.query(expression))

        wait_until(lambda: has("vramscope_device_used_bytes") and has("DCGM_FI_DEV_FB_USED offset 1s"), 60)
        two_devices.devices[1].lose()
        wait_until(lambda: has('vramscope_device_up{device="1"} == 0'), what="the lost device")
        assert not has('vramscope_device_used_bytes{device="1"}')
        wait_until(lambda: has('ALERTS{alertname="VramscopeDeviceDown"}'), what="the alert")

        shown = run("--from-prometheus", address, "--once", "--json")
        assert (shown.code, shown.stderr) == (0, "")
        nodes = {line["node"]: line for line in shown.lines}
        assert sorted(nodes) == sorted([node_name(), "gpu7"])
        assert [it["state"] for it in nodes[node_name()]["devices"]] == ["ok", "lost"]
        assert [it["memory"]["used_bytes"] for it in nodes["gpu7"]["devices"]] == [30_000 * MIB, 60_000 * MIB]
        assert {it["level"] for it in nodes["gpu7"]["assessments"]} == {"unknown"}

        path = tmp_path / "past.vscope"
        now_s = time.time()
        keep_past(PastRange(server, now_s - 60, now_s), path)
        with Recording(path) as recording:
            assert sorted(recording.nodes) == sorted(nodes)
            devices = [it.devices for it in recording.samples(node=node_name())]
        assert [it.memory.used_bytes for it in devices[-1]] == [10 * GIB, 20 * GIB]
        assert len(devices) > 3
