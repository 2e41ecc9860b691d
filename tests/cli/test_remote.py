"""`--connect`: several agents from the front door, as a table, as JSON, in the view, and what is refused."""

import pytest

from vramscope.cli.application import run as run_here
from vramscope.engine.cluster.keys import keys_folder, make_key_pair
from vramscope.engine.cluster.tcp_address import LOOPBACK, TcpAddress

from ..bus.hubs import make_sample
from ..cluster.remote import ListeningHub, free_port
from .running import run


def test_once_shows_every_node_that_answers_and_says_which_does_not() -> None:
    away = TcpAddress(LOOPBACK, free_port())
    with ListeningHub(None, keys_folder()) as one, ListeningHub(make_key_pair(), keys_folder()) as locked:
        one.producer.push([make_sample(1, used_gib=61)])
        locked.producer.push([make_sample(1)])
        hosts = ",".join(it.text for it in (one.address, away, locked.address))
        outcome = run("--connect", hosts, "--once", "--json")
    assert outcome.code == 7
    assert [line["devices"][0]["memory"]["used_bytes"] for line in outcome.lines] == [61 * 1024**3]
    assert f"{away.label}: does not answer" in outcome.stderr
    assert f"{locked.address.label}: the agent there asks for a key" in outcome.stderr
    assert "vramscope keys new" in outcome.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--connect", "n2:x"], "port 'x'"),
        (["--hosts", "/nowhere/hosts"], "/nowhere/hosts: No such file"),
        (["--connect", "n2", "--from-prometheus", "http://n2"], "one of them"),
        (["--connect", "n2", "--duration", "3s"], "--duration goes with --json"),
        (["--connect", "n2", "agent"], "do not go with the verb agent"),
        (["--insecure"], "--insecure goes with"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(words) == 2
    assert expected in capsys.readouterr().err
