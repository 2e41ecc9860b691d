"""Several agents from the front door: as a table, as JSON, in the view, by their job, and what is refused."""

import os
from pathlib import Path

import pytest

from vramscope.cli.application import run as run_here
from vramscope.cli.frame.parse import parse
from vramscope.cli.nodes import read_nodes
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress, parse_ssh_hosts
from vramscope.engine.cluster.keys import keys_folder, make_key_pair, save_key_pair

from ...engine.agent.hubs import make_sample
from ...engine.cluster.remote import ListeningHub, free_port
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


def test_nodes_of_one_name_are_told_apart_by_their_addresses() -> None:
    with ListeningHub(None, keys_folder()) as one, ListeningHub(None, keys_folder()) as other:
        for hub in (one, other):
            hub.producer.push([make_sample(1)])
        hosts = f"{one.address.text},{other.address.text}"
        once = run("--connect", hosts, "--once", "--json").lines
        stream = run("--connect", hosts, "--json", "--duration", "2s").lines
        alone = run("--connect", one.address.text, "--once", "--json").lines
    name = alone[0]["node"]
    assert [line["node"] for line in once] == [one.address.label, other.address.label]
    assert len({line["node"] for line in stream}) == 2
    assert {name, one.address.label, other.address.label} > {line["node"] for line in stream}


def test_who_has_a_key_is_told_where_an_agent_here_speaks_without_one() -> None:
    save_key_pair(make_key_pair(), keys_folder())
    with ListeningHub(None, keys_folder()) as hub:
        hub.producer.push([make_sample(1)])
        outcome = run("--connect", hub.address.text, "--once", "--json")
    assert (outcome.code, len(outcome.lines)) == (0, 1)
    assert outcome.stderr.count("uses no keys: its identity is not verified") == 1


def test_the_nodes_of_a_slurm_job_are_found_and_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program, line in (("squeue", "1234|RUNNING|n[1-2]|None"), ("scontrol", LOOPBACK)):
        (tmp_path / program).write_text(f"#!/bin/sh\necho '{line}'\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with ListeningHub(None, keys_folder()) as hub:
        hub.producer.push([make_sample(1, used_gib=61)])
        outcome = run("--slurm", "1234", "--port", str(hub.address.port), "--once", "--json")
    assert outcome.code == 0, outcome.stderr
    assert [line["devices"][0]["memory"]["used_bytes"] for line in outcome.lines] == [61 * 1024**3]
    by_ssh = parse(["--slurm", "1234", "--by-ssh", "--ssh-command", "~/vramscope"])
    assert read_nodes(by_ssh) == parse_ssh_hosts(LOOPBACK, "~/vramscope")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--connect", "n2:x"], "--connect n2:x: port 'x': expected 1 to 65535"),
        (["--connect", ""], "--connect '': expected a host"),
        (["--connect", "n1,,n2"], "--connect n1,,n2: '': expected a host"),
        (["--ssh", "n2,"], "--ssh n2,: '': expected a host, user@host"),
        (["--hosts", "/nowhere/hosts"], "/nowhere/hosts: cannot be read: no such file"),
        (["guard", "--connect", ""], "--connect '': expected a host"),
        (["worker", "--connect", "n1,n2"], "--connect n1,n2: expected a host"),
        (["advise", "1", "empty_cache", "--connect", ""], "--connect '': expected a host"),
        (["advise", "1", "empty_cache", "--connect", "n1,n2"], "--connect and --ssh name 2 nodes"),
        (["distributed", "--role", "worker", "--master-host", ""], "--master-host '': expected a host"),
        (["agent", "--listen", "99999"], "--listen 99999: expected 1 to 65535"),
        (["--connect", "n2", "--from-prometheus", "http://n2"], "one of them"),
        (["--connect", "n2", "--duration", "3s"], "--duration needs --json"),
        (["--connect", "n2", "agent"], "do not go with the verb agent"),
        (["--insecure"], "--insecure needs"),
        (["--slurm", "n2", "--once"], "--slurm n2: expected a job"),
        (["--slurm", "1", "--port", "x"], "--port x: expected 1 to 65535"),
        (["--slurm", "1", "agent"], "do not go with the verb agent"),
        (["--slurm", "1", "--by-ssh", "--insecure"], "--insecure needs"),
        (
            ["--slurm", "1", "--by-ssh", "--port", "5757"],
            "--port needs --slurm and does not go with --by-ssh",
        ),
        (["--by-ssh", "--ssh", "n2"], "--by-ssh needs --slurm"),
        (["--slurm", "1", "--ssh-command", "x"], "--ssh-command needs --ssh or --by-ssh"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here(words) == 2
    assert expected in capsys.readouterr().err
