"""Draw the live view on nodes made of files: AMD in a partition mode, three vendors, the host's memory.

The same files are the golden roots of the tests; nothing in these pictures was measured on such a GPU.
"""

import asyncio
import math
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from benchmarks.machine import Machine
from tests.engine.sources.drm_root import GIB, DrmMachine
from tests.pretend_nvml.layout import FunctionClass
from vramscope.engine.clock import SystemClock
from vramscope.engine.settings import Settings
from vramscope.engine.viewer.hub_feed import attach_or_start
from vramscope.tui.app import VramscopeApp
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.terminal.abilities import TerminalAbilities

SIZE = (100, 24)
HISTORY_S = 30.0
STEP_S = 0.2


class Root(NamedTuple):
    devices: int
    """Pretend NVIDIA devices."""
    name: str
    build: Callable[[DrmMachine, Machine], dict[str, Callable[[float], int]]]
    """Writes the files; returns those that change, each with its value by seconds."""


def _build_amd(machine: DrmMachine, _: Machine) -> dict[str, Callable[[float], int]]:
    used: dict[str, Callable[[float], int]] = {}
    for number in range(4):
        bus = 5 + 0x10 * number
        folder = machine.add_mi300x(f"0000:{bus:02x}:00.0", compute="CPX", memory="NPS4")
        machine.write(f"{folder}/unique_id", f"b7f8a1c2d3e4f5{number:02x}")
        machine.write(f"{folder}/ras/umc_err_count", "ue: 0\nce: 0")
        machine.write(f"{folder}/ras/gpu_vram_bad_pages", "")
        pid = 41000 + number
        machine.host.add_process(pid, command=f"python\0train.py\0--rank\0{number}\0", resident_pages=1 << 20)
        machine.add_computing(pid, **{f"vram_{5000 + number}": (110 + 9 * number) * GIB})
        used[f"{folder}/mem_info_vram_used"] = _saw((118 + 9 * number) * GIB, 14 * GIB, 3.0 + 0.4 * number)
    for number in range(4):  # a card that is added writes the first node
        node = f"sys/class/kfd/kfd/topology/nodes/{1 + number}"
        machine.write(f"{node}/gpu_id", 5000 + number)
        machine.write(f"{node}/properties", f"location_id {5 + 0x10 * number << 8}\ndomain 0")
    return used


def _build_mixed(machine: DrmMachine, nvidia: Machine) -> dict[str, Callable[[float], int]]:
    machine.add_pci_names()
    amd = machine.add_navi("0000:43:00.0")
    machine.write("usr/share/libdrm/amdgpu.ids", "1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX")
    intel = machine.add_battlemage(used_bytes=5 * GIB)
    _add_process(machine, nvidia, 42001, "pretrain.py")
    return {
        f"{amd}/mem_info_vram_used": _saw(15 * GIB, 5 * GIB, 4.0),
        f"{intel}/hwmon/hwmon2/energy1_input": lambda at_s: round(118e6 * at_s),
    }


def _build_unified(machine: DrmMachine, nvidia: Machine) -> dict[str, Callable[[float], int]]:
    nvidia.devices[0].fail(FunctionClass.MEMORY, 3)
    _add_process(machine, nvidia, 43001, "finetune.py")
    machine.write("proc/pressure/memory", "some avg10=0.00 total=9\nfull avg10=0.00 total=4")
    machine.write("proc/vmstat", "pswpin 4\npswpout 5")
    machine.write("proc/meminfo", _meminfo(60 * GIB))
    return {"proc/meminfo": lambda at_s: round(60 * GIB - 1.2 * GIB * at_s)}


ROOTS = {
    "root-amd-100x24": Root(0, "", _build_amd),
    "root-mixed-100x24": Root(1, "NVIDIA H100 80GB HBM3", _build_mixed),
    "root-unified-100x24": Root(1, "NVIDIA GB10", _build_unified),
}


def _add_process(machine: DrmMachine, nvidia: Machine, pid: int, script: str) -> None:
    """Let one process hold the memory of the NVIDIA device."""
    machine.host.add_process(pid, command=f"python\0{script}\0", resident_pages=1 << 19)
    nvidia.devices[0].set_processes([(pid, 38 * GIB, "compute")])
    nvidia.devices[0].set_load(pid, 88, 41)


def _saw(least: int, height: int, period_s: float) -> Callable[[float], int]:
    return lambda at_s: round(least + height * math.fmod(at_s, period_s) / period_s)


def _meminfo(available: int) -> str:
    return (
        f"MemTotal: {128 * GIB >> 10} kB\nMemAvailable: {available >> 10} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB"
    )


async def draw_root(pictures: Path, name: str) -> Path:
    """Run the live view on a root for a while and write what it shows as SVG."""
    root = ROOTS[name]
    with ExitStack() as stack:
        # The view shows the path.
        folder = Path("/tmp/node-of-files")  # noqa: S108  (made here, and removed)
        folder.mkdir()
        stack.callback(shutil.rmtree, folder)
        nvidia = stack.enter_context(Machine(root.devices, name=root.name))
        (folder / "proc").mkdir()
        machine = DrmMachine(folder)
        machine.write("proc/meminfo", _meminfo(96 * GIB))
        changing = root.build(machine, nvidia)
        env = {**nvidia.env, "VRAMSCOPE_NODE": "node03", "VRAMSCOPE_ROOT": str(folder)}
        stack.enter_context(mock.patch.dict(os.environ, env))
        app = VramscopeApp(
            attach_or_start(interval_s=0.25),
            settings=Settings(history_window_s=HISTORY_S),
            abilities=TerminalAbilities(),
            clock=SystemClock(),
            signal_policy=SignalPolicy(is_read_only=True),
            driver_class=None,
        )
        async with app.run_test(size=SIZE) as pilot:
            for step in range(round(HISTORY_S / STEP_S)):
                for file, value in changing.items():
                    now = value(step * STEP_S)
                    # In place, as their readers keep such files open.
                    (folder / file).write_text(f"{_meminfo(now) if file.endswith('meminfo') else now}\n")
                await asyncio.sleep(STEP_S)
            await pilot.pause()
            picture = app.export_screenshot(title="vramscope (a node made of files)")
    path = pictures / f"{name}.svg"
    path.write_text(picture, encoding="utf-8")
    return path
