"""Servers of models from their address to the table, the JSON and a recording."""

import csv
import io
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from vramscope.engine.child_processes import module_command, own_environment
from vramscope.engine.recording import Recording
from vramscope.engine.workloads.serving.__main__ import make_story
from vramscope.engine.workloads.serving.endpoint import SimulatedEndpoint
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

from ...components import missing
from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until
from .running import GIB, call, run
from .test_once import SCHEMA


@pytest.fixture
def server() -> Iterator[SimulatedEndpoint]:
    made = SimulatedEndpoint(SimulatedServer(ServerSetup()), "sglang", clock_s=lambda: 30.0)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def device(pretend_driver: PretendDriver, pretend_environment: dict[str, str]) -> None:
    pretend_driver.add_device(used_bytes=72 * GIB)


def test_once_reads_a_named_server(server: SimulatedEndpoint) -> None:
    outcome = run("--once", "--json", "--serving", server.url)
    assert (outcome.code, outcome.stderr) == (0, "")
    (status,) = outcome.lines
    jsonschema.validate(status, SCHEMA)
    (told,) = status["servers"]
    assert (told["kind"], told["url"], told["state"]) == ("SGLang", server.url, "ok")
    assert told["engines"][0]["running"] == len(server.server.engines[0].running)
    assert told["plan"][0]["weights_bytes"] == 15 * GIB
    table = run("--once", "--serving", server.url, COLUMNS="200")
    assert "SGLang simulated-8b" in table.stdout
    assert "running" in table.stdout


def test_a_server_that_is_not_there_is_a_note() -> None:
    outcome = run("--once", "--json", "--serving", "http://127.0.0.1:9")
    (status,) = outcome.lines
    assert outcome.code == 0
    assert status["devices"]
    assert any("http://127.0.0.1:9 cannot be reached" in note for note in status["notes"])


def test_what_is_no_address_is_a_usage_error() -> None:
    outcome = run("--once", "--serving", "nonsense")
    assert outcome.code == 2
    assert "--serving nonsense: expected the address of a server" in outcome.stderr


@pytest.mark.waits
def test_a_recording_keeps_servers(server: SimulatedEndpoint, tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    outcome = run("record", "--duration", "3s", "--interval", "0.5", "--serving", server.url, "-o", str(path))
    assert outcome.code == 0, outcome.stderr
    with Recording(path) as recording:
        told = [sample.servers for sample in recording.samples()]
    pool_tokens = server.server.setup.pool_blocks * 16
    assert told[-1][0].engines[0].pool_tokens == pool_tokens
    exported = run("export", str(path), "--jsonl")
    assert exported.lines[-1]["servers"][0]["engines"][0]["pool_tokens"] == pool_tokens
    _check_exports(path, server)


def _check_exports(path: Path, server: SimulatedEndpoint) -> None:
    outcome = call("export", str(path), "--serving", "--csv")
    assert outcome.code == 0, outcome.stderr
    rows = list(csv.DictReader(io.StringIO(outcome.stdout)))
    engine = server.server.engines[0]
    ready = [row for row in rows if row["state"] == "ok"]
    assert ready
    assert {row["server"] for row in rows} == {server.url}
    assert {row["running"] for row in ready} == {str(len(engine.running))}
    # The server stands still, so that every reading says the same; times rise, none is there twice.
    times = [float(row["time_s"]) for row in rows]
    assert times == sorted(set(times))
    # Tokens in use are a share of the pool; what SGLang counts is exact.
    assert {row["used_tokens"] for row in ready} == {str(engine.used_blocks * 16)}
    # Nobody knows which process this is, and none of its bytes.
    assert {row["server_device_bytes"] for row in rows} == {""}
    try:
        from pyarrow import parquet
    except ImportError:
        missing("pyarrow is not installed (pip install 'vramscope[parquet]')")
    table = path.with_suffix(".parquet")
    outcome = call("export", str(path), "--serving", "--parquet", "-o", str(table))
    assert outcome.code == 0, outcome.stderr
    columns = parquet.read_table(table).to_pydict()
    assert columns["time_s"] == times
    assert columns["generation_tokens"][-1] == engine.counters.generation_tokens
    assert columns["server_device_bytes"] == [None] * len(times)


def test_a_recording_of_before_has_none() -> None:
    with Recording(Path("vramscope/example.vscope")) as recording:
        assert {sample.servers for sample in recording.samples()} == {()}
    outcome = call("export", "vramscope/example.vscope", "--serving", "--csv")
    assert outcome.code == 2
    assert "no server of models in it" in outcome.stderr


def test_servers_are_exported_as_tables_only() -> None:
    outcome = call("export", "vramscope/example.vscope", "--serving", "--prometheus")
    assert outcome.code == 2
    assert "--serving needs --csv or --parquet" in outcome.stderr


@pytest.mark.waits
def test_a_server_is_found_by_the_process_on_the_device(
    pretend_driver: PretendDriver, tmp_path: Path
) -> None:
    """Driver, process, port, metrics and start-up log: nothing is named."""
    setup = make_story()
    used = SimulatedServer(setup).used_bytes
    words = ("vllm", "serve", "simulated-8b", "--max-num-seqs", "160", "--port", "0")
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            module_command("vramscope.engine.workloads.serving", *words), stdout=log, env=own_environment()
        )
    try:
        wait_until(
            lambda: b"Simulated server on" in (tmp_path / "server.log").read_bytes(), what="the server"
        )
        device = pretend_driver.devices[0]
        device.set_memory(used, setup.plan.total_bytes)
        device.set_processes([(process.pid, used, "compute")])
        outcome = run("--json", "--duration", "4s", "--interval", "0.5")
    finally:
        process.kill()
        process.wait()
    servers = [line["servers"][0] for line in outcome.lines if line["servers"]]
    told = next(it for it in servers if it["plan"])
    assert (told["kind"], told["pid"], told["model"]) == ("vLLM", process.pid, "simulated-8b")
    assert told["devices"] == [
        {
            "uuid": outcome.lines[0]["devices"][0]["uuid"],
            "pids": [process.pid],
            "used_bytes": used,
            "rank": None,
        }
    ]
    assert told["plan"][0]["weights_bytes"] == setup.plan.weights_bytes
    assert all(finding["kind"] != "pressure" for line in outcome.lines for finding in line["findings"])
