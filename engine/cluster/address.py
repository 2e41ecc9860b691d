"""Where the node that gathers listens: on loopback, until nodes can prove who they are."""

import ipaddress

import psutil

from ..errors import UsageError

LOOPBACK = "127.0.0.1"
_TUNNEL = (
    "reports are neither encrypted nor signed, so they stay on loopback; forward the port instead: "
    "ssh -N -R {port}:localhost:{port} NODE, and let the worker there connect to localhost"
)


def resolve_loopback(address: str | None, port: int) -> str:
    """Return the numeric address on loopback that a name stands for.

    Args:
        address: `localhost`, a numeric address, or None for loopback.
        port: Port number.

    Raises:
        UsageError: It is not on loopback, or the port is none.
    """
    if not 1 <= port <= 65535:
        raise UsageError(f"port {port}: expected 1 to 65535")
    if address in (None, "", "localhost"):
        return LOOPBACK
    try:
        numeric = ipaddress.ip_address(str(address))
    except ValueError:
        numeric = None
    if numeric is None or not numeric.is_loopback:
        raise UsageError(f"{address}: expected localhost: {_TUNNEL.format(port=port)}")
    return f"[{numeric}]" if numeric.version == 6 else str(numeric)


def describe_holder(port: int) -> str:
    """Return who listens on a port of this machine, as far as we may see it."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return "another process"
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            return _name_process(connection.pid)
    return "another process"


def _name_process(pid: int | None) -> str:
    if pid is None:
        return "a process of somebody else"
    try:
        return f"process {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"process {pid}"
