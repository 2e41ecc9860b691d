"""Who holds a port of this machine."""

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - what others may listen on


def describe_holder(host: str, port: int) -> str:
    """Return who listens on a port of this machine, as far as we may see it.

    Args:
        host: Address of this machine; the same port of another may be somebody else's.
        port: Its port.
    """
    import psutil

    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return "another process"
    held = {
        it.laddr.ip: it.pid
        for it in connections
        if it.status == psutil.CONN_LISTEN and it.laddr and it.laddr.port == port
    }
    if not held:
        return "another process"
    nearest = next((it for it in (host, *_EVERYWHERE) if it in held), next(iter(held)))
    pid = held[nearest]
    if pid is None:
        return "a process of somebody else"
    try:
        return f"process {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"process {pid}"
