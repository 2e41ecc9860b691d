"""Where a hub listens: three sockets in its private runtime folder."""

from pathlib import Path

import msgspec

from ..errors import RuntimeFolderError
from ..paths import SOCKET_PATH_LIMIT_BYTES

SOCKET_NAMES = ("stream.sock", "reports.sock", "control.sock")
"""Of ZeroMQ; probes come in over a plain socket beside them (`engine/ranks/messages.py`)."""


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
    paths = [runtime_dir / name for name in SOCKET_NAMES]
    longest = max(len(str(path).encode()) for path in paths)
    if longest > SOCKET_PATH_LIMIT_BYTES:
        raise RuntimeFolderError(
            f"the runtime folder {runtime_dir} has too long a path for a socket ({longest} bytes, at most "
            f"{SOCKET_PATH_LIMIT_BYTES}): set VRAMSCOPE_RUNTIME_DIR to a shorter one"
        )
    return Endpoints(*(f"ipc://{path}" for path in paths))
