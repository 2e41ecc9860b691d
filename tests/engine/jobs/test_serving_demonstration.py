"""The demo of a server: a process that is found like any other, on a device that says it is simulated."""

from pathlib import Path

import pytest

from vramscope.engine.jobs.demonstration import ServingDemonstration
from vramscope.engine.viewer.snapshot import Snapshot

from ...waiting import wait_until


@pytest.mark.waits
def test_the_server_is_found_read_and_ends_with_its_viewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    demonstration = ServingDemonstration()
    seen: list[Snapshot] = []
    try:
        feed = demonstration.start(interval_s=0.2, memory_interval_s=0.1)
        feed.start(seen.append)

        def is_served() -> bool:
            sample = seen[-1].sample if seen else None
            return sample is not None and any(it.state == "ok" and it.plan for it in sample.servers)

        wait_until(is_served, what="the server")
        sample = seen[-1].sample
    finally:
        feed.stop()
        status = demonstration.end()
    assert status is None
    assert sample is not None
    (server,) = sample.servers
    assert server.is_simulated
    assert (server.kind, server.model, server.most_sequences) == ("vLLM", "simulated-8b", 160)
    (device,) = sample.devices
    assert device.kind == "simulated"
    assert [it.uuid for it in server.devices] == [device.uuid]
    assert server.devices[0].used_bytes == device.memory.used_bytes
    assert not demonstration.runtime_dir.exists()
