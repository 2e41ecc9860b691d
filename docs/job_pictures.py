"""Draw the pictures of a training job: the device screen, and the record of its out-of-memory error.

The job is that of `vramscope demo`, run for real on a simulated card from a folder with a short name. It
takes about three minutes.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vramscope.engine.clock import SystemClock
from vramscope.engine.jobs.launch import SimulatedDevice, describe_for_job, make_environment
from vramscope.engine.settings import Settings
from vramscope.engine.units import GIB
from vramscope.engine.viewer.hub_feed import HubFeed
from vramscope.tui.app import VramscopeApp
from vramscope.tui.inspect.inspected import read_inspected
from vramscope.tui.inspect.screen import view_file
from vramscope.tui.live.process_signals import SignalPolicy
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities

WORKLOADS = Path(__file__).resolve().parents[1] / "engine" / "workloads"
SIZE = (120, 40)
JOB = "small-gpt"
STORY_S = 75.0
"""Seconds of history in the picture of the device."""
PATIENCE_S = 300.0


@contextmanager
def training(folder: Path) -> Iterator[HubFeed]:
    """Run the job in a folder until the block ends, and yield the feed of its hub."""
    for script in ("leaking_gpt.py", "small_gpt.py"):
        shutil.copy(WORKLOADS / script, folder)
    runtime_dir = folder / "run"
    base = {**os.environ, "VRAMSCOPE_FLIGHT_DIR": str(folder / "flight"), "OMP_NUM_THREADS": "1"}
    base["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{base.get('PATH', '')}"
    card = SimulatedDevice(total_bytes=3 * GIB // 2)
    simulate = describe_for_job(card, job=JOB, runtime_dir=runtime_dir, environ=base)
    os.environ["VRAMSCOPE_NODE"] = "node03"
    feed = HubFeed(runtime_dir, agent_arguments=("--interval", "0.5"), is_private=True)
    feed.start_hub()
    job = subprocess.Popen(
        ["python", "leaking_gpt.py", "--pace", "0.4", "--evaluate", "1"],
        cwd=folder,
        env=make_environment(base, runtime_dir=runtime_dir, job=JOB, simulate=simulate),
        stdout=subprocess.DEVNULL,
    )
    try:
        yield feed
    finally:
        job.terminate()
        job.wait()


async def draw_device(feed: HubFeed, folder: Path) -> str:
    """Return the picture of the device screen near the limit; the job's record is there when it returns."""
    app = VramscopeApp(
        feed,
        settings=Settings(history_window_s=2 * STORY_S),
        abilities=TerminalAbilities(),
        clock=SystemClock(),
        signal_policy=SignalPolicy(is_read_only=True),
        driver_class=None,
    )
    async with app.run_test(size=SIZE) as pilot:
        await asyncio.sleep(STORY_S)
        await pilot.press("2")
        await asyncio.sleep(12.0)
        await pilot.pause()
        picture = app.export_screenshot(title="vramscope (a simulated device)")
        deadline_s = time.monotonic() + PATIENCE_S
        while not list((folder / "flight").glob("*.gz")) and time.monotonic() < deadline_s:
            await asyncio.sleep(1.0)
    return picture


async def draw_record(folder: Path) -> str:
    """Return the picture of the first flight record of a folder."""
    record = min((folder / "flight").glob("*.gz"))
    view = view_file(record, lambda: read_inspected(record))
    app = TerminalApp(TerminalAbilities(), view=view, clock=SystemClock(), driver_class=None)
    async with app.run_test(size=SIZE) as pilot:
        await asyncio.sleep(3.0)
        await pilot.pause()
        return app.export_screenshot(title="vramscope inspect (a simulated device)")


def draw_job(pictures: Path) -> list[Path]:
    """Write both pictures into a folder and return their paths."""
    folder = Path(tempfile.mkdtemp(prefix="train-", dir="/tmp"))
    try:
        with training(folder) as feed:
            device = asyncio.run(draw_device(feed, folder))
        record = asyncio.run(draw_record(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    paths = [pictures / "device-120x40.svg", pictures / "inspect-120x40.svg"]
    for path, picture in zip(paths, (device, record), strict=True):
        path.write_text(picture, encoding="utf-8")
    return paths
