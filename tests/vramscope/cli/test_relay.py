"""A relay from the front door: what it tells, what is seen through it, and what is refused."""

import signal

import pytest

from vramscope.cli.application import run as run_here
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress
from vramscope.engine.cluster.keys import keys_folder

from ...engine.agent.hubs import make_sample
from ...engine.cluster.remote import ListeningHub, free_port
from .running import run, start


def test_nodes_are_printed_through_a_relay_and_it_ends_when_told_to() -> None:
    address, away = (TcpAddress(LOOPBACK, free_port()) for _ in range(2))
    with ListeningHub(None, keys_folder()) as one, ListeningHub(None, keys_folder()) as other:
        one.producer.push([make_sample(1, used_gib=61)])
        other.producer.push([make_sample(1, used_gib=62)])
        hosts = ",".join(it.text for it in (one.address, other.address, away))
        relay = start("agent", "--relay", "--connect", hosts, "--listen", address.text)
        try:
            assert relay.stderr is not None
            assert "passing on 3 nodes" in relay.stderr.readline()
            assert address.text in relay.stderr.readline()
            outcome = run("--connect", address.text, "--once", "--json")
        finally:
            relay.send_signal(signal.SIGTERM)
            left = relay.communicate(timeout=60)[1]
    used = [line["devices"][0]["memory"]["used_bytes"] for line in outcome.lines]
    assert (used, outcome.code) == ([61 * 1024**3, 62 * 1024**3], 7)
    assert f"{away.label}: does not answer" in outcome.stderr
    assert (relay.returncode, left) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--relay", "--listen", "5757"], "--relay needs nodes to pass on"),
        (["--relay", "--connect", "n2"], "--relay needs a port for viewers"),
        (["--connect", "n2"], "--connect, --hosts and --ssh need --relay"),
        (
            ["--relay", "--connect", "n2", "--listen", "5757", "--prometheus"],
            "--relay does not go with --test-alert",
        ),
        (["--relay", "--connect", "n2:x", "--listen", "5757"], "--connect n2:x: port 'x'"),
        (["--relay", "--connect", "n2", "--listen", "*:x"], "--listen *:x: port 'x'"),
    ],
)
def test_a_relay_that_makes_no_sense_is_refused(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(["agent", *words]) == 2
    assert expected in capsys.readouterr().err


def test_the_help_has_insecure_with_the_port_that_it_opens(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(["agent", "--help"]) == 0
    _, _, told = capsys.readouterr().out.partition("viewers on other machines:")
    assert "--insecure" in told.partition("\n\n")[0]
