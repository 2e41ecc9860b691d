"""Whose a process is, by name: from a real gRPC server that plays the kubelet, and from files of a root."""

import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.clocks import HandClock
from tests.engine.sources.machine import FakeMachine
from tests.engine.sources.pretend_kubelet import (
    KUBELET,
    Given,
    make_answer,
    make_field,
    run_kubelet,
    write_checkpoint,
    write_links,
)
from tests.waiting import wait_until
from vramscope.engine.errors import SourceUnavailableError
from vramscope.engine.model import (
    DeviceAllocation,
    DeviceSample,
    MpsRole,
    ProcessOwner,
    ProcessReading,
)
from vramscope.engine.sources.owners import containers
from vramscope.engine.sources.owners.containers import (
    find_container_names,
    parse_containers,
    read_pod_folders,
    read_pod_links,
)
from vramscope.engine.sources.owners.kubelet import (
    CHECKPOINT,
    ask_kubelet,
    parse_answer,
    parse_checkpoint,
    read_checkpoint,
)
from vramscope.engine.sources.owners.names import PodName, join_by_ids
from vramscope.engine.sources.owners.watch import OwnersWatch

UIDS = [f"8a7b9c10-0000-4000-8000-{number:012d}" for number in range(4)]
IDS = [f"{number:x}f4e0123456789ab"[:12] + "0123456789abcdef" * 3 + "0123" for number in range(1, 5)]
LLAMA = Given("ml", "llama-0", "trainer", ("GPU-a", "GPU-b"), UIDS[0])
SHARED = [
    Given("ml", f"notebook-{number}", "jupyter", (f"GPU-c::{number}",), UIDS[1 + number]) for number in (0, 1)
]
SLICE = Given("ml", "small-0", "main", ("MIG-1",), UIDS[3], "nvidia.com/mig-1g.10gb")


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder with a short path, as the socket of a kubelet needs it."""
    path = Path(tempfile.mkdtemp(prefix="vs-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def make_device(
    uuid: str, *processes: ProcessReading, parent_uuid: str | None = None, pci_address: str | None = None
) -> DeviceSample:
    return DeviceSample(uuid, 0, processes=processes, parent_uuid=parent_uuid, pci_address=pci_address)


def in_pod(pid: int, number: int, *, has_container: bool = True) -> ProcessReading:
    container = IDS[number][:12] if has_container else None
    return ProcessReading(pid, container=container, location="container", pod=UIDS[number])


def collect(watch: OwnersWatch, *devices: DeviceSample) -> tuple[tuple[DeviceSample, ...], tuple[str, ...]]:
    """Return devices as they are once their names were looked up, without waiting for the thread."""
    watch._start = lambda: None  # type: ignore[method-assign]
    watch.collect(devices)
    watch.look_once()
    return watch.collect(devices)


def owners_of(devices: tuple[DeviceSample, ...]) -> list[ProcessOwner | None]:
    return [process.owner for device in devices for process in device.processes or ()]


def test_the_kubelet_says_who_was_given_which_devices(root: Path) -> None:
    with run_kubelet(root, make_answer([LLAMA, *SHARED, SLICE])) as calls:
        listed = ask_kubelet(root / KUBELET)
    assert calls == ["b''"]
    assert [(it.namespace, it.pod, it.container, it.ids) for it in listed] == [
        (it.namespace, it.pod, it.container, it.ids) for it in (LLAMA, *SHARED, SLICE)
    ]
    assert listed[1].devices == {"GPU-c": 1}
    assert listed[3].resource == "nvidia.com/mig-1g.10gb"


def test_socket_and_file_together_name_pods_that_share_a_gpu(root: Path) -> None:
    write_checkpoint(root, [LLAMA, *SHARED, SLICE])
    with run_kubelet(root, make_answer([LLAMA, *SHARED, SLICE])):
        devices, notes = collect(
            OwnersWatch(root),
            make_device("GPU-a", in_pod(1, 0)),
            make_device("GPU-c", in_pod(2, 1), in_pod(3, 2)),
            make_device("MIG-1", in_pod(4, 3), parent_uuid="GPU-d"),
            make_device("GPU-e"),
        )
    assert owners_of(devices) == [
        ProcessOwner("ml", "llama-0", "trainer"),
        ProcessOwner("ml", "notebook-0", "jupyter"),
        ProcessOwner("ml", "notebook-1", "jupyter"),
        ProcessOwner("ml", "small-0", "main"),
    ]
    assert devices[1].allocations == tuple(
        DeviceAllocation("ml", f"notebook-{number}", "jupyter", "nvidia.com/gpu", 1) for number in (0, 1)
    )
    assert devices[2].allocations == (DeviceAllocation("ml", "small-0", "main", "nvidia.com/mig-1g.10gb"),)
    assert devices[3].allocations == ()
    assert notes == ()


def test_by_the_socket_alone_a_pod_is_named_only_where_no_other_fits(root: Path) -> None:
    with run_kubelet(root, make_answer([LLAMA, *SHARED])):
        devices, notes = collect(
            OwnersWatch(root),
            make_device("GPU-a", in_pod(1, 0)),
            make_device("GPU-b", in_pod(1, 0)),
            make_device("GPU-c", in_pod(2, 1), in_pod(3, 2)),
        )
    llama = ProcessOwner("ml", "llama-0", "trainer")
    assert owners_of(devices) == [llama, llama, None, None]
    assert devices[0].allocations == (DeviceAllocation("ml", "llama-0", "trainer", "nvidia.com/gpu"),)
    assert notes[0].startswith("some pods are shown by their UIDs")
    assert "kubelet_internal_checkpoint" in notes[0]


def test_a_monitor_on_all_gpus_is_not_taken_for_the_pod_of_one(root: Path) -> None:
    """A process with rights of its own may use a device that it was not given."""
    with run_kubelet(root, make_answer([Given("ml", "llama-0", "trainer", ("GPU-a",))])):
        both = (make_device("GPU-a", in_pod(1, 0), in_pod(9, 3)), make_device("GPU-b", in_pod(9, 3)))
        devices, _ = collect(OwnersWatch(root), *both)
        assert owners_of(devices) == [ProcessOwner("ml", "llama-0", "trainer"), None, None]
        alone, _ = collect(OwnersWatch(root), make_device("GPU-a", in_pod(1, 0), in_pod(9, 3)))
    assert owners_of(alone) == [None, None]


def test_devices_of_amd_are_given_by_their_addresses(root: Path) -> None:
    amd = Given("ml", "llama-0", "trainer", ("0000:c1:00.0",), resource="amd.com/gpu")
    with run_kubelet(root, make_answer([amd])):
        devices, _ = collect(
            OwnersWatch(root), make_device("amdgpu-1", in_pod(1, 0), pci_address="0000:c1:00.0")
        )
    assert owners_of(devices) == [ProcessOwner("ml", "llama-0", "trainer")]
    assert devices[0].allocations == (DeviceAllocation("ml", "llama-0", "trainer", "amd.com/gpu"),)


def test_links_of_logs_name_containers_without_any_right(root: Path) -> None:
    write_links(root, "ml", "llama-0", "trainer", IDS[0], UIDS[0])
    write_links(root, "kube-system", "static-node1", "main", IDS[1], "0123456789abcdef" * 2)
    (root / "var/log/containers/not-a-link").touch()
    (root / "var/log/pods/nothing").mkdir()
    devices, notes = collect(
        OwnersWatch(root),
        make_device("GPU-a", in_pod(1, 0), in_pod(2, 0, has_container=False)),
        make_device("GPU-b", replace(in_pod(3, 1), pod="0123456789abcdef" * 2)),
    )
    assert owners_of(devices) == [
        ProcessOwner("ml", "llama-0", "trainer"),
        ProcessOwner("ml", "llama-0"),
        ProcessOwner("kube-system", "static-node1", "main"),
    ]
    assert notes == ()
    assert devices[0].allocations is None, "no kubelet said anything"


def test_a_link_that_was_cut_still_names_its_container(root: Path) -> None:
    pod = "p" * 200
    name = f"{pod}_ml_trainer-{IDS[0]}"[:251]
    assert len(name) == 251
    links = root / "var/log/containers"
    links.mkdir(parents=True)
    (links / f"{name}.log").touch()
    (links / f"q_ml_trainer-{IDS[1][:40]}.log").touch()
    assert read_pod_links(root) == {IDS[0][:12]: PodName("ml", pod, "trainer")}


def test_a_pod_without_a_name_is_explained_once(root: Path) -> None:
    device = make_device("GPU-a", in_pod(1, 0))
    watch = OwnersWatch(root)
    watch._start = lambda: None  # type: ignore[method-assign]
    assert watch.collect((device,)) == ((device,), ()), "nothing was looked up yet"
    watch.look_once()
    devices, notes = watch.collect((device,))
    assert devices[0] is device
    assert notes == (
        "pods are shown by their UIDs: /var/log/containers does not name them, and the kubelet's folder is "
        "not visible here",
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_without_a_right_to_the_socket_the_reason_says_what_would_help(root: Path) -> None:
    folder = root / KUBELET / "pod-resources"
    folder.mkdir(parents=True)
    folder.chmod(0)
    try:
        _, notes = collect(OwnersWatch(root), make_device("GPU-a", in_pod(1, 0)))
    finally:
        folder.chmod(0o700)
    assert notes[0].endswith("belongs to root: run the agent as root, or mount the socket for it")


def test_a_socket_that_nobody_may_write_to_is_explained(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / KUBELET / "pod-resources"
    folder.mkdir(parents=True)
    (folder / "kubelet.sock").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(SourceUnavailableError, match="belongs to root"):
        ask_kubelet(root / KUBELET)


def test_without_grpcio_the_reason_names_the_extra(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / KUBELET / "pod-resources"
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "kubelet.sock"))
        monkeypatch.setitem(sys.modules, "grpc", None)
        _, notes = collect(OwnersWatch(root), make_device("GPU-a", in_pod(1, 0)))
    assert "pip install 'vramscope[kubernetes]'" in notes[0]


@pytest.mark.parametrize(
    ("answer", "service", "said"),
    [
        (b"\x0a\xff", "v1.PodResourcesLister", "gave an answer that is not understood"),
        (b"", "v1alpha1.PodResourcesLister", "older than Kubernetes 1.20"),
    ],
)
def test_an_answer_that_is_none_has_a_reason(root: Path, answer: bytes, service: str, said: str) -> None:
    with run_kubelet(root, answer, service=service):
        _, notes = collect(OwnersWatch(root), make_device("GPU-a", in_pod(1, 0)))
    assert said in notes[0]
    assert str(root) in notes[0]


def test_a_kubelet_that_does_not_answer_is_left_and_asked_again_later(root: Path) -> None:
    clock = HandClock()
    asked: list[float] = []

    def ask(folder: Path) -> list[object]:
        asked.append(clock.monotonic_s())
        return ask_kubelet(folder, 0.05)  # type: ignore[return-value]

    with run_kubelet(root, None):
        watch = OwnersWatch(root, clock=clock, ask=ask)  # type: ignore[arg-type]
        begun_s = clock.monotonic_s()
        for number in range(40):
            _, notes = collect(watch, make_device("GPU-a", in_pod(number, number % 4)))
            clock.now_s += 10.0
    assert "did not answer within" in notes[0]
    assert [round(it - begun_s) for it in asked] == [0, 60, 180]


def test_a_kubelet_that_is_not_there_yet_is_found_and_what_is_old_is_not_shown(root: Path) -> None:
    clock = HandClock()
    (root / KUBELET).mkdir(parents=True)
    watch = OwnersWatch(root, clock=clock)
    device = make_device("GPU-a", in_pod(1, 0))
    devices, notes = collect(watch, device)
    assert devices[0].allocations is None
    assert "is not there" in notes[0]
    clock.now_s += 61.0
    with run_kubelet(root, make_answer([LLAMA])):
        devices, notes = collect(watch, device)
    assert devices[0].allocations is not None
    assert notes == ()
    clock.now_s += 61.0
    devices, _ = collect(watch, device)
    assert devices[0].allocations is None, "nobody says so any more"


def test_while_the_kubelet_hangs_links_name_a_process_and_no_sample_waits(root: Path) -> None:
    begun, proceed = threading.Event(), threading.Event()

    def ask(folder: Path) -> list[object]:
        begun.set()
        proceed.wait(30)
        return []

    (root / KUBELET).mkdir(parents=True)
    write_links(root, "ml", "llama-0", "trainer", IDS[0], UIDS[0])
    watch = OwnersWatch(root, ask=ask)  # type: ignore[arg-type]
    device = make_device("GPU-a", in_pod(1, 0))
    try:
        watch.collect((device,))
        assert begun.wait(30)
        [named], _ = watch.collect((device,))
        assert owners_of((named,)) == [ProcessOwner("ml", "llama-0", "trainer")]
        assert named.allocations is None
        proceed.set()
        wait_until(lambda: watch.collect((device,))[0][0].allocations == (), what="the kubelet's answer")
    finally:
        proceed.set()
        watch.close()


def test_a_node_without_owners_starts_no_thread_and_keeps_its_devices(root: Path) -> None:
    before = threading.active_count()
    watch = OwnersWatch(root)
    devices = (make_device("GPU-a", ProcessReading(1, command="python")), DeviceSample("GPU-b", 1))
    assert watch.collect(devices) == (devices, ())
    assert watch.collect(devices)[0][0] is devices[0]
    assert threading.active_count() == before


def test_a_process_list_that_stays_is_not_named_again(root: Path) -> None:
    write_links(root, "ml", "llama-0", "trainer", IDS[0], UIDS[0])
    watch = OwnersWatch(root)
    first, _ = collect(watch, make_device("GPU-a", in_pod(1, 0)))
    device = make_device("GPU-a", in_pod(1, 0))
    one, _ = watch.collect((device,))
    two, _ = watch.collect((device,))
    assert one[0].processes is two[0].processes
    assert one == first


def test_two_pods_with_the_same_ids_in_the_file_are_not_named_by_it() -> None:
    listed = parse_answer(make_answer([LLAMA]))
    kept = [replace_uid for uid in UIDS[:2] for replace_uid in [listed[0]._replace(pod=None, uid=uid)]]
    assert join_by_ids(listed, kept) == {}
    assert join_by_ids(listed, kept[:1]).keys() == {UIDS[0]}


@pytest.mark.parametrize("has_numa", [True, False])
def test_both_forms_of_the_file_are_read(root: Path, has_numa: bool) -> None:
    write_checkpoint(root, [LLAMA], has_numa=has_numa)
    kept = read_checkpoint(root / KUBELET)
    assert kept is not None
    assert [(it.uid, it.container, it.ids) for it in kept] == [(UIDS[0], "trainer", ("GPU-a", "GPU-b"))]


def test_docker_and_podman_name_their_containers(root: Path) -> None:
    docker, podman = IDS[:2]
    folder = root / "var/lib/docker/containers" / docker
    folder.mkdir(parents=True)
    config = {"ID": docker, "Name": "/training_run", "Config": {"Env": ["TOKEN=secret"]}, "State": {"Pid": 7}}
    (folder / "config.v2.json").write_text(json.dumps(config))
    path = root / "run/containers/storage/overlay-containers/containers.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps([{"id": podman, "names": ["eval"], "layer": "x"}]))
    processes = [ProcessReading(1, container=it[:12], location="container") for it in IDS[:3]]
    devices, notes = collect(OwnersWatch(root), make_device("GPU-a", *processes))
    assert owners_of(devices) == [
        ProcessOwner(container_name="training_run"),
        ProcessOwner(container_name="eval"),
        None,
    ]
    assert notes == ()


@pytest.fixture
def docker(root: Path) -> Iterator[Callable[[bytes], Path]]:
    """Make a server that plays Docker's, and return its root."""
    servers = []

    def serve(answer: bytes) -> Path:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.path == "/containers/json"
                self.send_response(200)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

            def address_string(self) -> str:
                return "client"

        (root / "run").mkdir()
        server = UnixStreamServer(str(root / "run/docker.sock"), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return root

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_docker_is_asked_where_this_user_may(docker: Callable[[bytes], Path]) -> None:
    found = docker(json.dumps([{"Id": IDS[0], "Names": ["/training_run"], "Image": "x"}]).encode())
    assert find_container_names(found, [IDS[0][:12]]) == {IDS[0][:12]: "training_run"}


def test_an_answer_of_docker_that_is_none_names_nothing(docker: Callable[[bytes], Path]) -> None:
    found = docker(b"\x00\xff{")
    assert find_container_names(found, [IDS[0][:12]]) == {}


def test_a_docker_that_sends_its_answer_byte_by_byte_is_left_in_time(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "DOCKER_ANSWERS_WITHIN_S", 0.3)
    (root / "run").mkdir()
    has_left = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            for _ in range(200):
                connection.sendall(b" ")
                if has_left.wait(0.05):
                    return

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(root / "run/docker.sock"))
        server.listen()
        thread = threading.Thread(target=drip, args=(server,), daemon=True)
        thread.start()
        started_s = time.monotonic()
        assert find_container_names(root, [IDS[0][:12]]) == {}
        assert time.monotonic() - started_s < 5.0
        has_left.set()
        thread.join()


def test_a_job_has_the_name_that_a_readable_process_of_it_was_started_with(root: Path) -> None:
    machine = FakeMachine(root)
    for pid in (1, 2):
        machine.add_process(pid)
    variables = "SLURM_JOB_ID=77\0SLURM_JOB_NAME=pretrain\0SLURM_JOB_PARTITION=h100\0TOKEN=secret\0"
    machine.write("proc/2/environ", variables)
    machine.write("proc/3/environ", variables)
    job = [ProcessReading(pid, slurm_job="77", slurm_step="0") for pid in (1, 2)]
    other = ProcessReading(3, slurm_job="78")  # its environment is of another job
    devices, _ = collect(OwnersWatch(root), make_device("GPU-a", *job, other))
    named = ProcessOwner(slurm_job_name="pretrain", slurm_partition="h100")
    assert owners_of(devices) == [named, named, None]
    assert "secret" not in repr(devices)


def test_clients_of_mps_are_behind_their_server(root: Path) -> None:
    server = ProcessReading(10, "root", "/usr/bin/nvidia-cuda-mps-server")
    clients = [ProcessReading(pid, "ada", "python", mps=MpsRole("client")) for pid in (11, 12)]
    devices, _ = collect(OwnersWatch(root), make_device("GPU-a", server, *clients), make_device("GPU-b"))
    assert [it.mps for it in devices[0].processes or ()] == [
        MpsRole("server", 10),
        MpsRole("client", 10),
        MpsRole("client", 10),
    ]


def test_of_several_servers_the_one_of_the_same_user_is_a_clients(root: Path) -> None:
    servers = [
        ProcessReading(10 + at, user, "nvidia-cuda-mps-server") for at, user in enumerate(("ada", "bo"))
    ]
    clients = [ProcessReading(20 + at, user, mps=MpsRole("client")) for at, user in enumerate(("bo", "eve"))]
    devices, _ = collect(OwnersWatch(root), make_device("GPU-a", *servers, *clients))
    assert [it.mps for it in (devices[0].processes or ())[2:]] == [MpsRole("client", 11), MpsRole("client")]


# Bad input: nothing raises but what says that it is no such message or file.


def parse_or_refuse(parse: Callable[[bytes], object], data: bytes) -> None:
    with suppress(ValueError):
        parse(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_answer_or_are_refused(data: bytes) -> None:
    for parse in (parse_answer, parse_checkpoint, parse_containers):
        parse_or_refuse(parse, data)


@given(st.data())
def test_a_damaged_answer_is_refused_or_read(data: st.DataObject) -> None:
    answer = bytearray(make_answer([LLAMA, *SHARED, SLICE]))
    for _ in range(data.draw(st.integers(1, 4))):
        answer[data.draw(st.integers(0, len(answer) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(answer[: data.draw(st.integers(0, len(answer)))])
    try:
        found = parse_answer(cut)
    except ValueError:
        return
    assert all(it.ids and all(len(name) <= 253 for name in (it.pod or "", it.container)) for it in found)


def nest(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    keys = st.sampled_from(["Data", "PodDeviceEntries", "PodUID", "DeviceIDs", "0", "ID", "Id", "names"])
    return inner | st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = nest(nest(nest(nest(LEAF))))


@given(JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    data = json.dumps(value).encode()
    for parse in (parse_checkpoint, parse_containers):
        parse_or_refuse(parse, data)


@pytest.mark.parametrize("parse", [parse_answer, parse_checkpoint, parse_containers])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 5000,
        b"[" * 100_000,
        b'{"Data":{}}',
        b'{"Data":null}',
        b"\xff" * 11,
        b"\x0a\x80\x80\x80\x80\x20",
    ],
    ids=["empty", "zeros", "nested", "without entries", "null", "endless number", "huge length"],
)
def test_known_bad_input_raises_no_other_error(parse: Callable[[bytes], object], data: bytes) -> None:
    parse_or_refuse(parse, data)


def test_names_are_bounded_and_printable() -> None:
    name = "\x1b[2J" + "x" * 5000
    [found] = parse_answer(make_answer([Given(name, name, name, (name,))]))
    assert max(len(it) for it in (found.pod or "", found.container, *found.ids)) <= 253
    assert "\x1b" not in repr((found.pod, found.container, found.ids)).replace("\\x1b", "\x1b")
    many = make_answer([LLAMA]) * 5000
    assert len(parse_answer(many)) == 4096
    assert parse_answer(make_field(7, b"unknown") + make_answer([LLAMA])) == parse_answer(
        make_answer([LLAMA])
    )


def test_files_that_are_something_else_name_nothing(root: Path) -> None:
    for name in (
        "var/log/containers",
        "var/log/pods",
        "var/lib/docker/containers",
        f"{KUBELET}/{CHECKPOINT}",
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(64))
    with socket.socket(socket.AF_UNIX) as dead:
        (root / "run").mkdir()
        dead.bind(str(root / "run/docker.sock"))
    _, notes = collect(OwnersWatch(root), make_device("GPU-a", in_pod(1, 0)))
    assert read_pod_folders(root) == {}
    assert read_checkpoint(root / KUBELET) is None
    assert "pods are shown by their UIDs" in notes[0]
