"""Addresses of agents on the network, as people type them: `n2`, `n2:5757`, `[::1]:5757`."""

import ipaddress
import re
import socket
from typing import NamedTuple

from ..errors import UsageError

DEFAULT_PORT = 5757
LOOPBACK = "127.0.0.1"
_HOST = re.compile(r"[A-Za-z0-9_](?:[\w.-]{0,251}[\w.])?", re.ASCII)


class TcpAddress(NamedTuple):
    """A host, by name or number, and a port."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """Host and port as they are typed."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def label(self) -> str:
        """The shortest words that mean this address: without the port where it is the usual one."""
        return self.host if self.port == DEFAULT_PORT else self.text

    @property
    def endpoint(self) -> str:
        """The address as ZeroMQ takes it."""
        return f"tcp://{self.text}"

    @property
    def is_loopback(self) -> bool:
        """Whether a numeric host is this machine itself."""
        return ipaddress.ip_address(self.host).is_loopback


def parse_address(text: str) -> TcpAddress:
    """Return the host and the port that a person typed.

    Raises:
        UsageError: It is no host, or no port; the text says what was expected.
    """
    bracketed = re.fullmatch(r"\[([^\[\]]*)\](?::(.*))?", text)
    if bracketed:
        host = bracketed[1]
        port = bracketed[2]
    elif text.count(":") > 1:
        host, port = text, None  # an address of IPv6 alone
    else:
        host, found, port = text.partition(":")
        port = port if found else None
    is_numeric = ":" in host and _is_ipv6(host)
    if not is_numeric and (bracketed or not _HOST.fullmatch(host)):
        raise UsageError(
            f"{text!r}: expected a host, host:port or [IPv6]:port, for example n2:{DEFAULT_PORT}"
        )
    return TcpAddress(host, DEFAULT_PORT if port is None else parse_port(port))


def parse_listen_address(text: str) -> TcpAddress:
    """Return where an agent is to listen: nothing and a port alone mean loopback, `*` means everywhere.

    Raises:
        UsageError: It is no address, or no port.
    """
    if not text:
        return TcpAddress(LOOPBACK, DEFAULT_PORT)
    if text.isdecimal():
        return TcpAddress(LOOPBACK, parse_port(text))
    anywhere = re.fullmatch(r"\*(?::(.*))?", text)
    if anywhere:
        return TcpAddress("0.0.0.0", DEFAULT_PORT if anywhere[1] is None else parse_port(anywhere[1]))  # noqa: S104 - it was typed
    return parse_address(text)


def parse_port(text: str) -> int:
    """Return a port.

    Raises:
        UsageError: It is no number from 1 to 65535.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise UsageError(f"port {text!r}: expected 1 to 65535")
    return int(text)


def resolve(address: TcpAddress) -> TcpAddress:
    """Return the numeric address that a host stands for; asks name servers, and may take long.

    Raises:
        UsageError: Nobody knows the name.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{address.host}: the name cannot be resolved: {reason}") from error
    except UnicodeError as error:
        raise UsageError(f"{address.host}: expected the name of a host") from error
    numeric = found[0][4][0]
    return TcpAddress(str(numeric), address.port)


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
