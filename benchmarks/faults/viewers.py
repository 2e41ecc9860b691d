"""Viewers that are started, stopped and asked what they saw."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

POLL_S = 0.05
SOON_S = 90.0
"""What has not come about by then is not waited for any longer."""


class Viewer:
    """One viewer in a process of its own.

    Args:
        address: Of the node, as a person types it.
        env: With the folder of its keys.
        path: Where it writes what it sees.
    """

    def __init__(self, address: str, env: dict[str, str], path: Path) -> None:
        self._path = path
        command = [sys.executable, "-m", "benchmarks.faults.watching", address, str(path)]
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)

    def __enter__(self) -> Self:
        """Return the viewer, which sees the node."""
        self.wait_for(lambda line: line.get("connection") == "live", 0.0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.end()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What it has written so far."""
        if not self._path.exists():
            return []
        text = self._path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def pause(self) -> None:
        """Stop the process."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let the process go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], since_s: float) -> float | None:
        """Return when it first wrote a line that meets a condition; None where it did not.

        Args:
            condition: Of one line.
            since_s: Lines before this moment are left out (monotonic seconds).
        """
        deadline_s = time.monotonic() + SOON_S
        while time.monotonic() < deadline_s:
            found_s = self.find(condition, since_s)
            if found_s is not None:
                return found_s
            time.sleep(POLL_S)
        return None

    def find(self, condition: Callable[[dict[str, Any]], bool], since_s: float) -> float | None:
        """Return the same of the lines so far, without waiting."""
        return next((float(line["written_s"]) for line in self.since(since_s) if condition(line)), None)

    def since(self, since_s: float) -> list[dict[str, Any]]:
        """Return the lines about its picture since a moment (monotonic seconds)."""
        return [line for line in self.lines if line.get("written_s", -math.inf) >= since_s]

    def delays_s(self, since_s: float) -> list[float]:
        """Return how old each sample was, in seconds, when the picture had it; sorted."""
        delays: dict[int, float] = {}
        for line in self.since(since_s):
            if line["seq"] is not None:
                delays[line["seq"]] = min(line["late_s"], delays.get(line["seq"], math.inf))
        return sorted(list(delays.values())[1:])

    def said(self, since_s: float) -> list[str]:
        """Return the reasons that it gave, each once."""
        return list(dict.fromkeys(line["reason"] for line in self.since(since_s) if is_lost(line)))

    def end(self) -> dict[str, Any]:
        """End it, and return its last line: what it remembers, and what it misses."""
        if self._process.poll() is None:
            self.resume()
            self._process.terminate()
            self._process.wait(20.0)
        return self.lines[-1]


def is_lost(line: dict[str, Any]) -> bool:
    """Return whether the node was lost."""
    return bool(line["connection"] == "lost")


def is_live_after(seq: int, hub_id: str | None) -> Callable[[dict[str, Any]], bool]:
    """Return whether there was a newer sample than this one, or one of another hub."""
    return lambda line: (
        line["connection"] == "live"
        and (line["hub_id"] != hub_id or (line["seq"] is not None and line["seq"] > seq))
    )
