"""Hosts as people type them, and lists of them in files."""

from pathlib import Path

import pytest

from vramscope.engine.cluster.addresses import (
    list_nodes,
    parse_address,
    parse_hosts,
    parse_listen_address,
    read_hosts_file,
)
from vramscope.engine.cluster.gate import prepare_listening
from vramscope.engine.errors import InputFileError, UsageError


@pytest.mark.parametrize(
    ("text", "label", "endpoint"),
    [
        ("n2", "n2", "tcp://n2:5757"),
        ("n2:6000", "n2:6000", "tcp://n2:6000"),
        ("10.0.0.7:5757", "10.0.0.7", "tcp://10.0.0.7:5757"),
        ("[::1]:6000", "[::1]:6000", "tcp://[::1]:6000"),
        ("fe80::1", "fe80::1", "tcp://[fe80::1]:5757"),
    ],
)
def test_a_host_is_read_as_it_is_meant(text: str, label: str, endpoint: str) -> None:
    address = parse_address(text)
    assert (address.label, address.endpoint) == (label, endpoint)


@pytest.mark.parametrize(
    "text", ["", ":5757", "n2:", "n2:0", "n2:70000", "n2:x", "a b", "[n2]:1", "-n", "tcp://n2"]
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "127.0.0.1:5757"),
        ("6000", "127.0.0.1:6000"),
        ("*:6000", "0.0.0.0:6000"),
        ("[::]:5757", "[::]:5757"),
    ],
)
def test_an_agent_listens_on_loopback_unless_more_is_typed(text: str, expected: str) -> None:
    assert parse_listen_address(text).text == expected


def test_a_file_of_hosts_may_have_comments_and_a_bad_line_is_told_by_its_place(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# the cluster\nn1\n\nn2:6000  # behind a tunnel\n")
    assert [it.label for it in read_hosts_file(file)] == ["n1", "n2:6000"]
    file.write_text("n1\nn 2\n")
    with pytest.raises(InputFileError, match=r"hosts:2: 'n 2': expected a host"):
        read_hosts_file(file)
    file.write_text("# none\n")
    with pytest.raises(InputFileError, match="names no host"):
        read_hosts_file(file)


def test_a_host_that_is_named_twice_is_followed_once() -> None:
    nodes, again = list_nodes(parse_hosts("n1,n2,n1:5757"))
    assert [it.label for it in nodes] == ["n1", "n2"]
    assert again == ["n1 is named more than once; it is followed once"]


def test_beyond_loopback_an_agent_wants_a_key_or_a_word() -> None:
    with pytest.raises(UsageError, match=r"vramscope keys new.*--insecure"):
        prepare_listening("0.0.0.0:5757", is_insecure=False)
    assert "INSECURE" in prepare_listening("0.0.0.0:5757", is_insecure=True).words
    assert "nobody can change anything" in prepare_listening("", is_insecure=False).words
