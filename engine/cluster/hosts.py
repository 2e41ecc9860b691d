"""Lists of hosts, as they are typed on the command line or kept in a file."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from ..errors import InputFileError, UsageError
from .ssh_host import SshHost
from .tcp_address import TcpAddress, parse_address

NodeAddress = TcpAddress | SshHost
"""Where a node is, by tcp or through ssh."""
Host = TypeVar("Host", bound=NodeAddress)
MOST_NODES = 1024
_MOST_FILE_BYTES = 1024**2


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
    hosts = []
    for number, line in enumerate(_read_text(path).splitlines(), 1):
        word = line.partition("#")[0].strip()
        if word:
            try:
                hosts.append(parse_address(word))
            except UsageError as error:
                raise InputFileError(f"{path}:{number}: {error}") from error
    if not hosts:
        raise InputFileError(f"{path}: names no host; expected one a line, for example n2:5757")
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


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_FILE_BYTES + 1)
        if len(data) > _MOST_FILE_BYTES:
            raise InputFileError(f"{path}: longer than {_MOST_FILE_BYTES} bytes; expected one host a line")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InputFileError(
            f"--hosts {path}: {error.strerror or error}; expected a file with one host a line"
        ) from error
    except UnicodeDecodeError as error:
        raise InputFileError(
            f"{path}: not UTF-8 text at byte {error.start}; expected one host a line"
        ) from error
