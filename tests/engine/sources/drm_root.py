"""GPUs made of files: /sys and /proc below a folder of the test's own, as the kernel drivers write them."""

import struct
from pathlib import Path

from tests.engine.sources.machine import FakeMachine

GIB = 1 << 30


def make_metrics(revision: tuple[int, int], size: int, **values: tuple[int, str, int]) -> bytes:
    """Return a table of `gpu_metrics` with all bits set, but for some fields.

    Args:
        values: Offset, code of `struct`, value.
    """
    table = bytearray(b"\xff" * size)
    struct.pack_into("<HBB", table, 0, size, *revision)
    for offset, code, value in values.values():
        struct.pack_into(f"<{code}", table, offset, value)
    return bytes(table)


NAVI_METRICS = make_metrics(
    (1, 3),
    120,
    edge=(4, "H", 55),
    junction=(6, "H", 63),
    power=(22, "H", 212),
    busy=(16, "H", 97),
    memory_busy=(18, "H", 41),
    clock=(54, "H", 2484),
    memory_clock=(58, "H", 1249),
    lanes=(74, "H", 16),
    speed=(76, "H", 160),
    throttling=(112, "Q", 1 << 36 | 1),
)
MI300_METRICS = make_metrics(
    (1, 6),
    1664,
    junction=(4, "H", 71),
    power=(10, "H", 701),
    busy=(12, "H", 88),
    memory_busy=(14, "H", 33),
    lanes=(60, "H", 16),
    speed=(62, "H", 320),
    clock_0=(264, "H", 2101),
    clock_1=(266, "H", 2090),
    memory_clock=(304, "H", 1300),
    # Links of XGMI to the seven others of its node: 16 lanes of 32 Gbit/s, and the KB that each has carried.
    xgmi_width=(64, "H", 16),
    xgmi_speed=(66, "H", 32),
    **{f"xgmi_read_{link}": (128 + 8 * link, "Q", (9_000 + 17 * link) << 20) for link in range(7)},
    **{f"xgmi_written_{link}": (192 + 8 * link, "Q", (8_900 + 13 * link) << 20) for link in range(7)},
)


def encode_listed(unit: int, kind: int, identity: int, *values: int) -> bytes:
    """Return a field of revision 1.9: its unit, type, id and length, and then its values."""
    encoded = unit << 24 | kind << 20 | identity << 10 | len(values)
    return struct.pack(f"<Q{len(values)}{'BbHhIiQq'[kind]}", encoded, *values)


def make_listed(*fields: bytes) -> bytes:
    """Return a table of revision 1.9."""
    body = struct.pack("<I", len(fields)) + b"".join(fields)
    return struct.pack("<HBB", 4 + len(body), 1, 9) + body


LISTED_METRICS = make_listed(
    encode_listed(2, 2, 0, 71),  # degrees of the hottest place, and of the memory
    encode_listed(2, 2, 1, 55),
    encode_listed(3, 2, 3, 701),  # watts
    encode_listed(10, 2, 4, 88),  # per cent of time: compute, memory
    encode_listed(10, 2, 5, 33),
    encode_listed(0, 6, 7, 1 << 40),  # energy
    # Cycles of the firmware, and those in which the board, power, chip, regulators and memory slowed it down.
    *(encode_listed(0, 4, 9 + at, count) for at, count in enumerate((900, 1, 20, 3, 4, 5))),
    encode_listed(0, 2, 16, 16),  # lanes of the bus, and its speed in 0.1 GT/s
    encode_listed(7, 2, 17, 320),
    encode_listed(1, 2, 33, 2090, 2101, *[0xFFFF] * 6),  # MHz of the compute dies, and of the memory
    encode_listed(1, 2, 37, 1300),
    encode_listed(10, 0, 900, 1, 2, 3),  # one of a later driver
)
APU_METRICS = make_metrics((2, 3), 152, clock=(76, "H", 2700), throttling=(120, "Q", 0))


class DrmMachine:
    """Writes what the kernel would show of GPUs; changes are seen by the next reading."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = FakeMachine(root)
        (root / "sys/class/drm").mkdir(parents=True, exist_ok=True)
        self._card_count = 0

    def write(self, name: str, content: str | bytes | int) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
        return path

    def add_card(
        self,
        address: str,
        *,
        driver: str = "amdgpu",
        render_node: str | None = None,
        files: dict[str, str | bytes | int] | None = None,
    ) -> str:
        """Add a card, and return its folder below the root."""
        folder = f"sys/devices/pci0000:00/{address}"
        (self.root / folder).mkdir(parents=True)
        (self.root / folder / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        link = self.root / f"sys/class/drm/card{self._card_count}"
        link.mkdir()
        (link / "device").symlink_to(self.root / folder)
        (self.root / f"sys/class/drm/card{self._card_count}-DP-1").mkdir()
        (self.root / folder / f"drm/card{self._card_count}").mkdir(parents=True)
        if render_node is not None:
            (self.root / folder / "drm" / render_node).mkdir()
            node = self.root / "sys/class/drm" / render_node
            node.mkdir()
            (node / "device").symlink_to(self.root / folder)
        self._card_count += 1
        known: dict[str, str | bytes | int] = {"vendor": "0x1002", "power/runtime_status": "active"}
        for name, content in (known | (files or {})).items():
            self.write(f"{folder}/{name}", content)
        return folder

    def add_navi(self, address: str = "0000:03:00.0", *, used_bytes: int = 6 * GIB) -> str:
        return self.add_card(
            address,
            files={
                "device": "0x744c",
                "revision": "0xc8",
                "unique_id": "1a2b3c4d5e6f7788",
                "mem_info_vram_total": 24 * GIB,
                "mem_info_vram_used": used_bytes,
                "mem_info_gtt_total": 32 * GIB,
                "mem_info_gtt_used": 1 * GIB,
                "gpu_busy_percent": 96,
                "mem_busy_percent": 40,
                "gpu_metrics": NAVI_METRICS,
                "hwmon/hwmon3/temp1_input": 54000,
                "hwmon/hwmon3/temp1_label": "edge",
                "hwmon/hwmon3/temp2_input": 62000,
                "hwmon/hwmon3/temp2_label": "junction",
                "hwmon/hwmon3/power1_average": 211_000_000,
                "hwmon/hwmon3/power1_cap": 303_000_000,
                "hwmon/hwmon3/pwm1": 102,
                "hwmon/hwmon3/pwm1_max": 255,
            },
        )

    def add_mi300x(
        self, address: str = "0000:05:00.0", *, compute: str = "SPX", memory: str = "NPS1", parts: int = 1
    ) -> str:
        """Add an Instinct GPU in a partition mode, with a compute node for each partition."""
        folder = self.add_card(
            address,
            files={
                "device": "0x74a1",
                "product_name": "AMD Instinct MI300X OAM",
                "unique_id": "b7f8a1c2d3e4f506",
                "current_compute_partition": compute,
                "current_memory_partition": memory,
                "mem_info_vram_total": 192 * GIB,
                "mem_info_vram_used": 40 * GIB,
                "mem_info_gtt_total": 512 * GIB,
                "gpu_metrics": MI300_METRICS,
                "ras/umc_err_count": "ue: 1\nce: 12",
                "ras/gpu_vram_bad_pages": "0x00001234 : 0x00001000 : R\n0x00001235 : 0x00001000 : P",
                "hwmon/hwmon1/temp2_input": 70000,
                "hwmon/hwmon1/temp2_label": "junction",
                "hwmon/hwmon1/power1_input": 700_000_000,
            },
        )
        bus = int(address.split(":")[1], 16)
        self.write("sys/class/kfd/kfd/topology/nodes/0/gpu_id", 0)
        for part in range(parts):
            node = f"sys/class/kfd/kfd/topology/nodes/{1 + part}"
            self.write(f"{node}/gpu_id", 5000 + part)
            # Some kernels have the number of the partition in the place of the function.
            self.write(f"{node}/properties", f"simd_count 304\nlocation_id {bus << 8 | part}\ndomain 0")
            self.write(f"sys/class/drm/card{self._card_count}/device/uevent", "DRIVER=amdgpu_xcp")
            self._card_count += 1
        return folder

    def add_apu(self, address: str = "0000:c1:00.0") -> str:
        return self.add_card(
            address,
            files={
                "device": "0x15bf",
                "mem_info_vram_total": GIB // 2,
                "mem_info_vram_used": GIB // 4,
                "mem_info_gtt_total": 16 * GIB,
                "mem_info_gtt_used": 3 * GIB,
                "gpu_metrics": APU_METRICS,
            },
        )

    def add_intel(
        self,
        address: str = "0000:03:00.0",
        *,
        driver: str,
        device: str,
        render_node: str = "renderD128",
        files: dict[str, str | bytes | int] | None = None,
    ) -> str:
        known: dict[str, str | bytes | int] = {"vendor": "0x8086", "device": device}
        return self.add_card(address, driver=driver, render_node=render_node, files=known | (files or {}))

    def add_arc_i915(self) -> str:
        """Add an Arc A770; i915 has no file with the size or use of its memory."""
        number = self._card_count
        part = f"drm/card{number}/gt/gt0"
        return self.add_intel(
            driver="i915",
            device="0x56a0",
            files={
                f"{part}/rps_act_freq_mhz": 2100,
                f"{part}/rps_max_freq_mhz": 2400,
                f"{part}/throttle_reason_status": 1,
                f"{part}/throttle_reason_pl1": 1,
                f"{part}/throttle_reason_thermal": 0,
                "hwmon/hwmon4/name": "i915",
                "hwmon/hwmon4/energy1_input": 5_000_000,
                "hwmon/hwmon4/power1_max": 190_000_000,
                "hwmon/hwmon4/power1_crit": 300_000_000,
                "hwmon/hwmon4/in0_input": 1050,
                "hwmon/hwmon5/name": "i915_gt0",
                "hwmon/hwmon5/energy1_input": 1_000_000,
            },
        )

    def add_xe(self, device: str, **more: int) -> str:
        part = "tile0/gt0/freq0"
        return self.add_intel(
            driver="xe",
            device=device,
            files={
                f"{part}/act_freq": 2400,
                f"{part}/max_freq": 2850,
                f"{part}/throttle/status": 0,
                f"{part}/throttle/reason_pl1": 0,
                f"{part}/throttle/reason_thermal": 0,
                **more,
            },
        )

    def add_arc_xe(self) -> str:
        """Add an Arc A770 on a kernel that has no control groups for device memory."""
        return self.add_xe("0x56a0", **{"tile0/physical_vram_size_bytes": 16 * GIB})

    def add_battlemage(self, *, used_bytes: int = 3 * GIB) -> str:
        """Add an Arc B580 on a kernel with control groups for device memory."""
        folder = self.add_xe(
            "0xe20b",
            **{
                "hwmon/hwmon2/temp2_input": 61000,
                "hwmon/hwmon2/temp3_input": 66000,
                "hwmon/hwmon2/energy1_input": 9_000_000,
                "hwmon/hwmon2/energy2_input": 7_000_000,
                "hwmon/hwmon2/power1_max": 190_000_000,
                "hwmon/hwmon2/fan1_input": 1450,
            },
        )
        self.write(f"{folder}/hwmon/hwmon2/temp2_label", "pkg")
        self.write(f"{folder}/hwmon/hwmon2/temp3_label", "vram")
        self.write("sys/fs/cgroup/dmem.capacity", f"drm/0000:03:00.0/vram0 {12 * GIB}")
        self.write("sys/fs/cgroup/dmem.current", f"drm/0000:03:00.0/vram0 {used_bytes}")
        return folder

    def add_pci_names(self) -> None:
        self.write(
            "usr/share/misc/pci.ids",
            "# List\n1002  Advanced Micro Devices, Inc.\n\t56a0  Not this one\n"
            "8086  Intel Corporation\n\t56a0  DG2 [Arc A770]\n\te20b  Battlemage G21 [Arc B580]\n"
            "\t\t8086 1100  Of a maker\n\t7d55  Meteor Lake-P\n9004  Adaptec\n\tabcd  Not Intel's\n",
        )

    def add_computing(self, pid: int, **used_bytes: int) -> None:
        """Add a compute process: bytes by `vram_<id of the compute node>`."""
        for name, size in used_bytes.items():
            self.write(f"sys/class/kfd/kfd/proc/{pid}/{name}", size)

    def add_drawing(self, pid: int, descriptor: int, text: str, *, node: str = "renderD128") -> None:
        """Give a process that exists a device file."""
        (self.root / f"proc/{pid}/fd").mkdir(parents=True, exist_ok=True)
        (self.root / f"proc/{pid}/fd/{descriptor}").symlink_to(f"/dev/dri/{node}")
        self.write(f"proc/{pid}/fdinfo/{descriptor}", f"pos:\t0\nflags:\t02100002\n{text}")
