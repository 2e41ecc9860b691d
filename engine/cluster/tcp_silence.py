"""For how long nothing has come over a connection, by what the kernel knows of it."""

import os
import socket
import struct

_DATA_RECEIVED_MS = struct.Struct("=52xI")
"""`tcpi_last_data_recv` in the kernel's `struct tcp_info`."""


def read_silence_s(fd: int) -> float | None:
    """Return the seconds since the last byte came, be it of a message that is not complete yet.

    Args:
        fd: Of a connection that ZeroMQ may close at any time.

    Returns:
        None where it is no connection over tcp any more, or the kernel does not say.
    """
    try:
        with socket.socket(fileno=os.dup(fd)) as connection:
            told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _DATA_RECEIVED_MS.size)
        return float(_DATA_RECEIVED_MS.unpack(told)[0]) / 1000.0
    except (OSError, struct.error):
        return None
