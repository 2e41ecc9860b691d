"""`vramscope distributed`: a pair of processes with keys, and how runs without the other end."""

import json
import signal
import socket
from contextlib import closing
from pathlib import Path

import pytest

from vramscope.cli.application import run
from vramscope.engine.cluster.keys import keys_folder, make_key_pair, save_key_pair

from ....engine.cluster.remote import free_port
from ....pretend_nvml.driver import PretendDriver
from ..running import GIB, start
from .running import read_report


def test_a_worker_reports_to_a_master_with_keys(
    tmp_path: Path, pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=60 * GIB)
    save_key_pair(make_key_pair(), keys_folder())
    port, gathered, told = str(free_port()), tmp_path / "m.json", tmp_path / "w.json"
    common = ("distributed", "--port", port, "--interval", "0.2")
    worker = start(*common, "--role", "worker", "--name", "w", "--duration", "10m", "--output", str(told))
    words = (
        "--role",
        "master",
        "--name",
        "m",
        "--node-count",
        "2",
        "--duration",
        "1m",
        "--output",
        str(gathered),
    )
    master = start(*common, *words)
    try:
        stderr = master.stderr
        assert stderr is not None
        said = [stderr.readline() for _ in range(3)]
        worker.send_signal(signal.SIGINT)
        _, complaints = worker.communicate(timeout=60)
        said.append(stderr.readline())
        master.send_signal(signal.SIGINT)
        printed, _ = master.communicate(timeout=60)
    finally:
        worker.kill()
        master.kill()
    assert "for your key" in said[0]
    assert [line.split(maxsplit=2)[2].strip() for line in said[1:]] == [
        "w reports 1 device",
        "all 2 nodes report",
        "w ended its watch",
    ]
    assert (worker.returncode, master.returncode) == (130, 130), complaints
    info = read_report(told, "distributed")["cluster_info"]
    assert (info["role"], info["master_node"], info["is_connected"]) == ("worker", "m", True)
    info = read_report(gathered, "distributed")["cluster_info"]
    assert (info["total_nodes"], info["left_node_list"], info["total_gpus"]) == (2, ["w"], 2)
    assert "w: left, last report" in printed


def test_what_the_other_end_lacks_is_7(
    tmp_path: Path, pretend_nvml: PretendDriver, capfd: pytest.CaptureFixture[str]
) -> None:
    pretend_nvml.add_device(used_bytes=60 * GIB)
    common = ("distributed", "--interval", "0.1", "--duration", "0.2", "--port", str(free_port()))
    assert run([*common, "--role", "worker"]) == 7
    printed, said = capfd.readouterr()
    assert json.loads(printed)["cluster_info"]["master_node"] is None, "the report is there all the same"
    assert "the master accepted no report: nobody listens at localhost" in said
    assert run([*common, "--role", "master", "--nodes", "2"]) == 7
    printed, said = capfd.readouterr()
    assert "1 of 2 nodes reported" in said
    assert json.loads(printed)["recommendations"] == [
        "1 of 2 nodes reports: the balance between nodes is unknown"
    ]


def test_a_port_that_is_taken_is_named_with_its_holder(
    pretend_nvml: PretendDriver, capfd: pytest.CaptureFixture[str]
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = str(other.getsockname()[1])
        assert run(["distributed", "--role", "master", "--port", port]) == 2
    assert f"port {port} of 127.0.0.1 is in use by process" in capfd.readouterr().err
    assert run(["distributed", "--role", "worker", "--nodes", "3"]) == 2
