"""A kubelet as far as vramscope asks it: a gRPC server on a unix socket, its file, and its links."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

KUBELET = "var/lib/kubelet"


class Given(NamedTuple):
    """Devices that a container of a pod has."""

    namespace: str
    pod: str
    container: str
    ids: tuple[str, ...]
    uid: str = ""
    resource: str = "nvidia.com/gpu"


def make_field(number: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return make_number(number << 3 | 2) + make_number(len(data)) + data


def make_number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def make_answer(given: Sequence[Given]) -> bytes:
    """Return a ListPodResourcesResponse of v1, with fields that vramscope does not need."""
    pods = []
    for it in given:
        topology = make_field(1, make_number(1 << 3) + make_number(1))
        ids = b"".join(make_field(2, name) for name in it.ids)
        devices = make_field(1, it.resource) + ids + make_field(3, topology)
        cpus = make_field(3, make_number(4) + make_number(5))
        container = make_field(1, it.container) + make_field(2, devices) + cpus
        pods.append(make_field(1, it.pod) + make_field(2, it.namespace) + make_field(3, container))
    return b"".join(make_field(1, pod) for pod in pods)


@contextmanager
def run_kubelet(
    root: Path, answer: bytes | None, *, service: str = "v1.PodResourcesLister"
) -> Iterator[list[str]]:
    """Serve below a root until the end of the block; yield the methods that are called.

    Args:
        answer: None to accept connections and never answer.
    """
    import threading

    import grpc

    ended = threading.Event()
    calls: list[str] = []

    def reply(request: bytes, context: object) -> bytes:
        calls.append(repr(request))
        if answer is None:
            ended.wait(30)
            return b""
        return answer

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(reply)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"List": handler}),))
    folder = root / KUBELET / "pod-resources"
    folder.mkdir(parents=True, exist_ok=True)
    server.add_insecure_port(f"unix:{folder / 'kubelet.sock'}")
    server.start()
    try:
        yield calls
    finally:
        ended.set()
        server.stop(0).wait()


def write_checkpoint(root: Path, given: Sequence[Given], *, has_numa: bool = True) -> None:
    """Write what the kubelet keeps for its own restart, by NUMA node as since Kubernetes 1.20."""
    entries = [
        {
            "PodUID": it.uid,
            "ContainerName": it.container,
            "ResourceName": it.resource,
            "DeviceIDs": {"0": list(it.ids)} if has_numa else list(it.ids),
            "AllocResp": "CkIKFk5WSURJQQ==",
        }
        for it in given
    ]
    path = root / KUBELET / "device-plugins/kubelet_internal_checkpoint"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"PodDeviceEntries": entries, "RegisteredDevices": {"nvidia.com/gpu": []}}
    path.write_text(json.dumps({"Data": data, "Checksum": 1234}))


def write_links(root: Path, namespace: str, pod: str, container: str, container_id: str, uid: str) -> None:
    """Make the folder and the link of a container's log, whose target need not be there."""
    (root / f"var/log/pods/{namespace}_{pod}_{uid}/{container}").mkdir(parents=True, exist_ok=True)
    links = root / "var/log/containers"
    links.mkdir(parents=True, exist_ok=True)
    link = links / f"{pod}_{namespace}_{container}-{container_id}.log"
    link.symlink_to(f"/var/log/pods/{namespace}_{pod}_{uid}/{container}/0.log")
