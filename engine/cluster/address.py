"""Who holds a port of this machine."""

import psutil


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
