"""Lists of hosts, as they are typed on the command line or kept in a file."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from ..errors import InputFileError, UsageError
from ..files.base.input_file import read_text_file, show_path, show_text
from .ssh_host import SshHost
from .tcp_address import TcpAddress, parse_address

NodeAddress = TcpAddress | SshHost
"""Where a node is, by tcp or through ssh."""
Host = TypeVar("Host", bound=NodeAddress)
MOST_NODES = 1024
_LONGEST_HOST = 300
"""A name of DNS has at most 255 characters."""


def parse_hosts(text: str) -> list[TcpAddress]:
    """Return the hosts of a list with commas.

    Raises:
        UsageError: One is none, or there is none.
    """
    return [parse_address(word.strip()) for word in text.split(",")]


def read_hosts_file(path: Path) -> list[TcpAddress]:
    """Return the hosts of a file: one a line, with comments after `#`.

    Raises:
        InputFileError: It cannot be read, a line is no host, or there is none; the text names file and line.
    """
    text = read_text_file(path, "a file with one host a line")
    hosts: list[TcpAddress] = []
    for number, line in enumerate(text.split("\n"), 1):
        word = line.partition("#")[0].strip()
        if word:
            try:
                hosts.append(parse_address(show_text(word, _LONGEST_HOST)))
            except UsageError as error:
                raise InputFileError(f"{show_path(path)}:{number}: {error}") from error
    if not hosts:
        raise InputFileError(f"{show_path(path)}: names no host; expected one a line, for example n2:5757")
    return hosts


def list_nodes(hosts: Iterable[Host]) -> tuple[list[Host], list[str]]:
    """Return every host once, and a sentence for each that was named again.

    Raises:
        UsageError: There are too many.
    """
    once: dict[str, Host] = {}
    again: list[str] = []
    for host in hosts:
        if host.label in once:
            again.append(f"{host.label} is named more than once, and followed once")
        once.setdefault(host.label, host)
    if len(once) > MOST_NODES:
        raise UsageError(f"{len(once)} nodes: expected at most {MOST_NODES}")
    return list(once.values()), list(dict.fromkeys(again))
