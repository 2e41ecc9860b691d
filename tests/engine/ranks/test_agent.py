"""From a probe's socket through a real agent to what scripts read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vramscope.engine.paths import locate_runtime_folder, open_runtime_folder
from vramscope.engine.ranks.messages import PROBE_SOCKET_NAME
from vramscope.engine.viewer.client import connect
from vramscope.engine.wire.endpoints import is_hub_alive

from ...vramscope.cli.running import no_library, run, start
from ...waiting import wait_until
from .probe_client import GIB, MIB, ProbeClient, make_hello, make_readings


@contextmanager
def running_agent(*arguments: str, **variables: str) -> Iterator[Path]:
    """Run an agent without a driver until it has published; yield its folder."""
    process = start("agent", *arguments, **variables)
    folder = locate_runtime_folder()
    try:
        wait_until(lambda: is_hub_alive(folder), what="the agent to take its folder")
        with connect(timeout_s=30.0) as client:
            wait_until(lambda: client.snapshot(0.05).sample, what="the first sample")
        yield folder
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _wait_for_ranks(count: int) -> None:
    with connect(timeout_s=30.0) as client:

        def has_ranks() -> bool:
            sample = client.snapshot(0.05).sample
            return sample is not None and len(sample.ranks) == count

        wait_until(has_ranks, what="the ranks to be published")


def test_scripts_see_the_ranks_and_the_devices_made_for_them(tmp_path: Path) -> None:
    library = no_library(tmp_path)
    with running_agent("--interval", "0.2", **library) as folder:
        with (
            ProbeClient(folder, has_own_process=True) as simulated,
            ProbeClient(folder, has_own_process=True) as plain,
        ):
            simulated.send(
                make_hello(rank=0, is_simulated=True, context_bytes=400 * MIB),
                make_readings(5 * GIB, reserved=(6 * GIB,)),
            )
            plain.send(make_hello(rank=1, backend="cpu"), make_readings(GIB))
            _wait_for_ranks(2)
            outcome = run("--once", "--json", **library)
        (status,) = outcome.lines
        assert outcome.code == 0, outcome.stderr
        assert [rank["pid"] for rank in status["ranks"]] == [simulated.pid, plain.pid]
        card, host = status["devices"]
        assert (card["uuid"], card["kind"], card["memory"]["total_bytes"]) == (
            "sim-job-0",
            "simulated",
            24 * GIB,
        )
        assert card["memory"]["used_bytes"] == 6 * GIB + 400 * MIB
        assert card["allocator"]["allocated_bytes"] == 5 * GIB
        assert (host["kind"], host["memory"]["source"]) == ("cpu", "host")
        assert host["memory"]["total_bytes"] == status["host"]["total_bytes"]
        assert status["ranks"][1]["device_uuid"] == host["uuid"]
    assert not (folder / PROBE_SOCKET_NAME).exists()


def test_an_agent_survives_probes_that_talk_nonsense(tmp_path: Path) -> None:
    library = no_library(tmp_path)
    with running_agent("--interval", "0.2", **library) as folder, ProbeClient(folder) as probe:
        for packet in (b"\0", b"{", os.urandom(2000)):
            probe.send_bytes(packet)
        probe.send(make_hello(backend="cpu"), make_readings(GIB))
        _wait_for_ranks(1)
        (status,) = run("--once", "--json", **library).lines
    assert any("3 messages from training processes rejected" in note for note in status["notes"])


def test_an_agent_that_starts_takes_away_what_attaching_left_for_a_process_that_has_ended(
    tmp_path: Path,
) -> None:
    left = open_runtime_folder() / "attach-4194300-4194301-7.py"
    left.write_text("")
    with running_agent("--interval", "0.2", **no_library(tmp_path)):
        assert not left.exists()
