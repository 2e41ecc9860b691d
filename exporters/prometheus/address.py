"""Where figures are served: a port on loopback, or an address that was typed and is protected."""

import ipaddress
import re
from typing import NamedTuple

from ...engine.errors import UsageError

DEFAULT_PORT = 9464
LOOPBACK = "127.0.0.1"
_FORM = re.compile(r"^(?:(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]*)):)?(?P<port>\d+)$")
_EXPECTED = "expected a port or address:port, for example :9464, 192.0.2.7:9464 or [::]:9464"


class ListenAddress(NamedTuple):
    """A numeric address and a port; port 0 is any that is free."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.host).is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """Return the address that a text names; without one, or without a host, it is of loopback.

    Raises:
        UsageError: It is no address and port.
    """
    if not text:
        return ListenAddress(LOOPBACK, DEFAULT_PORT)
    found = _FORM.match(text)
    if found is None or int(found["port"]) > 65535:
        raise UsageError(f"--prometheus {text}: {_EXPECTED}")
    host = found["six"] or found["host"] or LOOPBACK
    try:
        numeric = ipaddress.ip_address(LOOPBACK if host == "localhost" else host)
    except ValueError:
        raise UsageError(f"--prometheus {text}: {host!r} is no numeric address; {_EXPECTED}") from None
    return ListenAddress(str(numeric), int(found["port"]))


def check_protected(address: ListenAddress, *, has_tls: bool, is_insecure: bool) -> None:
    """Refuse an address beyond loopback that nothing protects and nobody insisted on.

    Raises:
        UsageError: It must not be served as it is.
    """
    if not (address.is_loopback or has_tls or is_insecure):
        raise UsageError(
            f"--prometheus {address}: everybody who reaches it could read the figures: give a TLS "
            "configuration with --web-config FILE (docs/prometheus.md), or type --insecure as well"
        )
