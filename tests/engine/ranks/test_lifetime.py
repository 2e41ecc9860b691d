"""A hub that was started for a job stays as long as the job, and as long as somebody looks."""

from pathlib import Path

from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.viewer.client import Client
from vramscope.engine.wire.endpoints import is_hub_alive

from ...vramscope.cli.running import no_library, start
from ...waiting import wait_until
from .probe_client import MIB, ProbeClient, make_hello, make_readings
from .running import RankHub, see, see_ranks


def test_a_process_keeps_the_hub_that_its_viewer_leaves(private_environment: Path) -> None:
    with RankHub(private_environment, leaves_with_viewers=True) as running:
        probe = ProbeClient(private_environment)
        probe.send(make_hello(), make_readings(MIB))
        with Client(private_environment) as client:
            see_ranks(client)
        wait_until(lambda: running.hub._attendance.viewers == 0, what="the viewer to leave")
        with Client(private_environment) as again:
            seq = see_ranks(again).sample.seq  # type: ignore[union-attr] # it has ranks
            see(again, lambda s: s.sample is not None and s.sample.seq > seq + 2)
        assert running.is_running
        probe.close()
        wait_until(lambda: not running.is_running, what="the hub to leave")


def test_a_hub_that_nobody_needs_yet_waits_for_the_job_as_long_as_it_was_told(
    private_environment: Path,
) -> None:
    with RankHub(private_environment, leaves_with_viewers=True, first_within_s=0.3) as running:
        wait_until(lambda: not running.is_running, what="the hub to leave")
    with RankHub(private_environment, leaves_with_viewers=True, first_within_s=600.0) as running:
        with ProbeClient(private_environment) as probe:
            probe.send(make_hello(), make_readings(MIB))
            wait_until(lambda: running.roster.is_attended, what="the hub to meet the process")
        wait_until(lambda: not running.is_running, what="the hub to leave")


def test_a_job_that_ended_before_the_hub_looked_counts_as_one_that_has_left(
    private_environment: Path,
) -> None:
    hub = RankHub(private_environment, leaves_with_viewers=True, first_within_s=600.0)
    with ProbeClient(private_environment) as probe:
        probe.send(make_hello(), make_readings(MIB))
    with hub as running:
        wait_until(lambda: not running.is_running, what="the hub to leave")


def test_an_agent_takes_the_words_that_a_job_starts_it_with(tmp_path: Path) -> None:
    words = ("--leave-with-viewers", "--first-within", "600", "--linger", "0.2")
    agent = start("agent", *words, **no_library(tmp_path))
    folder = locate_runtime_folder()
    wait_until(lambda: is_hub_alive(folder) and (folder / "probe.sock").exists(), what="the agent")
    with ProbeClient(folder) as probe:
        probe.send(make_hello(), make_readings(MIB))
        with Client(folder) as client:
            see_ranks(client)
    assert agent.wait(timeout=60) == 0
    assert agent.communicate() == ("", "")


def test_a_process_that_connects_while_nobody_watches_is_let_in_before_the_next_sample(
    private_environment: Path,
) -> None:
    with RankHub(private_environment, interval_s=3600.0) as running:
        wait_until(lambda: running.producer.is_calm, what="calm")
        with ProbeClient(private_environment) as probe:
            wait_until(lambda: running.roster.is_connected, what="the hub to let it in")
            assert not running.producer.is_calm
            probe.send(make_hello(), make_readings(MIB))
            wait_until(lambda: running.roster.is_attended, what="the hub to meet it")
        wait_until(lambda: not running.roster.is_connected, what="the hub to notice its end")
        assert running.hub.last_seq == 1
