"""A pretend machine: devices that work, processes that hold their memory, a home of its own."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from tests.pretend_nvml.driver import GIB, PretendDevice, PretendDriver, build_library

from .measure.processes import find_marked

PROCESSES_PER_DEVICE = 2
LIBRARIES = Path(__file__).resolve().parents[1] / "build" / "pretend-nvml"
"""Compiled once into the checkout: a folder that others may write to is no place for a library to load."""
MIB = 1 << 20


class Machine:
    """Pretend devices and the environment in which a program finds them.

    Each device's memory is a sawtooth of two seconds (a training step); every fourth adds a spike of
    0.4 s, and the last one grows. The library computes it on every call, so nothing else runs.
    """

    def __init__(self, devices: int, name: str = "NVIDIA H100 80GB HBM3") -> None:
        self._library = build_library(LIBRARIES)
        self._name = name
        self.folder = tempfile.mkdtemp(prefix="vs-bench-", dir="/tmp")
        self._driver = PretendDriver(Path(self.folder) / "nvml.state")
        self._holders: list[subprocess.Popen[bytes]] = []
        for index in range(devices):
            self._add_device(index, is_last=index == devices - 1)
        self.env = self._make_environment()
        self.terminal_env = {**self.env, "TERM": "tmux-256color", "COLORTERM": "truecolor"}

    def __enter__(self) -> "Machine":
        """Return the machine, to be taken down at the end of a with block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release what hangs, end the processes, remove the folder."""
        self.release()
        for holder in self._holders:
            holder.kill()
            holder.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def devices(self) -> list[PretendDevice]:
        """The pretend devices, to be scripted further."""
        return self._driver.devices

    def hang(self, index: int) -> None:
        """Let every call on one device block."""
        self._driver.devices[index].hang()

    def release(self) -> None:
        """Let calls that hang go on."""
        for device in self._driver.devices:
            device.release()

    def wait_until_gone(self, mark: str, timeout_s: float = 10.0) -> None:
        """Return once all that carries a mark has ended; end by force what has not."""
        deadline_s = time.monotonic() + timeout_s
        while pids := find_marked(mark):
            if time.monotonic() > deadline_s:
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
                raise TimeoutError(f"processes {pids} outlived their program by {timeout_s:g} s")
            time.sleep(0.05)

    def _add_device(self, index: int, *, is_last: bool) -> None:
        device = self._driver.add_device(name=self._name, reserved_bytes=600 * MIB)
        used_bytes = 40 * GIB + (index % 8) * 2 * GIB
        has_spike = index % 4 == 3
        device.set_memory(
            used_bytes,
            sawtooth_bytes=6 * GIB,
            sawtooth_period_s=2.0 + 0.05 * (index % 8),
            spike_bytes=8 * GIB if has_spike else 0,
            spike_period_s=30.0 if has_spike else 0.0,
            spike_length_s=0.4 if has_spike else 0.0,
            ramp_bytes_per_s=20 * MIB if is_last else 0.0,
        )
        device.raw.temperature_c = 58 + index % 10
        device.raw.gpu_percent = 90 + index % 10
        pids = [self._start_holder(index) for _ in range(PROCESSES_PER_DEVICE)]
        device.set_processes([(pid, used_bytes // 2, "compute") for pid in pids])
        for number, pid in enumerate(pids):
            device.set_load(pid, 0 if number else device.raw.gpu_percent - 2, 0 if number else 41)

    def _start_holder(self, rank: int) -> int:
        """Start a process that does nothing and stands in, under its name, for one that trains."""
        command = [f"python train.py --rank {rank}", "86400"]
        holder = subprocess.Popen(command, executable=shutil.which("sleep"), stdin=subprocess.DEVNULL)
        self._holders.append(holder)
        return holder.pid

    def _make_environment(self) -> dict[str, str]:
        """Return an environment that knows the pretend driver, and nothing of who runs the benchmark."""
        kept = {name: os.environ[name] for name in ("PATH", "USER", "LOGNAME", "SHELL") if name in os.environ}
        folders = {
            "HOME": "home",
            "XDG_CONFIG_HOME": "home/config",
            "XDG_STATE_HOME": "home/state",
            "XDG_RUNTIME_DIR": "run",
        }
        for name in folders.values():
            (Path(self.folder) / name).mkdir(mode=0o700, exist_ok=True)
        places = {variable: str(Path(self.folder) / name) for variable, name in folders.items()}
        return {
            **kept,
            **places,
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            **self._driver.environment(self._library),
        }
