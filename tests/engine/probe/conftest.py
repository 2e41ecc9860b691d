"""What the tests of a session share: a process on a stand-in, and a hub that listens to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.probe.hub import ListeningHub, listen
from tests.engine.probe.watched import Watched
from vramscope.engine.probe import phases
from vramscope.engine.probe import session as hooks
from vramscope.engine.probe.base import current
from vramscope.engine.probe.base.current import Guard


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(hooks, "_guard", Guard("the hook"))
    current.failures.clear()
    monkeypatch.setattr(phases, "_training", None)
    watched = Watched(tmp_path)
    current.session = watched.session
    yield watched
    watched.session.end("exit")
    current.session = current.leftover = None
    current.failures.clear()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[ListeningHub]:
    with listen(tmp_path) as hub:
        yield hub
