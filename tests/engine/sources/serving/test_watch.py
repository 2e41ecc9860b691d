"""Servers on a node are found by their processes or by name, read without waiting, and counted once."""

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from vramscope.engine.child_processes import module_command, own_environment
from vramscope.engine.errors import UsageError
from vramscope.engine.model import DeviceSample, MemoryReading, ProcessReading, ServerSample
from vramscope.engine.sources.serving.endpoint import MOST_BYTES
from vramscope.engine.sources.serving.recognition import (
    MOST_ANCESTORS,
    climb,
    find_rank,
    read_settings,
    recognize_command,
    recognize_process,
)
from vramscope.engine.sources.serving.watch import ServingWatch, open_watch, parse_server
from vramscope.engine.units import GIB
from vramscope.engine.workloads.serving.endpoint import Endpoint, SimulatedEndpoint
from vramscope.engine.workloads.serving.formats import Format
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

from ....waiting import wait_until

SIMULATOR = "vramscope.engine.workloads.serving"


def list_processes(*processes: ProcessReading) -> tuple[DeviceSample, ...]:
    return (DeviceSample("GPU-0", 0, memory=MemoryReading(80 * GIB, 72 * GIB), processes=processes),)


@pytest.fixture
def watches() -> Iterator[Callable[..., ServingWatch]]:
    with ExitStack() as stack:

        def make(*names: str, **options: float) -> ServingWatch:
            watch = ServingWatch([parse_server(name) for name in names], **options)  # type: ignore[arg-type]
            stack.callback(watch.close)
            return watch

        yield make


@pytest.fixture
def simulated() -> Iterator[SimulatedEndpoint]:
    endpoint = SimulatedEndpoint(SimulatedServer(ServerSetup()), "vllm", clock_s=lambda: 30.0)
    yield endpoint
    endpoint.close()


@contextmanager
def run_server(folder: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            module_command(SIMULATOR, *words, "--port", "0"), stdout=log, env=own_environment()
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def await_state(watch: ServingWatch, devices: tuple[DeviceSample, ...], state: str) -> ServerSample:
    found: list[ServerSample] = []

    def is_there() -> bool:
        servers, _ = watch.collect(devices)
        found[:] = servers
        return bool(servers) and servers[0].state == state

    wait_until(is_there, what=f"a server that is {state}")
    return found[0]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("/opt/venv/bin/python3 /opt/venv/bin/vllm serve Qwen/Qwen3-8B --port 8000", "vLLM"),
        ("python -m vllm.entrypoints.openai.api_server --model x", "vLLM"),
        ("VLLM::Worker_TP0", "vLLM"),
        ("VLLM::EngineCore", "vLLM"),
        ("python -m sglang.launch_server --model-path x", "SGLang"),
        ("sglang::scheduler_TP0_EP0", "SGLang"),
        ("/usr/local/bin/llama-server -m model.gguf", "llama.cpp"),
        ("text-generation-launcher --model-id x", "TGI"),
        ("/opt/conda/bin/python3 /opt/conda/bin/text-generation-server serve x", "TGI"),
        ("/usr/local/bin/ollama runner --model x", "Ollama"),
        ("python train.py --eval-with vllm", None),
        ("python rollout.py --backend sglang", None),
        ("./llama-server-bench", None),
        (None, None),
        ("", None),
    ],
)
def test_servers_are_known_by_their_command_line(command: str | None, kind: str | None) -> None:
    assert recognize_command(command) == kind


def test_titles_of_processes_name_their_rank() -> None:
    assert find_rank("VLLM::Worker_TP3") == "TP3"
    assert find_rank("VLLM::Worker_DP1_TP0_EP4") == "DP1_TP0"
    assert find_rank("sglang::scheduler_TP0") == "TP0"
    assert find_rank("VLLM::EngineCore") is None
    assert find_rank("python train.py") is None


def test_flags_of_a_command_line_are_read_in_both_spellings() -> None:
    settings = read_settings("vllm serve m --port=81 --gpu-memory-utilization 0.85 --max-num-seqs=64")
    assert settings == (81, 0.85, None, 64)
    assert read_settings("vllm serve m --max-model-len 32k --port") == (None, None, None, None)


def test_workers_without_a_name_are_known_by_their_parents(tmp_path: Path) -> None:
    with run_server(tmp_path, "vllm", "serve", "m") as process:
        child = ProcessReading(os.getpid(), command="python -c from multiprocessing.spawn import main")
        assert recognize_process(child) is None
        found = recognize_process(ProcessReading(process.pid, command="VLLM::Worker_TP0"))
        assert found is not None
        assert (found.kind, found.root_pid) == ("vLLM", process.pid)


def test_a_climb_ends_below_the_first_process_and_is_bounded(tmp_path: Path) -> None:
    for pid in range(2, 40):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a b) S {pid - 1} 0 0")
    assert list(climb(4, tmp_path)) == [4, 3, 2]
    assert list(climb(39, tmp_path)) == list(range(39, 39 - MOST_ANCESTORS - 1, -1))
    assert list(climb(50, tmp_path)) == [50], "a process that has gone has no parent to read"


def test_a_server_is_found_by_its_process_and_read(
    tmp_path: Path, watches: Callable[..., ServingWatch]
) -> None:
    with run_server(tmp_path, "vllm", "serve", "simulated-8b", "--max-num-seqs", "160") as process:
        watch = watches(read_interval_s=0.05)
        command = f"python {SIMULATOR} vllm serve simulated-8b --max-num-seqs 160"
        held = ProcessReading(process.pid, command=command, used_bytes=37 * GIB, started_s=5.0)
        devices = list_processes(held)
        server = await_state(watch, devices, "ok")
        wait_until(lambda: watch.collect(devices)[0][0].plan, what="the plan in the log")
        server = watch.collect(devices)[0][0]
    assert (server.kind, server.pid, server.model) == ("vLLM", process.pid, "simulated-8b")
    assert server.most_sequences == 160
    assert [(it.uuid, it.used_bytes) for it in server.devices] == [("GPU-0", 37 * GIB)]
    assert server.engines[0].pool_tokens == 9600 * 16
    assert server.plan_source == "log"
    assert server.plan[0].weights_bytes == 15 * GIB
    # All of it is gone with the process.
    assert watch.collect(list_processes()) == ((), ())


def test_ranks_on_several_devices_are_one_server(
    tmp_path: Path, watches: Callable[..., ServingWatch]
) -> None:
    with run_server(tmp_path, "vllm", "serve", "m") as process:
        watch = watches(read_interval_s=0.05)
        command = f"python {SIMULATOR} vllm serve m"
        held = ProcessReading(process.pid, command=command, used_bytes=GIB)
        devices = tuple(
            DeviceSample(f"GPU-{at}", at, memory=MemoryReading(80 * GIB, 72 * GIB), processes=(held,))
            for at in range(4)
        )
        server = await_state(watch, devices, "ok")
        servers, _ = watch.collect(devices)
    assert len(servers) == 1
    assert [it.uuid for it in server.devices] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


def test_a_named_server_is_read_without_a_process(
    simulated: SimulatedEndpoint, watches: Callable[..., ServingWatch]
) -> None:
    watch = watches(simulated.url, read_interval_s=0.05)
    server = await_state(watch, (), "ok")
    assert (server.kind, server.url, server.devices) == ("vLLM", simulated.url, ())
    simulated.sleep()
    assert await_state(watch, (), "asleep").engines[0].is_asleep


def find_url(log: Path) -> str:
    def is_there() -> bool:
        return "Simulated server on " in log.read_text()

    wait_until(is_there, what="the address in the log")
    return log.read_text().rpartition("Simulated server on ")[2].strip()


def test_the_process_behind_a_named_address_is_found_by_its_socket(
    tmp_path: Path, watches: Callable[..., ServingWatch]
) -> None:
    """Its command line says nothing of a server, as that of a script that starts one."""
    with run_server(tmp_path) as process:
        url = find_url(tmp_path / "server.log")
        watch = watches(url, read_interval_s=0.05)
        command = f"python {SIMULATOR}"
        others = ProcessReading(os.getpid(), command="python train.py", used_bytes=GIB, location="here")
        held = ProcessReading(process.pid, command=command, used_bytes=37 * GIB, location="here")
        devices = list_processes(others, held)
        wait_until(lambda: watch.collect(devices)[0][0].devices, what="the device of the server")
        (server,), notes = watch.collect(devices)
    assert (server.name, server.url, server.pid) == (url, url, process.pid)
    assert [(it.uuid, it.pids, it.used_bytes) for it in server.devices] == [
        ("GPU-0", (process.pid,), 37 * GIB)
    ]
    assert (server.unmeasured, notes) == (None, ())
    # It is named, so that it stays listed when it has ended.
    (server,), _ = watch.collect(list_processes(others))
    assert server.devices == ()


def test_what_a_named_server_holds_is_unmeasured_where_no_device_has_its_process(
    simulated: SimulatedEndpoint, watches: Callable[..., ServingWatch]
) -> None:
    watch = watches(simulated.url, read_interval_s=0.05)
    devices = list_processes(ProcessReading(1, command="python train.py", used_bytes=GIB, location="here"))
    server = await_state(watch, devices, "ok")
    assert server.unmeasured == "no process of a device here listens on its port"
    assert watch.collect(devices)[1] == ()


def test_a_server_on_another_host_says_so_in_one_note(
    simulated: SimulatedEndpoint, watches: Callable[..., ServingWatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As seen from a machine that is not called so."""
    monkeypatch.setattr("vramscope.engine.http_opener.LOOPBACK_NAMES", ())
    monkeypatch.setenv("no_proxy", "*")
    watch = watches(simulated.url, read_interval_s=0.05)
    server = await_state(watch, (), "ok")
    assert server.unmeasured == "on another host"
    (note,) = watch.collect(())[1]
    assert "on another host" in note
    assert "unmeasured" in note


def test_a_log_may_be_named_with_the_address(
    simulated: SimulatedEndpoint, tmp_path: Path, watches: Callable[..., ServingWatch]
) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(simulated.server.write_log())
    watch = watches(f"{simulated.url}={log}", read_interval_s=0.05)
    await_state(watch, (), "ok")
    wait_until(lambda: watch.collect(())[0][0].plan, what="the plan")
    assert watch.collect(())[0][0].longest == 8192


def test_a_node_without_servers_starts_no_thread_and_looks_at_a_process_once(
    watches: Callable[..., ServingWatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    monkeypatch.setattr(
        "vramscope.engine.sources.serving.watch.recognize_process", lambda process, _: looked.append(process)
    )
    watch = watches()
    before = threading.active_count()
    devices = list_processes(ProcessReading(4242, command="python train.py", started_s=1.0))
    same = list_processes(*(devices[0].processes or ()))
    for _ in range(5):
        assert watch.collect(devices) == ((), ())
        assert watch.collect(same) == ((), ())
    assert len(looked) == 1
    assert threading.active_count() == before


def _hang(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.settimeout(20)
    connection.recv(1000)  # ends when the client gives up


def _pour(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(2 * MOST_BYTES // 65536):
        connection.sendall(b"x" * 65536)


def _redirect(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/metrics\r\n\r\n")


def _drip(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    connection.settimeout(0.2)
    for _ in range(200):
        connection.sendall(b"x")
        try:
            if not connection.recv(1):
                return  # the client has given up
        except TimeoutError:
            continue


def _talk_nonsense(connection: socket.socket) -> None:
    connection.recv(65536)  # closed with a question unread, the answer may be lost to a reset
    connection.sendall(b"\x00\xff" * 50)


@contextmanager
def listen(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """Answer every connection in one way; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        behave(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


@pytest.mark.waits
@pytest.mark.parametrize(
    ("behave", "told"),
    [
        (_hang, "did not answer within 1 s"),
        (_drip, "did not send all of its answer within 2 s"),
        (_pour, "more than 4 MiB"),
        (_redirect, "points elsewhere"),
        (_talk_nonsense, "is not a web server"),
    ],
)
def test_a_hostile_endpoint_costs_nothing_but_itself(
    behave: Callable[[socket.socket], None],
    told: str,
    simulated: SimulatedEndpoint,
    watches: Callable[..., ServingWatch],
) -> None:
    with listen(behave) as url:
        watch = watches(url, simulated.url, read_interval_s=0.05)

        def is_settled() -> bool:
            servers, notes = watch.collect(())
            return servers[1].state == "ok" and any(told in note for note in notes)

        wait_until(is_settled, what=f"a note with {told!r}")
        servers, notes = watch.collect(())
    assert servers[0].state == "starting"
    assert len(notes) == 1
    assert url in notes[0]


def test_html_is_no_server(watches: Callable[..., ServingWatch]) -> None:
    endpoint = Endpoint(lambda _: ("text/html", "<html>\nvllm is nice</html>"))
    try:
        watch = watches(endpoint.url, read_interval_s=0.05)
        wait_until(lambda: watch.collect(())[1], what="a note")
        (note,) = watch.collect(())[1]
    finally:
        endpoint.close()
    assert "not as vLLM, SGLang, TensorRT-LLM, llama.cpp, TGI or Ollama do" in note


@pytest.mark.parametrize(
    "name", ["ftp://x", "127.0.0.1:8000", "http://", "http://u:p@h:1", "http://h:99999", ""]
)
def test_what_is_no_address_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--serving"):
        parse_server(name)


def test_none_looks_for_no_server() -> None:
    assert open_watch(["none"]) is None
    assert parse_server("http://h:1/metrics/") == ("http://h:1", None)


@pytest.mark.parametrize("kind", ["triton", "trtllm"])
def test_tensorrt_llm_is_recognized_and_read_over_http(
    kind: Format, watches: Callable[..., ServingWatch]
) -> None:
    endpoint = SimulatedEndpoint(SimulatedServer(ServerSetup()), kind, clock_s=lambda: 30.0)
    try:
        server = await_state(watches(endpoint.url, read_interval_s=0.05), (), "ok")
    finally:
        endpoint.close()
    assert server.kind == "TensorRT-LLM"
    assert server.engines[0].running == len(endpoint.server.engines[0].running)
