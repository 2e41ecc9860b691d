"""Large messages in pieces: each that arrives shows a slow line to be alive, as ZeroMQ's heartbeats ask for.

A message of several frames arrives whole or not at all, but heartbeats count frames. So the history of a node
may take minutes to come through, and a connection that is cut is still noticed within seconds.
"""

PIECE_BYTES = 32 * 1024
"""Comes through within the 15 s of a heartbeat where a line carries 2.2 kB/s."""


def split(*frames: bytes) -> list[bytes]:
    """Return the frames that carry a message: as they are where it is short.

    Args:
        frames: The message, after the name of its node where a relay sends it.
    """
    *name, message = frames
    if len(message) <= PIECE_BYTES:
        return list(frames)
    pieces = (message[at : at + PIECE_BYTES] for at in range(0, len(message), PIECE_BYTES))
    return [*(name or [b""]), b"", *pieces]


def join(frames: list[bytes]) -> tuple[bytes, bytes]:
    """Return the name of a node behind a relay, or nothing, and the message that came in these frames."""
    if len(frames) > 2 and not frames[1]:
        return frames[0], b"".join(frames[2:])
    return (frames[0] if len(frames) > 1 else b""), frames[-1]
