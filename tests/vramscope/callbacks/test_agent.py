"""What an agent says of the process that logs, from a real hub and worker."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import vramscope.callbacks.agent as agent_module
from tests.engine.agent.assessors import UsedAssessor, make_assessment
from tests.engine.agent.hubs import RunningHub, make_sample
from tests.engine.agent.test_worker import RunningWorker
from tests.waiting import wait_until
from vramscope.callbacks.agent import AgentView, describe_own
from vramscope.engine.model import Assessment, Finding, Sample
from vramscope.engine.probe.identity import read_started_s
from vramscope.engine.viewer.client import ask_assessments
from vramscope.engine.wire.endpoints import HubLock

GIB, MIB = 1 << 30, 1 << 20
GROWING = make_assessment(
    1000.0,
    capacity_bytes=80 * GIB,
    peak_bytes=72 * GIB,
    growth_bytes_per_step=3 * MIB,
    oom_in_s=600.0,
)


class OwnAssessor(UsedAssessor):
    """Says the same of this process and of another one that has its number on another machine."""

    def observe(self, sample: Sample) -> Sequence[Finding]:
        super().observe(sample)
        told: list[Assessment] = []
        for uuid, started_s, peak in (("GPU-a", read_started_s(), 72), ("GPU-b", 5.0, 79)):
            fields = {"device_uuid": uuid, "pid": os.getpid(), "started_s": started_s, "time_s": time.time()}
            told.append(msgspec.structs.replace(GROWING, peak_bytes=peak * GIB, **fields))
        self._changed = told
        return ()


@pytest.mark.waits
def test_the_log_gets_what_the_agent_says_of_this_process_alone(
    private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "ASK_EVERY_S", 0.05)
    monkeypatch.setenv("VRAMSCOPE_RUNTIME_DIR", str(private_environment))
    view, lock = AgentView(), HubLock(private_environment)
    try:
        assert view.read() == {}, "no agent runs yet"
        with (
            RunningHub(private_environment) as running,
            RunningWorker(private_environment, OwnAssessor()),
        ):
            lock.acquire()
            running.producer.push([make_sample(1), make_sample(2, uuid="GPU-b")])
            wait_until(view.read, what="the values of the agent")
            found = view.read()
            everything = ask_assessments(private_environment, timeout_s=5.0)
            assert {it.started_s for it in everything} == {read_started_s(), 5.0}
        assert found["vram/growth_mib_per_step"] == 3.0
        assert found["vram/headroom_at_peak_gib"] == 8.0
        assert 590.0 < found["vram/oom_in_s"] <= 600.0
        lock.release()
        wait_until(lambda: not view.read(), what="the agent to be missed")
    finally:
        view.close()


def test_time_passes_and_stale_or_unknown_values_are_not_logged() -> None:
    assert describe_own([GROWING], 1004.0)["vram/oom_in_s"] == 596.0
    assert describe_own([GROWING], 1000.0 + agent_module.OLDEST_S + 1) == {}
    assert describe_own([make_assessment(1000.0)], 1000.0) == {}
    steady = msgspec.structs.replace(GROWING, oom_in_s=None, growth_bytes_per_step=None)
    assert describe_own([steady], 1000.0) == {"vram/headroom_at_peak_gib": 8.0}


def test_of_several_devices_the_one_with_the_least_headroom_is_logged() -> None:
    full = msgspec.structs.replace(GROWING, peak_bytes=79 * GIB)
    assert describe_own([GROWING, full], 1000.0)["vram/headroom_at_peak_gib"] == 1.0


def test_without_an_agent_nothing_is_loaded(private_environment: Path) -> None:
    script = """
import sys
import vramscope.callbacks.agent as agent
view = agent.AgentView()
assert view.read() == {}
view.close()
print(sorted({"zmq", "vramscope.engine.viewer.client"} & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
