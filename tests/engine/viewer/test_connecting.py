"""Asking an agent that ends meanwhile, as it does after its last viewer."""

from pathlib import Path

import pytest

from vramscope.engine.errors import HubUnreachableError
from vramscope.engine.paths import open_runtime_folder
from vramscope.engine.viewer.client import Client, connect
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.viewer.this_node import ThisNode
from vramscope.engine.wire.endpoints import HubLock


class Nothing:
    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an agent that ends once it was asked, without an answer."""
    folder = open_runtime_folder()
    lock = HubLock(folder)
    lock.acquire()
    look = Client.snapshot

    def end_meanwhile(client: Client, timeout_s: float = 1.0) -> Snapshot:
        lock.release()
        return look(client, timeout_s)

    monkeypatch.setattr(Client, "snapshot", end_meanwhile)
    return folder


def test_an_agent_that_ends_before_its_answer_is_not_waited_for(folder: Path) -> None:
    with pytest.raises(HubUnreachableError, match="ended before it answered"):
        connect(folder, timeout_s=3600.0)


def test_a_node_whose_agent_was_just_ending_is_sampled_here_without_a_word(folder: Path) -> None:
    source = ThisNode(lambda where: connect(where, timeout_s=3600.0), Nothing, folder)
    source.open()
    assert (source.agent, source.sentences) == (None, [])
    assert isinstance(source.local, Nothing)
