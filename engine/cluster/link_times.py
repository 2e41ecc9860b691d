"""How long the two ends of a connection over tcp wait before they hold it for cut."""

from typing import NamedTuple


class LinkTimes(NamedTuple):
    """What ZeroMQ is told, in milliseconds; tests have shorter ones."""

    reconnect_ms: int = 1_000
    """From a connection that was lost, or refused, to the next attempt."""
    connect_within_ms: int = 10_000
    handshake_within_ms: int = 5_000
    """Who has not shown a key by then is cut off, and tries again."""
    heartbeat_ms: int = 5_000
    """How often each end asks whether the other is there."""
    heartbeat_within_ms: int = 15_000
    """A connection that was cut without a word is noticed after so long, and made anew."""
