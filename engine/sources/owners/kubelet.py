"""Which container was given which devices, as the kubelet says: over its pod-resources socket (gRPC), and in
the file in which it keeps the same for its own restart.

The socket has names of pods and no UIDs, the file has UIDs and no names; together they have both. Messages
and fields: kubernetes, `staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto` and
`pkg/kubelet/cm/devicemanager/checkpoint`.
"""

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...errors import SourceUnavailableError
from ...protobuf import read_fields, read_parts
from ...text import make_printable
from ..kernel_files import read_bytes

SOCKET = "pod-resources/kubelet.sock"
CHECKPOINT = "device-plugins/kubelet_internal_checkpoint"
EXTRA = "kubernetes"
# A kubelet answers within milliseconds; one that does not is asked again later.
ANSWERS_WITHIN_S = 2.0
# A node has at most some hundreds of pods.
MOST_ANSWER_BYTES = 4 << 20
MOST_CHECKPOINT_BYTES = 16 << 20
MOST_ALLOCATIONS = 4096
MOST_IDS = 1024
# Longest name of a pod (RFC 1123, subdomain), and more than any id of a device has.
MOST_NAME_CHARS = 253

# Between the id of a device and the number of a share of it, if several containers use it in turns.
_REPLICA = "::"


class Allocation(NamedTuple):
    """Devices of one resource that one container was given."""

    container: str
    # As in the pod's limits: `nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`, `amd.com/gpu`.
    resource: str
    # As the plug-in of the devices names them, with the numbers of shares.
    ids: tuple[str, ...]
    # None in the file.
    namespace: str | None = None
    pod: str | None = None
    # UID; None over the socket.
    uid: str | None = None

    @property
    def devices(self) -> dict[str, int]:
        """Ids of devices without the numbers of shares, and how many shares of each; 0 of a whole one."""
        found: dict[str, int] = {}
        for name in self.ids:
            device, mark, _ = name.partition(_REPLICA)
            found[device] = found.get(device, 0) + bool(mark)
        return found


def ask_kubelet(folder: Path, timeout_s: float = ANSWERS_WITHIN_S) -> list[Allocation]:
    """Return what the containers of this node were given; blocks until the answer, at most `timeout_s`.

    Raises:
        SourceUnavailableError: No socket, no right to it, no grpcio, no answer, or none that is understood.
    """
    path = folder / SOCKET
    try:
        path.stat()
    except PermissionError:
        raise _refuse(path, "belongs to root: run the agent as root, or mount the socket for it") from None
    except OSError:
        raise _refuse(path, "is not there: this kubelet is older than Kubernetes 1.15") from None
    if not os.access(path, os.W_OK):
        raise _refuse(path, "belongs to root: run the agent as root, or mount the socket for it")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it writes what fails to the terminal, under the view
    try:
        import grpc
    except ImportError:
        text = f"needs grpcio, which is not installed: pip install 'vramscope[{EXTRA}]'"
        raise _refuse(path, text) from None
    options = [("grpc.max_receive_message_length", MOST_ANSWER_BYTES), ("grpc.enable_http_proxy", 0)]
    # Closed after each answer: an open one has threads that wake up.
    with grpc.insecure_channel(f"unix:{path.absolute()}", options=options) as channel:
        ask = channel.unary_unary("/v1.PodResourcesLister/List")
        try:
            answer = ask(b"", timeout=timeout_s)
        except grpc.RpcError as error:
            code = error.code() if isinstance(error, grpc.Call) else None
            raise _refuse(path, _explain(None if code is None else code.name)) from None
    try:
        return parse_answer(answer)
    except ValueError as error:
        raise _refuse(path, f"gave an answer that is not understood: {error}") from None


def _refuse(path: Path, why: str) -> SourceUnavailableError:
    return SourceUnavailableError(f"{make_printable(str(path))} {why}")


def _explain(code: str | None) -> str:
    match code:
        case "DEADLINE_EXCEEDED":
            return f"did not answer within {ANSWERS_WITHIN_S:g} s"
        case "UNIMPLEMENTED":
            return "knows no v1.PodResourcesLister: this kubelet is older than Kubernetes 1.20"
        case "RESOURCE_EXHAUSTED":
            return (
                f"gave an answer larger than {MOST_ANSWER_BYTES >> 20} MiB, or was asked too often by others"
            )
        case _:
            return f"did not answer ({(code or 'no reason given').lower().replace('_', ' ')})"


def parse_answer(data: bytes) -> list[Allocation]:
    """Decode a ListPodResourcesResponse; fields that are not needed are skipped.

    Raises:
        ValueError: It is no such message.
    """
    found: list[Allocation] = []
    for pod in read_parts(data, 1):
        names = {
            number: _text(part)
            for number, part in read_fields(pod)
            if number in (1, 2) and isinstance(part, bytes)
        }
        for container in read_parts(pod, 3):
            name = next((_text(part) for part in read_parts(container, 1)), "")
            for devices in read_parts(container, 2):
                resource = next((_text(part) for part in read_parts(devices, 1)), "")
                ids = tuple(_text(part) for part in read_parts(devices, 2))[:MOST_IDS]
                if ids and len(found) < MOST_ALLOCATIONS:
                    found.append(Allocation(name, resource, ids, names.get(2), names.get(1)))
    return found


def _text(part: bytes) -> str:
    return make_printable(part[: 4 * MOST_NAME_CHARS].decode("utf-8", "replace"), MOST_NAME_CHARS)


class _Entry(
    msgspec.Struct, rename={"uid": "PodUID", "container": "ContainerName", "resource": "ResourceName"}
):
    uid: str = ""
    container: str = ""
    resource: str = ""
    # By NUMA node; before Kubernetes 1.20 without it.
    ids: dict[str, list[str] | None] | list[str] | None = msgspec.field(name="DeviceIDs", default=None)


class _Entries(msgspec.Struct):
    entries: list[_Entry] | None = msgspec.field(name="PodDeviceEntries", default=None)


class _Checkpoint(msgspec.Struct):
    data: _Entries = msgspec.field(name="Data")


def read_checkpoint(folder: Path) -> list[Allocation] | None:
    """Return what the kubelet has noted that containers were given.

    None: the file cannot be read, or is not of a form that is known.
    """
    data = read_bytes(folder / CHECKPOINT, MOST_CHECKPOINT_BYTES)
    try:
        return None if data is None else parse_checkpoint(data)
    except ValueError:
        return None


def parse_checkpoint(data: bytes) -> list[Allocation]:
    """Decode the kubelet's file; raises `ValueError`."""
    try:
        read = msgspec.json.decode(data, type=_Checkpoint)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not a checkpoint of a kubelet: {error}") from None
    found = []
    for entry in (read.data.entries or [])[:MOST_ALLOCATIONS]:
        lists = entry.ids.values() if isinstance(entry.ids, dict) else [entry.ids]
        ids = [make_printable(name, MOST_NAME_CHARS) for names in lists for name in names or ()]
        uid, container, resource = (
            make_printable(text, MOST_NAME_CHARS) for text in (entry.uid, entry.container, entry.resource)
        )
        if ids and uid:
            found.append(Allocation(container, resource, tuple(ids[:MOST_IDS]), uid=uid))
    return found
