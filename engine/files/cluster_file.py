"""Cluster files: nodes, devices and links as a person writes them, in TOML, JSON or YAML.

`docs/cluster-file.md` has the keys; `analyzers/planning/cluster/building.py` looks up names of devices and
links.
"""

import re
from pathlib import Path

import msgspec

from ..errors import InputFileError
from ..text import suggest
from .base.input_file import decode_text, locate_byte, read_input_file, show_path, show_text
from .base.toml_text import KeyLines, locate_toml_keys, parse_toml
from .base.yaml_text import YamlError, parse_yaml

LIMIT_BYTES = 1 << 20

_PLACE = re.compile(r" - at `([^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")


class _Keys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True): ...


class LinkEntry(_Keys, frozen=True, kw_only=True):
    # With its unit, or in GB/s.
    bandwidth: str | float
    # With its unit, or in seconds.
    latency: str | float | None = None
    kind: str | None = None


class DeviceEntry(_Keys, frozen=True, kw_only=True):
    # By name; without it memory and tflops are needed.
    device: str | None = None
    count: int = 1
    # With its unit, or in bytes.
    memory: str | int | None = None
    tflops: float | None = None
    memory_bandwidth: str | float | None = None
    kind: str | None = None


class NodeEntry(_Keys, frozen=True, kw_only=True):
    name: str | None = None
    names: tuple[str, ...] | None = None
    count: int | None = None
    devices: int | tuple[DeviceEntry, ...] = 1
    device: str | None = None
    memory: str | int | None = None
    tflops: float | None = None
    memory_bandwidth: str | float | None = None
    kind: str | None = None
    # Between two devices of a node.
    link: str | LinkEntry | None = None


class OwnLinkEntry(_Keys, frozen=True, kw_only=True):
    """A link between two nodes, or between two devices (`node:index`)."""

    between: tuple[str, str]
    link: str | LinkEntry


class ClusterEntry(_Keys, frozen=True, kw_only=True):
    nodes: tuple[NodeEntry, ...]
    name: str | None = None
    network: str | LinkEntry | None = None
    links: tuple[OwnLinkEntry, ...] = ()
    # Folder of Galvatron's hardware profiles, relative to the cluster file.
    galvatron: str | None = None


_TABLES = (ClusterEntry, NodeEntry, DeviceEntry, LinkEntry, OwnLinkEntry)
_KNOWN = tuple(dict.fromkeys(name for table in _TABLES for name in table.__struct_fields__))


def read_cluster_file(path: Path) -> tuple[ClusterEntry, KeyLines]:
    """Return the content of a cluster file, unresolved, and the lines of its keys."""
    data = read_input_file(path, LIMIT_BYTES)
    text = decode_text(data, path, "TOML, JSON or YAML")
    content, where = _parse(path, text)
    try:
        return msgspec.convert(content, ClusterEntry), where
    except msgspec.ValidationError as error:
        raise InputFileError(_explain(str(error), where)) from None


def _parse(path: Path, text: str) -> tuple[object, KeyLines]:
    suffix = path.suffix.lower()
    shown = show_path(path)
    try:
        if suffix == ".json" or (suffix != ".toml" and text.lstrip().startswith("{")):
            return msgspec.json.decode(text), KeyLines(shown)
        if suffix in (".yaml", ".yml"):
            parsed = parse_yaml(text)
            return parsed.value, KeyLines(shown, parsed.lines)
        return parse_toml(text, path), KeyLines(shown, locate_toml_keys(text))
    except (msgspec.DecodeError, RecursionError) as error:
        found = re.search(r"byte (\d+)", str(error))
        place = f"{locate_byte(text.encode(), int(found.group(1)))}: " if found else ""
        raise InputFileError(f"{shown}: {place}{error}; expected JSON") from None
    except YamlError as error:
        raise InputFileError(f"{shown}: {error}; expected YAML") from None


def _explain(message: str, where: KeyLines) -> str:
    """Put the place in front of msgspec's words, and the nearest key after an unknown one."""
    found = _PLACE.search(message)
    key = found.group(1).removeprefix("$").removeprefix(".") if found else ""
    words = _PLACE.sub("", message).replace("Object contains", "").replace(" | null", "").strip()
    unknown = _UNKNOWN.search(words)
    if unknown is not None:
        hint = suggest(unknown.group(1), _KNOWN, f"known are {', '.join(_KNOWN)}")
        words = f"unknown key {show_text(unknown.group(1))!r}: {hint}"
    place = where.place(key, unknown.group(1) if unknown else "")
    return f"{place}: {words[:1].lower()}{words[1:]}"
