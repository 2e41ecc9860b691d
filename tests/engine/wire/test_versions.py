"""Hubs and viewers of two versions: what one does not know it leaves out, and says so where it was asked."""

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from vramscope.engine.agent import hub as hub_module
from vramscope.engine.errors import HubUnreachableError
from vramscope.engine.history import History, HistoryBlock
from vramscope.engine.model import AllocatorReading, RankSample
from vramscope.engine.viewer.client import Client
from vramscope.engine.wire.messages import body_of, decode, encode

from ...waiting import wait_until
from ..agent.hubs import RunningHub, make_sample


class OldRequest(msgspec.Struct, frozen=True):
    """A request as hubs knew it before training processes reported."""

    verb: Literal["join"]
    request_id: int

    @property
    def detail(self) -> str:
        """What the hub of today, which plays the older one, looks for."""
        return "full"

    @property
    def devices(self) -> tuple[str, ...]:
        """As `detail`."""
        return ()


class OldBlock(msgspec.Struct, frozen=True):
    """History as viewers knew it before training processes reported."""

    node: str
    clock: str
    devices: dict[str, msgspec.Raw]
    fine_ticks: dict[str, bytes]
    fine: dict[str, dict[str, bytes]]
    coarse_ticks: dict[str, bytes]
    coarse: dict[str, dict[str, bytes]]


def test_an_older_hub_serves_a_newer_viewer_and_its_silence_is_named(
    private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "Request", OldRequest)
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        running.producer.push([make_sample(1)])
        wait_until(lambda: client.snapshot(0.05).sample, what="the sample")
        with pytest.raises(HubUnreachableError, match=r"the agent \(vramscope test\) that serves .* has not"):
            client.detach(4711, timeout_s=0.2)
        running.producer.push([make_sample(2)])
        wait_until(lambda: (s := client.snapshot(0.05).sample) and s.seq == 2, what="the next sample")


def test_an_older_viewer_reads_history_that_has_ranks_in_it() -> None:
    history = History()
    rank = RankSample(pid=1, allocator=AllocatorReading(retries=1, ooms=0))
    history.add(msgspec.structs.replace(make_sample(1), ranks=(rank,)))
    old = body_of(decode(encode("history", "", history.block())), OldBlock)
    assert old.fine["GPU-a"]
    older = msgspec.structs.replace(history.block(), ranks={})
    late = History()
    late.extend(body_of(decode(encode("history", "", older)), HistoryBlock))
    assert [sample.ranks for sample in late.samples()] == [()]
