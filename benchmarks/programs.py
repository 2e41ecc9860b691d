"""What is measured: vramscope, and its peer."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = Path(sys.executable).parent
PEERS = ROOT / ".venv" / "peers" / "bin"


@dataclass(frozen=True)
class Program:
    """One monitor as a person starts it, and how to recognize what it shows."""

    name: str
    live: tuple[str, ...]
    """Command of its live view at one figure a second."""
    once: tuple[str, ...]
    """Command that prints the devices once."""
    figure: str
    """Pattern of a device's memory figure on its screen."""
    whole: str
    """Pattern of what it shows last: from then on it acts on keys."""
    help_key: str
    help_text: str
    """Pattern that only its help screen shows."""


def find_vramscope() -> Program:
    """Return vramscope of the environment that runs the benchmark."""
    command = str(ENVIRONMENT / "vramscope")
    return Program(
        name="vramscope",
        live=(command,),
        once=(command, "--once"),
        figure=r"\d+\.\d+\s*/\s*\d+\.\d+\s*GiB",
        whole=r"\bquit\b",
        help_key="?",
        help_text=r"(?i)keys everywhere|\bhelp\b.*\bquit\b",
    )


def find_nvitop() -> Program | None:
    """Return nvitop (XuehaiPan/nvitop) as `make bench` installs it, or None where it is not."""
    command = os.environ.get("NVITOP") or str(PEERS / "nvitop")
    if not Path(command).exists():
        return None
    return Program(
        name="nvitop",
        live=(command, "--monitor", "full", "--interval", "1"),
        once=(command, "--once"),
        figure=r"\d+\.\d+[GM]iB\s*/\s*\d+\.\d+GiB",
        whole=r"\d+\.\d+[GM]iB\s*/\s*\d+\.\d+GiB",
        help_key="h",
        help_text=r"(?i)press any key to return",
    )


def find_programs() -> list[Program]:
    """Return vramscope and the peers that are installed."""
    peer = find_nvitop()
    return [find_vramscope(), *([peer] if peer else [])]


@contextmanager
def running_agent(
    folder: Path, interval: str = "1s", *, env: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run an agent that serves a runtime folder, as a person who attaches or watches has one."""
    command = [find_vramscope().live[0], "agent", "--runtime-dir", str(folder), "--interval", interval]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=env) as process:
        try:
            deadline_s = time.monotonic() + 10.0
            while not (folder / "probe.sock").exists() and time.monotonic() < deadline_s:
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
