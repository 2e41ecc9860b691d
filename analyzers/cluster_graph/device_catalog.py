"""Devices by name: memory, speed, and the links that their vendor builds them with.

Speed is that of dense matrix products in bfloat16 with sums in float32, without sparsity (float16 on V100 and
T4, which have no bfloat16); bandwidth is that of the device's own memory. Both are from the vendors' data
sheets: NVIDIA's of V100 (2020), T4, A100 (2022), H100, GH200, H20 (2023), H200, HGX B200, GB200 NVL72 (2024),
A10, A40, RTX A6000, L4, L40, L40S, and its white papers of GA102, AD102 and RTX Blackwell for GeForce; AMD's
of MI250X (2021), MI300X (2023), MI325X (2024). Memory is what the driver reports as total, which is less than
the data sheet says where ECC or firmware keep some.

The network is one port for each device, as in the vendors' systems: DGX-1 (4 x EDR for 8 devices), DGX A100
(HDR), DGX H100, DGX B200 and GB200 NVL72 (NDR), Frontier (Slingshot 11), the platforms of MI300X (400 Gb/s).
Cards without such a system have none.
"""

from collections.abc import Mapping

import msgspec

from ...engine.units import MIB
from .names import find_by_name


class DeviceModel(msgspec.Struct, frozen=True, gc=False):
    """One product."""

    kind: str
    memory_mib: int
    tflops: float
    """Dense, 16 bits, at most: 10^12 FLOP/s."""
    memory_gb_per_s: float
    link: str
    """Between two of them in one node, by its name in `LINKS`."""
    network: str | None = None
    """To another node, by its name in `LINKS`; None where its vendor builds no system of several."""

    @property
    def memory_bytes(self) -> int:
        """Total memory."""
        return self.memory_mib * MIB

    @property
    def flops_per_s(self) -> float:
        """Dense matrix products in 16 bits, at most."""
        return self.tflops * 1e12

    @property
    def memory_bytes_per_s(self) -> float:
        """Bandwidth of the device's own memory."""
        return self.memory_gb_per_s * 1e9


DEVICES: Mapping[str, DeviceModel] = {
    "v100-16gb": DeviceModel("V100 16GB", 16384, 125, 900, "nvlink2", "dgx-1"),
    "v100-32gb": DeviceModel("V100 32GB", 32768, 125, 900, "nvlink2", "dgx-1"),
    "t4": DeviceModel("T4", 15360, 65, 320, "pcie3"),
    "a10": DeviceModel("A10", 23028, 125, 600, "pcie4"),
    "a40": DeviceModel("A40", 46068, 149.7, 696, "pcie4"),
    "a6000": DeviceModel("RTX A6000", 49140, 154.8, 768, "pcie4"),
    "a100-40gb": DeviceModel("A100 40GB", 40960, 312, 1555, "nvlink3", "ib-hdr"),
    "a100-80gb": DeviceModel("A100 80GB", 81920, 312, 2039, "nvlink3", "ib-hdr"),
    "a100-pcie-80gb": DeviceModel("A100 PCIe 80GB", 81920, 312, 1935, "pcie4"),
    "h100": DeviceModel("H100 80GB", 81559, 989.4, 3350, "nvlink4", "ib-ndr"),
    "h100-pcie": DeviceModel("H100 PCIe 80GB", 81559, 756, 2000, "pcie5"),
    "h100-nvl": DeviceModel("H100 NVL 94GB", 95830, 835.5, 3938, "pcie5"),
    "gh200": DeviceModel("GH200 96GB", 97871, 989.4, 4000, "nvlink4", "ib-ndr"),
    "h20": DeviceModel("H20 96GB", 97871, 148, 4000, "nvlink4", "ib-ndr"),
    "h200": DeviceModel("H200 141GB", 143771, 989.4, 4800, "nvlink4", "ib-ndr"),
    "h200-nvl": DeviceModel("H200 NVL 141GB", 143771, 835.5, 4800, "pcie5"),
    "b200": DeviceModel("B200 180GB", 183359, 2250, 8000, "nvlink5", "ib-ndr"),
    "gb200": DeviceModel("GB200 186GB", 189471, 2500, 8000, "nvlink5", "ib-ndr"),
    "l4": DeviceModel("L4", 23034, 60.5, 300, "pcie4"),
    "l40": DeviceModel("L40", 46068, 181, 864, "pcie4"),
    "l40s": DeviceModel("L40S", 46068, 362, 864, "pcie4"),
    "rtx3090": DeviceModel("RTX 3090", 24576, 71, 936, "pcie4"),
    "rtx4090": DeviceModel("RTX 4090", 24564, 165.2, 1008, "pcie4"),
    "rtx5090": DeviceModel("RTX 5090", 32607, 209.5, 1792, "pcie5"),
    "mi250x": DeviceModel("MI250X, one of two dies", 65520, 191.5, 1638, "xgmi2", "slingshot-11"),
    "mi300x": DeviceModel("MI300X 192GB", 196592, 1307.4, 5300, "xgmi3", "roce-400"),
    "mi325x": DeviceModel("MI325X 256GB", 262128, 1307.4, 6000, "xgmi3", "roce-400"),
}
"""By the name that is written in a cluster file; SXM and OAM modules where the name says nothing."""


def find_device(name: str) -> DeviceModel:
    """Return a device by its name, for example `h100`.

    Raises:
        UsageError: No such name; the text has the nearest ones.
    """
    return find_by_name(DEVICES, name, "device", "(or give memory and tflops in a cluster file)")
