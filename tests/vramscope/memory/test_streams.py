"""A live stream leaves an agent that knows no device, but gives it time to find them."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from tests.analyzers.samples import device, sample
from tests.clocks import HandClock
from vramscope.engine.model import DeviceSample, Sample
from vramscope.engine.viewer.this_node import ANSWERS_WITHIN_S, ThisNode
from vramscope.memory.streams import AgentStream, DriverStream, LiveStream


class Source:
    """An agent, or this process: gives one sample a time, of the devices that it knows by then."""

    lost = None

    def __init__(self, devices: Sequence[DeviceSample]) -> None:
        self.devices = tuple(devices)

    def start(self) -> None: ...

    def close(self) -> None: ...

    def take(self, timeout_s: float) -> list[Sample]:
        return [sample(*self.devices)]


def open_live(agent: Source, clock: HandClock, folder: Path) -> LiveStream:
    own = Source([device(index=3)])
    node = ThisNode(lambda _: cast(AgentStream, agent), lambda: cast(DriverStream, own), folder=folder)
    node.agent = cast(AgentStream, agent)
    stream = LiveStream(1.0, node=node, clock=clock)
    stream.start()
    return stream


def indices(samples: Sequence[Sample]) -> list[int | None]:
    return [it.index for one in samples for it in one.devices]


def test_an_agent_has_time_to_find_its_devices(tmp_path: Path) -> None:
    clock, agent = HandClock(100.0), Source([])
    stream = open_live(agent, clock, tmp_path)
    stream.take(0.0)
    clock.now_s += ANSWERS_WITHIN_S - 0.1
    stream.take(0.0)
    assert stream.agent is not None
    agent.devices = (device(index=1),)
    assert indices(stream.take(0.0)) == [1]
    clock.now_s += 60.0
    agent.devices = ()
    stream.take(0.0)
    assert stream.agent is not None, "it has known a device: that it knows none now is its word"


def test_an_agent_that_finds_no_device_is_left_for_this_process(tmp_path: Path) -> None:
    clock, agent = HandClock(100.0), Source([])
    stream = open_live(agent, clock, tmp_path)
    stream.take(0.0)
    clock.now_s += ANSWERS_WITHIN_S + 0.1
    assert not stream.take(0.0)
    assert stream.agent is None
    assert indices(stream.take(0.0)) == [3]
