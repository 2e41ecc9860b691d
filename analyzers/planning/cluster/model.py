"""A cluster as a graph: nodes of devices, links within a node, links between nodes."""

import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import TypeVar

import msgspec

from ....engine.errors import UsageError
from ....engine.text import find_nearest
from ....engine.units import MIB


class Link(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    # One way, of one device.
    bytes_per_s: float
    # Before the first byte arrives.
    latency_s: float = 0.0
    # For example `NVLink`, `PCIe`, `InfiniBand`; None where unknown.
    kind: str | None = None


class ClusterDevice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    node: str
    local_index: int
    # For example `H100 80GB`; None where unknown.
    kind: str | None = None
    memory_bytes: int
    # Dense matrix products in 16 bits, at most.
    flops_per_s: float
    # Bandwidth of its own memory, at most; None where unknown.
    memory_bytes_per_s: float | None = None


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    devices: tuple[ClusterDevice, ...]
    # Between two devices of the node that have no link of their own in `Cluster.links`.
    link: Link


class CollectiveTable(msgspec.Struct, frozen=True, kw_only=True):
    """Bandwidths that were measured with groups of devices, as Galvatron's profiler writes them."""

    # By number of ranks n, and whether they are consecutive: bus bandwidth as in nccl-tests, which is 2 (n -
    # 1) / n of the tensor's bytes over the seconds that it took.
    allreduce_bytes_per_s: Mapping[tuple[int, bool], float]
    # By number of pipeline stages.
    point_to_point_bytes_per_s: Mapping[int, float]
    # How much longer computing takes while something is sent (1.1: a tenth longer).
    overlap_slowdown: float | None = None
    # By number of consecutive ranks: bytes of the tensor and seconds, the smaller tensors first.
    allreduce_s: Mapping[int, tuple[tuple[int, float], ...]] = {}
    # The same of an all-to-all.
    all_to_all_s: Mapping[int, tuple[tuple[int, float], ...]] = {}
    # The measured cluster, for example `2 nodes of 8 devices`.
    measured_on: str | None = None


class Cluster(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The devices of a cluster in the order of ranks: node by node, device by device."""

    name: str
    nodes: tuple[ClusterNode, ...]
    network: Link | None = None
    """Between devices of two nodes that have no link of their own; None for a single node."""
    links: Mapping[tuple[int, int], Link] = {}
    """Links of their own between two devices, by their positions in `devices`, the smaller first."""
    node_links: Mapping[tuple[str, str], Link] = {}
    """Links of their own between two nodes, by name, in the order of `nodes`."""
    measured: CollectiveTable | None = None

    @cached_property
    def devices(self) -> tuple[ClusterDevice, ...]:
        return tuple(device for node in self.nodes for device in node.devices)

    @cached_property
    def is_uniform(self) -> bool:
        """Whether any two devices could change places: alike, in nodes alike, all links alike."""
        kinds = {(each.kind, each.memory_bytes, each.flops_per_s) for each in self.devices}
        shapes = {(len(node.devices), node.link) for node in self.nodes}
        return len(kinds) == 1 and len(shapes) == 1 and not self.links and not self.node_links

    def link(self, first: int, second: int) -> Link:
        """Return the link between two devices, by their positions.

        Raises:
            KeyError: They have none; a cluster from `read_cluster` has one between any two.
        """
        low = min(first, second)
        high = max(first, second)
        if (own := self.links.get((low, high))) is not None:
            return own
        source = self.devices[low].node
        target = self.devices[high].node
        if source == target:
            return self._nodes_by_name[source].link
        between = self.node_links.get((source, target), self.network)
        if between is None:
            raise KeyError(f"{source} and {target} have no link")
        return between

    def slowest_link(self, positions: Sequence[int]) -> Link:
        """Return the slowest link of a ring through some devices in their order; of two or more."""
        ring = [*pairwise(positions), (positions[-1], positions[0])]
        return min((self.link(first, second) for first, second in ring), key=lambda link: link.bytes_per_s)

    @cached_property
    def _nodes_by_name(self) -> dict[str, ClusterNode]:
        return {node.name: node for node in self.nodes}


# How large a cluster may be: enough for the largest there are, little enough to hold each device.

MOST_DEVICES = 65_536


def check_counts(nodes: int, devices_per_node: int, where: str) -> None:
    """Refuse a cluster without devices, or with too many; `where` is the origin of the numbers, for the
    error.
    """
    if nodes < 1 or devices_per_node < 1:
        raise UsageError(f"{where}: {nodes} x {devices_per_node} devices; expected at least 1 x 1")
    if nodes * devices_per_node > MOST_DEVICES:
        raise UsageError(
            f"{where}: {nodes * devices_per_node:,} devices; expected at most {MOST_DEVICES:,}: plan "
            "for a part of the cluster; data-parallel replicas are alike"
        )


# Devices by name: memory, speed, and the links that their vendor builds them with.
#
# Speed is that of dense matrix products in bfloat16 with sums in float32, without sparsity (float16 on
# V100, T4 and RTX 2080 Ti, which have no bfloat16); bandwidth is that of the device's own memory. Data
# sheets of professional Ampere and Ada cards print tensor speeds with sparsity: half of them is meant
# here; with FP8 and sparsity, a quarter.
#
# Memory is what `nvidia-smi` (for AMD `rocm-smi`) prints as total, which is less than the data sheet says
# where ECC or firmware keep some: professional RTX cards as they are delivered, with ECC off, and those for
# servers with ECC on. Where only the nominal size is known, the name of the product says "nominal".
#
# What was compared with something, and what was not:
#
# - Memory, with outputs of `nvidia-smi` that people published: A10, A16, A40, RTX A4000, A4500 and A6000, RTX
#   6000 Ada, RTX PRO 6000, L4, L40S, RTX 3060, 3090, 3090 Ti, 4080, 4090, 5070 Ti, 5080 and 5090, H100 NVL,
#   GH200, H20, B200, GB200, B300, GB300. Memory of all others is not checked.
# - Speed, with copies of NVIDIA's white papers and data sheets or tables quoted from them: V100, A100 (SXM),
#   A40, L40, L40S, RTX 2080 Ti, 3090 and 4090; bandwidth of these too, but for V100 and A100.
# - Speed, with tables by others that agree and cite no data sheet we saw: A10, A30, RTX A4000, A5000 and
#   A6000, L4, H100 (SXM and PCIe), B200, GB200, B300, RTX 3080, 5080, 5090 and RTX PRO 6000. Bandwidth
#   likewise: A10, L4, RTX A4500, 4080, 5080, 5090, RTX PRO 6000 and B300.
# - Sources differ: A16 (its boost clock gives 17.4 TFLOP/s, here 17.9), B200 (7.7 or 8 TB/s, here 8), B300
#   (one source has 3,500 TFLOP/s and another 7.75 TB/s; here 2,250 and 8).
# - Every other speed and bandwidth, all of AMD's, and numbers of multiprocessors are not checked against a
#   data sheet.
#
# The network is one port for each device, as in the vendors' systems (not checked against a data sheet):
# DGX-1 (4 x EDR for 8 devices), DGX A100 (HDR), DGX H100, DGX B200 and GB200 NVL72 (NDR), Frontier (Slingshot
# 11), the platforms of MI300X (400 Gb/s). Cards without such a system have none.


class DeviceModel(msgspec.Struct, frozen=True, gc=False):
    kind: str
    memory_mib: int
    # Dense, 16 bits, at most: 10^12 FLOP/s.
    tflops: float
    memory_gb_per_s: float
    # Between two of them in one node, by its name in `LINKS`.
    link: str
    # To other nodes, by its name in `LINKS`; None where its vendor builds no system of several.
    network: str | None = None
    # Compute capability of CUDA; None for other vendors.
    capability: tuple[int, int] | None = None
    # Tiles of a product that run at once; None where unknown.
    multiprocessors: int | None = None

    @property
    def memory_bytes(self) -> int:
        return self.memory_mib * MIB

    @property
    def flops_per_s(self) -> float:
        return self.tflops * 1e12

    @property
    def memory_bytes_per_s(self) -> float:
        return self.memory_gb_per_s * 1e9


# By the name in a cluster file; SXM and OAM modules where the name says nothing.
DEVICES: Mapping[str, DeviceModel] = {
    "v100-16gb": DeviceModel("V100 16GB", 16384, 125, 900, "nvlink2", "dgx-1", (7, 0), 80),
    "v100-32gb": DeviceModel("V100 32GB", 32768, 125, 900, "nvlink2", "dgx-1", (7, 0), 80),
    "t4": DeviceModel("T4", 15360, 65, 320, "pcie3", None, (7, 5), 40),
    "a10": DeviceModel("A10", 23028, 125, 600, "pcie4", None, (8, 6), 72),
    "a16": DeviceModel("A16, one of four GPUs", 15356, 17.9, 200, "pcie4", None, (8, 6), 10),
    "a30": DeviceModel("A30", 24576, 165, 933, "pcie4", None, (8, 0), 56),
    "a40": DeviceModel("A40", 46068, 149.7, 696, "pcie4", None, (8, 6), 84),
    "a4000": DeviceModel("RTX A4000", 16376, 76.7, 448, "pcie4", None, (8, 6), 48),
    "a4500": DeviceModel("RTX A4500", 20470, 94.6, 640, "pcie4", None, (8, 6), 56),
    "a5000": DeviceModel("RTX A5000", 24564, 111.1, 768, "pcie4", None, (8, 6), 64),
    "a5500": DeviceModel("RTX A5500, nominal size", 24576, 136.4, 768, "pcie4", None, (8, 6), 80),
    "a6000": DeviceModel("RTX A6000", 49140, 154.8, 768, "pcie4", None, (8, 6), 84),
    "a100-40gb": DeviceModel("A100 40GB", 40960, 312, 1555, "nvlink3", "ib-hdr", (8, 0), 108),
    "a100-80gb": DeviceModel("A100 80GB", 81920, 312, 2039, "nvlink3", "ib-hdr", (8, 0), 108),
    "a100-pcie-80gb": DeviceModel("A100 PCIe 80GB", 81920, 312, 1935, "pcie4", None, (8, 0), 108),
    "h100": DeviceModel("H100 80GB", 81559, 989.4, 3350, "nvlink4", "ib-ndr", (9, 0), 132),
    "h100-pcie": DeviceModel("H100 PCIe 80GB", 81559, 756, 2000, "pcie5", None, (9, 0), 114),
    "h100-nvl": DeviceModel("H100 NVL 94GB", 95830, 835.5, 3938, "pcie5", None, (9, 0), 132),
    "gh200": DeviceModel("GH200 96GB", 97871, 989.4, 4000, "nvlink4", "ib-ndr", (9, 0), 132),
    "h20": DeviceModel("H20 96GB", 97871, 148, 4000, "nvlink4", "ib-ndr", (9, 0), 78),
    "h200": DeviceModel("H200 141GB", 143771, 989.4, 4800, "nvlink4", "ib-ndr", (9, 0), 132),
    "h200-nvl": DeviceModel("H200 NVL 141GB", 143771, 835.5, 4800, "pcie5", None, (9, 0), 132),
    "b200": DeviceModel("B200 180GB", 183359, 2250, 8000, "nvlink5", "ib-ndr", (10, 0), 148),
    "gb200": DeviceModel("GB200 186GB", 189471, 2500, 8000, "nvlink5", "ib-ndr", (10, 0), 148),
    "b300": DeviceModel("B300 288GB", 275040, 2250, 8000, "nvlink5", "ib-xdr", (10, 3), 148),
    "gb300": DeviceModel("GB300 288GB", 284208, 2500, 8000, "nvlink5", "ib-xdr", (10, 3)),
    "l4": DeviceModel("L4", 23034, 121, 300, "pcie4", None, (8, 9), 58),
    "l40": DeviceModel("L40", 46068, 181, 864, "pcie4", None, (8, 9), 142),
    "l40s": DeviceModel("L40S", 46068, 362, 864, "pcie4", None, (8, 9), 142),
    "rtx6000-ada": DeviceModel("RTX 6000 Ada", 49140, 364.2, 960, "pcie4", None, (8, 9), 142),
    "rtx-pro-6000": DeviceModel("RTX PRO 6000 Blackwell", 97887, 503.8, 1792, "pcie5", None, (12, 0), 188),
    "rtx2080ti": DeviceModel("RTX 2080 Ti", 11264, 53.8, 616, "pcie3", None, (7, 5), 68),
    "rtx3060-12gb": DeviceModel("RTX 3060 12GB", 12288, 25.5, 360, "pcie4", None, (8, 6), 28),
    "rtx3080-10gb": DeviceModel("RTX 3080 10GB", 10240, 59.5, 760, "pcie4", None, (8, 6), 68),
    "rtx3090": DeviceModel("RTX 3090", 24576, 71, 936, "pcie4", None, (8, 6), 82),
    "rtx3090ti": DeviceModel("RTX 3090 Ti", 24564, 80, 1008, "pcie4", None, (8, 6), 84),
    "rtx4080": DeviceModel("RTX 4080", 16376, 97.5, 717, "pcie4", None, (8, 9), 76),
    "rtx4080-super": DeviceModel("RTX 4080 SUPER", 16376, 104.4, 736, "pcie4", None, (8, 9), 80),
    "rtx4090": DeviceModel("RTX 4090", 24564, 165.2, 1008, "pcie4", None, (8, 9), 128),
    "rtx5070ti": DeviceModel("RTX 5070 Ti", 16303, 87.9, 896, "pcie5", None, (12, 0), 70),
    "rtx5080": DeviceModel("RTX 5080", 16303, 112.6, 960, "pcie5", None, (12, 0), 84),
    "rtx5090": DeviceModel("RTX 5090", 32607, 209.5, 1792, "pcie5", None, (12, 0), 170),
    "mi250x": DeviceModel("MI250X, one of two dies", 65520, 191.5, 1638, "xgmi2", "slingshot-11", None, 110),
    "mi300x": DeviceModel("MI300X 192GB", 196592, 1307.4, 5300, "xgmi3", "roce-400", None, 304),
    "mi325x": DeviceModel("MI325X 256GB", 262128, 1307.4, 6000, "xgmi3", "roce-400", None, 304),
}
_DRIVER_NAMES: tuple[tuple[str, str], ...] = (
    (r"\bGB300$", "gb300"),
    (r"\bB300\b", "b300"),
    (r"\bGB200$", "gb200"),
    (r"\bB200$", "b200"),
    (r"\bH200$", "h200"),
    (r"\bH200 NVL$", "h200-nvl"),
    (r"\bGH200\b", "gh200"),
    (r"\bH100 PCIe$", "h100-pcie"),
    (r"\bH100 NVL$", "h100-nvl"),
    (r"\bH100 80GB HBM3$", "h100"),
    (r"\bH20$", "h20"),
    (r"\bA100.PCIE.80GB$|\bA100 80GB PCIe$", "a100-pcie-80gb"),
    (r"\bA100-SXM.-80GB$", "a100-80gb"),
    (r"\bA100-(SXM.|PCIE)-40GB$", "a100-40gb"),
    (r"\bV100-SXM.-32GB", "v100-32gb"),
    (r"\bV100-SXM.-16GB", "v100-16gb"),
    (r"\bL40S$", "l40s"),
    (r"\bL40$", "l40"),
    (r"\bL4$", "l4"),
    (r"\bRTX 6000 Ada Generation$", "rtx6000-ada"),
    (r"\bRTX PRO 6000 Blackwell (Workstation|Server) Edition$", "rtx-pro-6000"),
    (r"\bRTX A(4000|4500|5000|5500|6000)$", r"a\1"),
    (r"\bA(10|16|30|40)$", r"a\1"),
    (r"\bT4$", "t4"),
    (r"\bRTX (2080|3090) Ti$", r"rtx\1ti"),
    (r"\bRTX 5070 Ti$", "rtx5070ti"),
    (r"\bRTX 4080 SUPER$", "rtx4080-super"),
    (r"\bRTX (3090|4080|4090|5080|5090)$", r"rtx\1"),
)
"""What drivers call devices, to the end: the name of a laptop's or a vGPU goes on, and its speed differs.

A driver's RTX 3060 or 3080 may have any of two sizes.
"""
_VENDOR_WORDS = re.compile(
    r"nvidia|geforce|tesla|\bamd\b|instinct|generation|blackwell|workstation|edition|sxm[0-9]?|hbm[0-9]e?",
    re.IGNORECASE,
)


def recognise_device(name: str) -> DeviceModel | None:
    """Return the device with this driver name; None where it is not known."""
    for pattern, known in _DRIVER_NAMES:
        match = re.search(pattern, name, re.IGNORECASE)
        if match is not None:
            return DEVICES[match.expand(known)]
    return None


def find_device(name: str, *, can_describe: bool = False, is_for_cuda: bool = False) -> DeviceModel:
    """Return a device by its name: `h100`, `RTX 4090`, `4090`, or its driver's name.

    Case, blanks, hyphens and the vendor's own words do not count.

    Args:
        can_describe: Whether a cluster file could describe a device without a name.
        is_for_cuda: Whether only a GPU of CUDA will do.

    Raises:
        UsageError: No such name, with the nearest ones; or the device is not a GPU of CUDA.
    """
    squashed = _squash(_VENDOR_WORDS.sub(" ", name))
    known = _list_squashed()
    for form in (squashed, f"rtx{squashed}", squashed.removeprefix("rtx")):
        if form in known:
            return _check_kind(DEVICES[known[form]], is_for_cuda=is_for_cuda)
    model = recognise_device(name.strip())
    if model is not None:
        return _check_kind(model, is_for_cuda=is_for_cuda)
    near = [known[form] for form in known if squashed and squashed in form][:3]
    near = near or [known[form] for form in known if squashed.startswith(form)][:3]
    near = near or [
        known[form] for asked in (squashed, f"rtx{squashed}") for form in find_nearest(asked, known, most=3)
    ]
    usable = [key for key, it in DEVICES.items() if it.capability is not None or not is_for_cuda]
    near = [it for it in near if it in usable]
    hint = (
        f"did you mean {' or '.join(dict.fromkeys(near[:3]))}?" if near else f"known are {', '.join(usable)}"
    )
    other_way = " (or give memory and tflops in a cluster file)" if can_describe else ""
    raise UsageError(f"device {name[:60]!r} is unknown: {hint}{other_way}")


def _check_kind(model: DeviceModel, *, is_for_cuda: bool) -> DeviceModel:
    if is_for_cuda and model.capability is None:
        raise UsageError(f"{model.kind} is not a GPU of CUDA; expected a size (24GiB) or a kind (h100)")
    return model


@cache
def _list_squashed() -> dict[str, str]:
    return {_squash(key): key for key in DEVICES}


def _squash(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())


# Links by name, as one device sees them: one way, at most.
#
# Bandwidths are half of what vendors print, who add both directions: NVLink 2 to 5 with all lanes of a
# V100, A100, H100, B200 (NVIDIA's data sheets); Infinity Fabric of MI250X and MI300X to all their
# neighbours together (AMD's data sheets); PCI Express with 16 lanes, after encoding (PCI-SIG). Networks are
# one port.
#
# Latencies are those that NCCL itself assumes for a ring and its simple protocol on NVLink, PCI Express and
# a network: 3.4, 5.7 and 14 us (`hwLat` in src/graph/tuning.cc).

NVLINK_LATENCY_S = 3.4e-6
PCIE_LATENCY_S = 5.7e-6
NETWORK_LATENCY_S = 14e-6
# A hundred times the fastest link that exists: beyond, a unit was mistaken.
MOST_BYTES_PER_S = 1e14

_BANDWIDTH = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)(b|bit)\s*(?:/\s*s|ps)\s*$", re.IGNORECASE)
_LATENCY = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ns|us|µs|μs|ms|s)\s*$", re.IGNORECASE)
_PER_SECOND = {"ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3, "s": 1.0}
_FACTORS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _make_link(kind: str, gb_per_s: float, latency_s: float = NETWORK_LATENCY_S) -> Link:
    return Link(bytes_per_s=gb_per_s * 1e9, latency_s=latency_s, kind=kind)


# By the name in a cluster file.
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
        UsageError: It is no bandwidth, or an impossible one.
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
    """Return the seconds in `5 us` or `0.1 ms`; a number alone is in seconds. Raises `UsageError`."""
    text = text if isinstance(text, str) else f"{text:.12f} s"
    match = _LATENCY.match(text)
    seconds = float(match.group(1)) / _PER_SECOND[match.group(2).lower()] if match else 1.0
    if not seconds < 1:
        raise UsageError(f"latency {text[:60]!r}: expected less than a second, for example 5 us")
    return seconds


Value = TypeVar("Value")


def find_by_name(table: Mapping[str, Value], name: str, what: str, example: str) -> Value:
    """Look up a name, whatever its case; `_` and blanks count as `-`. The table has lower-case names.

    `what` the table holds and an `example` are for the error.

    Raises:
        UsageError: No such name; the text has the nearest ones.
    """
    plain = "-".join(name.strip().lower().replace("_", " ").split())
    if plain in table:
        return table[plain]
    containing = [known for known in table if plain and plain in known]
    near = containing[:3] or find_nearest(plain, table, most=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(table)}"
    raise UsageError(f"{what} {name[:60]!r} is unknown: {hint} {example}")
