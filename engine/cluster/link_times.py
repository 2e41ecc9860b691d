"""How long the two ends of a connection over tcp wait before they hold it for cut."""

from typing import NamedTuple


class LinkTimes(NamedTuple):
    """What ZeroMQ is told, in milliseconds; tests have shorter ones."""

    reconnect_ms: int = 1_000
    """From a connection that was lost, or refused, to the next attempt."""
    connect_within_ms: int = 3_500
    """The kernel knocks at 0, 1, 3 and 7 s, then ever more rarely: who begins anew is soon back."""
    handshake_within_ms: int = 5_000
    """Who has not shown a key by then is cut off, and tries again."""
    heartbeat_ms: int = 5_000
    """How often each end asks whether the other is there."""
    heartbeat_within_ms: int = 15_000
    """A connection that was cut without a word is noticed after so long, and made anew."""
    still_ms: int = 2_000
    """One to a node that is silent, over which no byte has come for so long, is made anew at once."""
