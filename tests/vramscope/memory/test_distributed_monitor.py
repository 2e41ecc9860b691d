"""`DistributedMemoryMonitor` in programs: nodes on real sockets, a master that comes late, strangers."""

import os
import pickle
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zmq

import vramscope
from vramscope.engine.errors import UsageError

from ...exporters.reports.shapes import check_shape
from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until

GIB = 1 << 30


@pytest.fixture
def port() -> int:
    """A port of loopback on which nobody listens."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    return number


@pytest.fixture(autouse=True)
def devices(pretend_nvml: PretendDriver) -> None:
    pretend_nvml.add_device(used_bytes=60 * GIB)
    pretend_nvml.add_device(used_bytes=20 * GIB)


def make(node_id: str, role: str, port: int, **settings: Any) -> vramscope.DistributedMemoryMonitor:
    return vramscope.DistributedMemoryMonitor(
        node_id, role, "localhost", port, sampling_interval=0.05, **settings
    )


def wait_for_nodes(master: vramscope.DistributedMemoryMonitor, *nodes: str) -> None:
    """Return once the master has heard of just these."""
    wait_until(lambda: set(status(master)["active_node_list"]) == set(nodes), 60.0, f"{nodes}")


def status(monitor: vramscope.DistributedMemoryMonitor) -> dict[str, Any]:
    return monitor.get_cluster_status()


def test_a_master_gathers_what_workers_tell(port: int, tmp_path: Path) -> None:
    with make("m", "master", port) as master, make("w", "worker", port) as worker:
        wait_for_nodes(master, "m", "w")
        wait_until(lambda: status(worker)["is_connected"], 60.0, "an answer")
        assert status(worker)["master_node"] == "m"
        report: Any = master.generate_distributed_report(tmp_path / "distributed.json")
        check_shape("distributed", report)
        check_shape("distributed", worker.generate_distributed_report())
        found = report["cluster_info"]
        assert (found["total_nodes"], found["total_gpus"]) == (2, 4)
        assert (found["total_memory_usage_gb"], found["memory_balance_ratio"]) == (160.0, 0.5)
        assert report["nodes"]["w"]["devices"]["1"]["usage_ratio"] == 0.25
        assert report["nodes"]["w"]["node_summary"]["total_memory_gb"] == 160.0
        own: Any = worker.get_memory_distribution()
        assert (own["node_id"], own["devices"]["0"]["used_gb"]) == ("w", 60.0)
        worker.stop_monitoring()
        wait_for_nodes(master, "m")
        assert status(master)["left_node_list"] == ["w"], "it said that it leaves: no error"


def test_a_master_that_comes_late_is_found(port: int) -> None:
    with make("w", "worker", port) as worker:
        wait_until(lambda: worker.devices, 60.0, "a device")
        assert not status(worker)["is_connected"]
        report: Any = worker.generate_distributed_report()
        assert report["memory_analysis"]["sync_status"] == "unknown"
        with make("m", "master", port) as master:
            wait_for_nodes(master, "m", "w")
            wait_until(lambda: status(worker)["is_connected"], 60.0, "an answer")
        # The newest answer is of this moment still, and the master has ended.
        wait_until(lambda: not status(worker)["is_connected"], 20.0, "the end of the master")
        assert "nobody listens" in status(worker)["trouble"]
        said: Any = worker.generate_distributed_report()
        assert "the master is not connected" in said["recommendations"][-1]
        assert said["memory_analysis"]["sync_status"] == "communication_error"


def test_balance_is_judged_only_where_every_node_reports(port: int) -> None:
    with make("m", "master", port) as master:
        wait_for_nodes(master, "m")
        alone: Any = master.generate_distributed_report()
        assert alone["recommendations"][-1] == "1 of 1 node reports: the balance between nodes is unknown"
        with make("w", "worker", port) as worker:
            wait_for_nodes(master, "m", "w")
            both: Any = master.generate_distributed_report()
            assert not [it for it in both["recommendations"] if "judged" in it]
            wait_until(lambda: status(worker)["is_connected"], 60.0, "an answer")
            seen: Any = worker.generate_distributed_report()
            assert "This report covers only this node; that of m judges" in seen["recommendations"][-1]
            with make("w", "worker", port):
                wait_until(lambda: status(master)["duplicate_reports"] > 0, 60.0, "a refusal")
                refused: Any = master.generate_distributed_report()
                assert "the balance of all nodes is unknown" in refused["recommendations"][-1]
        wait_for_nodes(master, "m")
        left: Any = master.generate_distributed_report()
        assert left["recommendations"][-1].startswith("1 of 2 nodes reports, with ")
        assert "well balanced" not in str(left)


def test_strangers_are_counted_and_end_nothing(port: int) -> None:
    with make("m", "master", port, insecure=True) as master:
        wait_for_nodes(master, "m")
        with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
            stranger.setsockopt(zmq.LINGER, 0)
            stranger.connect(f"tcp://127.0.0.1:{port}")
            stranger.send(pickle.dumps({"type": "register", "node_id": "evil"}))
            stranger.send(b"\xc1" * 1000)
            stranger.send_multipart([b"one", b"two", b"three"])
            wait_until(lambda: status(master)["rejected_messages"] == 3, 60.0, "three refusals")
        with make("w", "worker", port):
            wait_for_nodes(master, "m", "w")


def test_what_cannot_work_is_refused_in_words(port: int) -> None:
    with make("m", "master", port):
        other = make("n", "master", port)
        with pytest.raises(UsageError, match=rf"port {port} .* is in use by process {os.getpid()}"):
            other.start_monitoring()
        assert not other.is_monitoring
    far = vramscope.DistributedMemoryMonitor("w", "worker", "192.0.2.7", port)
    with pytest.raises(UsageError, match=r"need keys.*`vramscope keys new`"):
        far.start_monitoring()
    open_to_all = vramscope.DistributedMemoryMonitor("m", "master", "0.0.0.0", port)  # noqa: S104 - refused
    with pytest.raises(UsageError, match=r"need keys.*`vramscope keys new`"):
        open_to_all.start_monitoring()
    with pytest.raises(UsageError, match="role 'boss': expected master, worker, standalone"):
        make("x", "boss", port)
    with pytest.raises(UsageError, match="sync_timeout"):
        make("x", "worker", port, heartbeat_interval=40.0)


def test_a_node_alone_watches_itself(port: int) -> None:
    with make("alone", "standalone", port) as alone:
        wait_until(lambda: alone.devices, 60.0, "a device")
        wait_until(lambda: "error" not in alone.get_memory_distribution(), 60.0, "a sample")
        report: Any = alone.generate_distributed_report()
        check_shape("distributed", report)
        assert report["memory_analysis"]["memory_balance_ratio"] == 0.5
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", port))  # nobody listens
