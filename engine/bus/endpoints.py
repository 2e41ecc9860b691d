"""Where a hub listens: three sockets in its private runtime folder."""

from pathlib import Path

import msgspec

from ..errors import RuntimeFolderError

MAX_SOCKET_PATH_BYTES = 107
"""Longest path of a unix socket on Linux (`sun_path` less its final zero)."""


class Endpoints(msgspec.Struct, frozen=True):
    """ZeroMQ addresses of one hub."""

    stream: str
    """XPUB: samples, findings and the hub's state."""
    reports: str
    """PULL: what workers report."""
    control: str
    """ROUTER: history and other requests."""


def endpoints_of(runtime_dir: Path) -> Endpoints:
    """Return the addresses of the hub that serves a runtime folder.

    Raises:
        RuntimeFolderError: The path is too long for a socket.
    """
    paths = [runtime_dir / name for name in ("stream.sock", "reports.sock", "control.sock")]
    longest = max(len(str(path).encode()) for path in paths)
    if longest > MAX_SOCKET_PATH_BYTES:
        raise RuntimeFolderError(
            f"the runtime folder {runtime_dir} has too long a path for a socket ({longest} bytes, at most "
            f"{MAX_SOCKET_PATH_BYTES}): set VRAMSCOPE_RUNTIME_DIR to a shorter one"
        )
    return Endpoints(*(f"ipc://{path}" for path in paths))
