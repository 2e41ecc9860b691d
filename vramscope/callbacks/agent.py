"""What the agent of this node knows of this process, asked in the background: steps never wait for it."""

import os
import threading
import time
from typing import TYPE_CHECKING

from vramscope.engine.probe.identity import read_started_s
from vramscope.engine.units import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vramscope.engine.model import Assessment

ASK_EVERY_S = 10.0
ANSWERS_WITHIN_S = 3.0
# An assessment that is older is of another situation.
OLDEST_S = 30.0


class AgentView:
    """The newest assessment of this process, by the agent of this node.

    The first question of a log starts a thread. Without an agent that thread looks at one lock file every ten
    seconds; with one it asks for what is known now, without samples and past.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._newest: tuple[Assessment, ...] = ()
        self._is_closed = threading.Event()

    def read(self) -> dict[str, float]:
        """Return the values for a log; empty without an agent, or before it knows this process."""
        if self._thread is None or not self._thread.is_alive():  # a fork has no threads
            self._thread = threading.Thread(target=self._follow, name="vramscope-agent", daemon=True)
            self._thread.start()
        return describe_own(self._newest, time.time()) if self._newest else {}

    def close(self) -> None:
        """End the thread; a program that ends need not, as the thread does not outlive it."""
        self._is_closed.set()
        if self._thread is not None:
            self._thread.join(2 * ANSWERS_WITHIN_S)

    def _follow(self) -> None:
        from vramscope.engine.paths import locate_runtime_folder
        from vramscope.engine.wire.endpoints import is_hub_alive

        pid, started_s = os.getpid(), read_started_s()
        while not self._is_closed.is_set():
            try:
                folder = locate_runtime_folder()
                found: Sequence[Assessment] = ()
                if is_hub_alive(folder):
                    from vramscope.engine.viewer.client import ask_assessments

                    found = ask_assessments(folder, timeout_s=ANSWERS_WITHIN_S)
                self._newest = tuple(
                    it
                    for it in found
                    if it.pid == pid and started_s is not None and it.started_s == started_s
                )
            except Exception:  # noqa: BLE001 - a monitor never ends what it monitors
                self._newest = ()
            self._is_closed.wait(ASK_EVERY_S)


def describe_own(assessments: "Sequence[Assessment]", now_s: float) -> dict[str, float]:
    """Return what assessments of one process say, of the device with the least headroom; no stale ones."""
    fresh = [it for it in assessments if abs(now_s - it.time_s) <= OLDEST_S]
    if not fresh:
        return {}
    chosen = min(fresh, key=_headroom)
    found: dict[str, float] = {}
    if chosen.growth_bytes_per_step is not None:
        found["vram/growth_mib_per_step"] = chosen.growth_bytes_per_step / MIB
    if chosen.capacity_bytes is not None and chosen.peak_bytes is not None:
        found["vram/headroom_at_peak_gib"] = (chosen.capacity_bytes - chosen.peak_bytes) / GIB
    if chosen.oom_in_s is not None:
        found["vram/oom_in_s"] = max(0.0, chosen.oom_in_s - max(0.0, now_s - chosen.time_s))
    return found


def _headroom(assessment: "Assessment") -> float:
    if assessment.capacity_bytes is None or assessment.peak_bytes is None:
        return float("inf")
    return assessment.capacity_bytes - assessment.peak_bytes
