"""Links by name, as one device sees them: one way, at most.

Bandwidths are half of what vendors print, who add both directions: NVLink 2 to 5 with all lanes of a V100,
A100, H100, B200 (NVIDIA's data sheets); Infinity Fabric of MI250X and MI300X to all their neighbours together
(AMD's data sheets); PCI Express with 16 lanes, after encoding (PCI-SIG). Networks are one port.

Latencies are those that NCCL itself assumes for a ring and its simple protocol on NVLink, PCI Express and a
network: 3.4, 5.7 and 14 us (`hwLat` in src/graph/tuning.cc).
"""

import re
from collections.abc import Mapping
from typing import TypeVar

from ....engine.errors import UsageError
from ....engine.text import find_nearest
from .model import Link

NVLINK_LATENCY_S = 3.4e-6
PCIE_LATENCY_S = 5.7e-6
NETWORK_LATENCY_S = 14e-6
MOST_BYTES_PER_S = 1e14
"""A hundred times the fastest link there is: beyond, a unit was mistaken."""

_BANDWIDTH = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b|bit)\s*(?:/\s*s|ps)\s*$", re.IGNORECASE)
_LATENCY = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|μs|ms|s)\s*$", re.IGNORECASE)
_PER_SECOND = {"ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3, "s": 1.0}
_FACTORS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _make_link(kind: str, gb_per_s: float, latency_s: float = NETWORK_LATENCY_S) -> Link:
    return Link(bytes_per_s=gb_per_s * 1e9, latency_s=latency_s, kind=kind)


LINKS: Mapping[str, Link] = {
    "nvlink2": _make_link("NVLink 2", 150, NVLINK_LATENCY_S),
    "nvlink3": _make_link("NVLink 3", 300, NVLINK_LATENCY_S),
    "nvlink4": _make_link("NVLink 4", 450, NVLINK_LATENCY_S),
    "nvlink5": _make_link("NVLink 5", 900, NVLINK_LATENCY_S),
    "xgmi2": _make_link("Infinity Fabric", 200, NVLINK_LATENCY_S),
    "xgmi3": _make_link("Infinity Fabric", 448, NVLINK_LATENCY_S),
    "pcie3": _make_link("PCIe 3 x16", 15.75, PCIE_LATENCY_S),
    "pcie4": _make_link("PCIe 4 x16", 31.5, PCIE_LATENCY_S),
    "pcie5": _make_link("PCIe 5 x16", 63, PCIE_LATENCY_S),
    "dgx-1": _make_link("InfiniBand EDR, a port for two devices", 6.25),
    "ib-edr": _make_link("InfiniBand EDR", 12.5),
    "ib-hdr": _make_link("InfiniBand HDR", 25),
    "ib-ndr": _make_link("InfiniBand NDR", 50),
    "ib-xdr": _make_link("InfiniBand XDR", 100),
    "roce-100": _make_link("RoCE 100 Gb/s", 12.5),
    "roce-200": _make_link("RoCE 200 Gb/s", 25),
    "roce-400": _make_link("RoCE 400 Gb/s", 50),
    "slingshot-11": _make_link("Slingshot 11", 25),
    "ethernet-10": _make_link("Ethernet 10 Gb/s", 1.25),
    "ethernet-25": _make_link("Ethernet 25 Gb/s", 3.125),
    "ethernet-100": _make_link("Ethernet 100 Gb/s", 12.5),
}
"""By the name that is written in a cluster file."""


def find_link(name: str) -> Link:
    """Return a link by its name (`nvlink4`, `ib-ndr`) or its bandwidth alone (`25 GB/s`, `200 Gb/s`).

    Raises:
        UsageError: It is neither; the text has the nearest names.
    """
    if name.strip()[:1].isdigit():
        return Link(bytes_per_s=parse_bandwidth(name))
    return find_by_name(LINKS, name, "link", "(or give a bandwidth such as 25 GB/s)")


def parse_bandwidth(text: str | float) -> float:
    """Return the bytes a second in `25 GB/s`, `200 Gb/s` or `200 Gbit/s`: a small b is a bit.

    Args:
        text: With its unit; a number alone is in GB/s.

    Raises:
        UsageError: It is no bandwidth, or none that a link can have.
    """
    text = text if isinstance(text, str) else f"{text:f} GB/s"
    match = _BANDWIDTH.match(text)
    if match is None:
        raise UsageError(
            f"not a bandwidth: {text[:60]!r}; expected for example 25 GB/s (bytes) or 200 Gb/s (bits)"
        )
    number, prefix, binary, unit = match.groups()
    base = 1024 if binary else 1000
    value = float(number) * float(base ** _FACTORS[prefix.lower()]) / (1 if unit == "B" else 8)
    if not 0 < value <= MOST_BYTES_PER_S:
        raise UsageError(f"a bandwidth of {text[:60]}: expected above 0 and at most 100 TB/s")
    return value


def parse_latency(text: str | float) -> float:
    """Return the seconds in `5 us` or `0.1 ms`; a number alone is in seconds.

    Raises:
        UsageError: It is no latency, or one of a second and more.
    """
    text = text if isinstance(text, str) else f"{text:.12f} s"
    match = _LATENCY.match(text)
    seconds = float(match.group(1)) / _PER_SECOND[match.group(2).lower()] if match else 1.0
    if not seconds < 1:
        raise UsageError(f"latency {text[:60]!r}: expected less than a second, for example 5 us")
    return seconds


Value = TypeVar("Value")


def find_by_name(table: Mapping[str, Value], name: str, what: str, example: str) -> Value:
    """Return what a name stands for, whatever its case; `_` and blanks count as `-`.

    Args:
        table: By name, in lower case.
        name: As a person wrote it.
        what: What the table holds, for the error.
        example: What else could be written instead, for the error.

    Raises:
        UsageError: No such name; the text has the nearest ones.
    """
    plain = "-".join(name.strip().lower().replace("_", " ").split())
    if plain in table:
        return table[plain]
    containing = [known for known in table if plain and plain in known]
    near = containing[:3] or find_nearest(plain, table, most=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(table)}"
    raise UsageError(f"{what} {name[:60]!r} is not known: {hint} {example}")
