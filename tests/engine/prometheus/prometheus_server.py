"""A real Prometheus that scrapes what a test names, and a tiny exporter that speaks dcgm-exporter's text."""

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import urlopen

from tests.components import require
from tests.waiting import wait_until

SCRAPE_S = 0.25


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def dcgm_text(used_mib: Mapping[int, int], *, host: str = "gpu7", total_mib: int = 81_559) -> str:
    """Return what dcgm-exporter tells of devices.

    Args:
        used_mib: Memory in use, by number of the device.
        host: Name of the node.
        total_mib: Memory of each device, 600 MiB of which the driver reserves.
    """
    lines = []
    for number, used in used_mib.items():
        labels = (
            f'gpu="{number}",UUID="GPU-dcgm-{number}",pci_bus_id="00000000:0{number}:00.0",'
            f'device="nvidia{number}",modelName="NVIDIA H100 80GB HBM3",Hostname="{host}"'
        )
        figures = {
            "FB_USED": used,
            "FB_FREE": total_mib - 600 - used,
            "FB_RESERVED": 600,
            "GPU_UTIL": 97,
            "GPU_TEMP": 61,
            "POWER_USAGE": 640.5,
            "MEM_COPY_UTIL": 41,
            "SM_CLOCK": 1755,
            "MEM_CLOCK": 2619,
            "XID_ERRORS": 0,
        }
        lines += [f"DCGM_FI_DEV_{name}{{{labels}}} {value}" for name, value in figures.items()]
    return "\n".join(lines) + "\n"


@contextmanager
def exporting(text: Callable[[], str]) -> Iterator[int]:
    """Serve a text as metrics while the block runs; gives the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def scraping(
    folder: Path,
    targets: Mapping[str, str],
    *,
    rules: Path | None = None,
    passwords: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Run Prometheus on targets by job while the block runs; gives its address.

    Args:
        folder: For its files.
        targets: `host:port` by the name of a job.
        rules: Alert rules to evaluate.
        passwords: `user:password` by the name of a job.
    """
    _write_config(folder, targets, rules, passwords or {})
    url = f"http://127.0.0.1:{find_free_port()}"
    command = [
        require("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--log.level=warn",
    ]
    log = (folder / "prometheus.log").open("wb")
    with log, subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: is_ready(url), what="Prometheus to be ready")
            yield url
        finally:
            process.kill()


def _write_config(
    folder: Path, targets: Mapping[str, str], rules: Path | None, passwords: Mapping[str, str]
) -> None:
    config = {
        "global": {"scrape_interval": f"{SCRAPE_S * 1000:.0f}ms", "evaluation_interval": "250ms"},
        "rule_files": [] if rules is None else [str(rules)],
        "scrape_configs": [
            {
                "job_name": name,
                "scrape_timeout": "250ms",
                "static_configs": [{"targets": [target]}],
                **_authorize(passwords.get(name)),
            }
            for name, target in targets.items()
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML


def _authorize(pair: str | None) -> dict[str, dict[str, str]]:
    if pair is None:
        return {}
    user, _, password = pair.partition(":")
    return {"basic_auth": {"username": user, "password": password}}


def is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/-/ready", timeout=5) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except OSError:
        return False
