"""No port is opened but by what a person typed: `--listen`, an exporter, a master that gathers."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from tests.engine.cluster.remote import free_port
from tests.pretend_nvml.driver import PretendDriver
from tests.structure.tree import PRODUCT_FOLDERS, ROOT, list_nodes, python_files

from .running import Program, run, start_cold
from .test_stream import agent

OVER_THE_NETWORK = {
    "engine/cluster/gate.py": "`--listen`, `distributed --role master`, `DistributedMemoryMonitor`",
    "exporters/prometheus/server.py": "`exporter --prometheus`, `agent --prometheus`",
    "engine/workloads/serving/endpoint.py": "the simulated server of `demo` and of tests, on loopback",
}
ON_THIS_MACHINE = {
    "engine/agent/hub_sockets.py": "sockets in the private runtime folder",
    "engine/ranks/listener.py": "the same, for probes",
    "vramscope/cli/doctor.py": "a socket in a new private folder",
}


LISTENING = ("bind", "bind_to_random_port", "listen", "create_server", "start_server")


def test_a_port_is_opened_in_these_places_only() -> None:
    found = set()
    for path in python_files(PRODUCT_FOLDERS):
        for node in list_nodes(path):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                is_socket = called in (
                    "bind",
                    "bind_to_random_port",
                    "listen",
                    "create_server",
                    "start_server",
                )
                is_of_arguments = "signature" in ast.unparse(node.func)
                if (is_socket and not is_of_arguments) or called.endswith(("HTTPServer", "TCPServer")):
                    found.add(str(path.relative_to(ROOT)))
    assert found == {*OVER_THE_NETWORK, *ON_THIS_MACHINE}


def test_an_agent_listens_on_no_port_until_one_is_typed(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device()
    with agent(start=start_cold) as process:
        assert run("--once").code == 0
        assert run("doctor").stderr == ""
        assert list_ports(process) == set()
    port = free_port()
    with agent("--listen", f"127.0.0.1:{port}", start=start_cold) as process:
        assert list_ports(process) == {port}


def list_ports(process: Program) -> set[int]:
    """Return the ports of TCP and UDP on which a process or a child of it receives."""
    sockets = {
        os.readlink(entry)  # noqa: PTH115 - not a path
        for pid in (process.pid, *list_children(process.pid))
        for entry in Path(f"/proc/{pid}/fd").iterdir()
        if entry.is_symlink()
    }
    ports = set()
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            # `0A`: a TCP socket that listens; `07`: one of UDP without a peer. `include/net/tcp_states.h`
            if fields[3] in ("0A", "07") and f"socket:[{fields[9]}]" in sockets:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def list_children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from list_children(child)
