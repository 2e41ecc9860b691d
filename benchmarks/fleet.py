"""The fleet screen on made nodes: CPU of the viewer, of a frame, and bytes to a terminal of 200x50.

python -m benchmarks.fleet [SECONDS]

The nodes are made in the viewer's own process, once a second each, spread over the second; what that costs is
counted by the thread that makes them and taken off. Nothing is sent by a network.
"""

import json
import math
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vramscope.engine.clock import SystemClock
from vramscope.engine.history import History
from vramscope.engine.model import (
    Assessment,
    DeviceSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    Sample,
)
from vramscope.engine.settings import Settings
from vramscope.engine.viewer.snapshot import Snapshot

from .measure.tables import format_table
from .measure.terminal import Terminal

DEVICES_A_NODE = 8
TOTAL_BYTES = 80 * 1024**3
SETTLE_S = 5.0
COLUMNS, ROWS = 200, 50
KINDS = ("drifting", "jumping")
"""How the memory of devices changes: slowly, or by up to 30 % of the capacity every second, each of them."""


class MadeNodes:
    """Nodes whose devices fill up and empty step by step, each at its own pace; some near an error."""

    def __init__(self, devices: int, *, is_jumping: bool) -> None:
        self.history = History()
        self._is_jumping = is_jumping
        self._names = [f"n{number:04d}" for number in range(devices // DEVICES_A_NODE)]
        self._is_stopped = threading.Event()
        self.cpu_s = 0.0
        """CPU time of the thread that makes them."""

    def start(self, on_snapshot: Callable[[Snapshot], None]) -> None:
        """Hand over every node once a second, from a thread."""
        threading.Thread(target=self._make, args=(on_snapshot,), daemon=True).start()

    def _make(self, on_snapshot: Callable[[Snapshot], None]) -> None:
        begun_s, seq = time.monotonic(), 0
        while not self._is_stopped.is_set():
            for number, name in enumerate(self._names):
                on_snapshot(make_node(name, number, seq, is_jumping=self._is_jumping))
                if number % 16 == 0:
                    self.cpu_s = time.thread_time()
                    due_s = begun_s + seq + number / len(self._names)
                    time.sleep(max(0.0, due_s - time.monotonic()))
            seq += 1
            time.sleep(max(0.0, begun_s + seq - time.monotonic()))

    def history_of(self, node: str) -> History:
        """Return a history, which is empty."""
        return self.history

    def look_at(self, node: str) -> None:
        """Do nothing."""

    def ask_segments(self, pid: int) -> None:
        """Do nothing."""

    def ask_modules(self, pid: int) -> None:
        """Do nothing."""

    def decide(self, decision: object) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """End the thread."""
        self._is_stopped.set()


def make_node(name: str, number: int, seq: int, *, is_jumping: bool = False) -> Snapshot:
    """Return a node at a second; of devices that jump, each is read at another moment of its step."""
    devices, ranks, said = [], [], []
    now_s = time.time()
    for index in range(DEVICES_A_NODE):
        rank = number * DEVICES_A_NODE + index
        share = 0.75 + 0.15 * math.sin(rank * 1.7 + seq * (2.1 if is_jumping else 1 / (3 + rank % 11)))
        uuid = f"GPU-{rank:06d}"
        used = int(share * TOTAL_BYTES)
        devices.append(
            DeviceSample(uuid, index, "NVIDIA H100", age_s=0.1, memory=MemoryReading(TOTAL_BYTES, used))
        )
        place = RankCoordinates(rank, tp=index, pp=number % 16, dp=number // 16)
        ranks.append(RankSample(1000 + index, job="gpt-485b", device_uuid=uuid, coordinates=place))
        level, left_s = ("high", 600.0 - seq % 600) if rank % 50 == 7 else ("low", None)
        said.append(
            Assessment(name, uuid, str(index), now_s, level, "headroom", pid=1000 + index, oom_in_s=left_s)  # type: ignore[arg-type]
        )
    sample = Sample(name, seq, now_s, 1.0, tuple(devices), ranks=tuple(ranks))
    return Snapshot("live", sample=sample, assessments=tuple(said), node=name)


def view(devices: int, seconds: float, report: Path, *, is_jumping: bool) -> None:
    """Show made nodes on this terminal, and write what that cost."""
    from vramscope.tui.app import VramscopeApp
    from vramscope.tui.fleet.screen import FleetScreen
    from vramscope.tui.live.process_signals import SignalPolicy
    from vramscope.tui.terminal.abilities import TerminalAbilities

    feed, frames = MadeNodes(devices, is_jumping=is_jumping), [0]
    show_news = FleetScreen.show_news

    def count(screen: FleetScreen) -> None:
        frames[0] += 1
        show_news(screen)

    FleetScreen.show_news = count  # type: ignore[method-assign,assignment]
    app = VramscopeApp(
        feed,
        settings=Settings(),
        abilities=TerminalAbilities(),
        clock=SystemClock(),
        signal_policy=SignalPolicy(is_read_only=True),
    )
    marks: list[dict[str, Any]] = []

    def mark() -> None:
        used = time.process_time() - feed.cpu_s
        marks.append({"wall_s": time.monotonic(), "cpu_s": used, "frames": frames[0]})
        report.write_text(json.dumps(marks), encoding="utf-8")

    for delay_s in (SETTLE_S, SETTLE_S + seconds):
        threading.Timer(delay_s, mark).start()
    threading.Timer(SETTLE_S + seconds + 1.0, lambda: app.call_later(app.exit)).start()
    app.run(mouse=False)
    marks[-1]["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report.write_text(json.dumps(marks), encoding="utf-8")


def measure_fleet(devices: int, seconds: float, kind: str) -> dict[str, float]:
    """Return CPU in percent of a core, of a frame in ms, frames and bytes a second, peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "marks.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.fleet",
            "view",
            str(devices),
            str(seconds),
            str(report),
            kind,
        ]
        env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        with Terminal(command, env, COLUMNS, ROWS) as terminal:
            written = [_wait_for_marks(report, count, terminal, seconds) for count in (1, 2)]
            terminal.wait_for_end(20.0)
        first, last = json.loads(report.read_text(encoding="utf-8"))
    wall_s, cpu_s = last["wall_s"] - first["wall_s"], last["cpu_s"] - first["cpu_s"]
    frames = last["frames"] - first["frames"]
    return {
        "devices": devices,
        "cpu_percent": 100 * cpu_s / wall_s,
        "frame_cpu_ms": 1000 * cpu_s / max(1, frames),
        "frames_per_s": frames / wall_s,
        "bytes_per_s": (written[1] - written[0]) / wall_s,
        "peak_mib": last["peak_mib"],
    }


def _wait_for_marks(report: Path, count: int, terminal: Terminal, seconds: float) -> int:
    """Return the bytes that were written when so many marks were made."""
    deadline_s = time.monotonic() + SETTLE_S + seconds + 60.0
    while time.monotonic() < deadline_s:
        try:
            if len(json.loads(report.read_text(encoding="utf-8"))) >= count:
                return terminal.bytes_written
        except (OSError, ValueError):
            pass  # it is being written
        time.sleep(0.02)
    raise TimeoutError(f"the view made no mark {count}: {terminal.text()[-400:]}")


def main() -> None:
    """Measure 1,024 and 8,192 devices and print the table."""
    if sys.argv[1:2] == ["view"]:
        view(int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]), is_jumping=sys.argv[5] == KINDS[1])
        return
    seconds = float(sys.argv[1]) if sys.argv[1:] else 20.0
    cases = [(devices, kind) for devices in (1024, 8192) for kind in KINDS]
    found = [measure_fleet(devices, seconds, kind) for devices, kind in cases]
    head = ["memory", "devices", "CPU % of a core", "CPU ms a frame", "frames/s", "bytes/s", "peak MiB"]
    rows = [
        [kind, *(f"{value:,.0f}" if name == "devices" else f"{value:,.1f}" for name, value in it.items())]
        for it, (_, kind) in zip(found, cases, strict=True)
    ]
    print(format_table(f"The fleet screen at {COLUMNS}x{ROWS}, made nodes at 1 Hz", head, rows))


if __name__ == "__main__":
    main()
