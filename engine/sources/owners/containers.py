"""Names of containers by their ids: from links of the kubelet, and from what Docker and Podman keep."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ...text import make_printable
from ..kernel_files import list_names, read_bytes
from .names import PodName

# Characters of an id by which a container is known, as `docker ps` shows it.
ID_CHARS = 12
# More than a node has, of pods and of containers that have ended.
MOST_NAMES = 20_000
MOST_FILE_BYTES = 8 << 20
MOST_NAME_CHARS = 253
DOCKER_ANSWERS_WITHIN_S = 2.0

POD_LINKS = "var/log/containers"
POD_FOLDERS = "var/log/pods"
# The kubelet cuts longer names of links at their end.
_MOST_LINK_CHARS = 255
_LINK = re.compile(
    r"(?P<pod>[a-z0-9.-]{1,253})_(?P<namespace>[a-z0-9-]{1,63})_(?P<container>[a-z0-9-]{1,63})"
    r"-(?P<id>[0-9a-f]{12,64})\.log"
)
_POD_FOLDER = re.compile(
    r"(?P<namespace>[a-z0-9-]{1,63})_(?P<pod>[a-z0-9.-]{1,253})_(?P<uid>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|[0-9a-f]{32})"
)
_DOCKER_FOLDER = "var/lib/docker/containers"
_DOCKER_SOCKETS = ("run/docker.sock", "var/run/docker.sock")
_PODMAN_FILES = (
    "run/containers/storage/overlay-containers/containers.json",
    "var/lib/containers/storage/overlay-containers/containers.json",
)
_OWN_PODMAN_FILE = ".local/share/containers/storage/overlay-containers/containers.json"


def read_pod_links(root: Path) -> dict[str, PodName]:
    """Return the names of containers of pods by the beginnings of their ids.

    The kubelet makes a link for the log of each, /var/log/containers/POD_NAMESPACE_CONTAINER-ID.log, in a
    folder that every user may list on most systems; the logs themselves are not touched.
    """
    found = {}
    for name in list_names(root / POD_LINKS)[:MOST_NAMES]:
        link = _LINK.fullmatch(name)
        if link is not None and (len(link["id"]) == 64 or len(name) == _MOST_LINK_CHARS):
            found[link["id"][:ID_CHARS]] = PodName(link["namespace"], link["pod"], link["container"])
    return found


def read_pod_folders(root: Path) -> dict[str, PodName]:
    """Return the names of pods by their UIDs, from the folders of their logs: NAMESPACE_POD_UID."""
    folders = (_POD_FOLDER.fullmatch(name) for name in list_names(root / POD_FOLDERS)[:MOST_NAMES])
    return {it["uid"]: PodName(it["namespace"], it["pod"]) for it in folders if it is not None}


class _Named(msgspec.Struct):
    """One container, as Docker writes it into its file, as it lists it, or as Podman keeps it."""

    file_id: str = msgspec.field(name="ID", default="")
    file_name: str = msgspec.field(name="Name", default="")
    listed_id: str = msgspec.field(name="Id", default="")
    listed_names: list[str] = msgspec.field(name="Names", default_factory=list)
    podman_id: str = msgspec.field(name="id", default="")
    podman_names: list[str] = msgspec.field(name="names", default_factory=list)


def parse_containers(data: bytes) -> dict[str, str]:
    """Return names by the beginnings of ids: of one container of Docker, or of a list of its or of Podman's.

    Raises:
        ValueError: It is nothing of these.
    """
    try:
        read = msgspec.json.decode(data, type=list[_Named] | _Named)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    found = {}
    for it in (read if isinstance(read, list) else [read])[:MOST_NAMES]:
        key = (it.file_id or it.listed_id or it.podman_id)[:ID_CHARS]
        names = [it.file_name, *it.listed_names, *it.podman_names]
        name = next((name for name in names if name.strip("/ ")), "").lstrip("/")
        if len(key) == ID_CHARS and name:
            found[key] = make_printable(name, MOST_NAME_CHARS)
    return found


def find_container_names(root: Path, ids: Iterable[str], home: Path | None = None) -> dict[str, str]:
    """Return the names of those containers of Docker and Podman that this user may know, by their ids.

    Args:
        ids: The first 12 characters of each.
        home: Folder of this user, for its own containers of Podman.
    """
    wanted = set(ids)
    found: dict[str, str] = {}
    podman = [root / name for name in _PODMAN_FILES]
    if home is not None:
        podman.append(home / _OWN_PODMAN_FILE)
    for path in podman:
        found.update(_parse(read_bytes(path, MOST_FILE_BYTES)))
    for name in list_names(root / _DOCKER_FOLDER)[:MOST_NAMES]:
        if name[:ID_CHARS] in wanted:
            path = root / _DOCKER_FOLDER / name / "config.v2.json"
            found.update(_parse(read_bytes(path, MOST_FILE_BYTES)))
    if not wanted <= found.keys():
        found.update(_parse(ask_docker(root)))
    return {key: name for key, name in found.items() if key in wanted}


def _parse(data: bytes | None) -> dict[str, str]:
    try:
        return {} if data is None else parse_containers(data)
    except ValueError:
        return {}


def ask_docker(root: Path) -> bytes | None:
    """Return the list of running containers; None if there is no Docker that this user may ask.

    It only reads: `GET /containers/json`.
    """
    paths = (root / name for name in _DOCKER_SOCKETS)
    path = next((it for it in paths if os.access(it, os.W_OK)), None)
    if path is None:
        return None
    from ...http_opener import read_over_socket  # most nodes have no Docker

    return read_over_socket(
        str(path), "/containers/json", ends_within_s=DOCKER_ANSWERS_WITHIN_S, most_bytes=MOST_FILE_BYTES
    )
