"""A peer at an agent's tcp port: who it is, what it follows, and how much it may still ask."""

from dataclasses import dataclass

BURST, PER_SECOND = 60.0, 20.0
"""What a peer may ask at once, and per second."""
JOIN_COSTS = 20.0
"""A join is answered with the whole history, and costs as much as this many other requests."""


class RemotePeer(bytes):
    """Identity of a connection over tcp, with the user that it proved to be."""

    user: str = ""

    @classmethod
    def of(cls, identity: bytes, user: str) -> "RemotePeer":
        """Return the identity of a connection with its user."""
        peer = cls(identity)
        peer.user = user
        return peer


@dataclass(slots=True)
class PeerState:
    """What is kept of a peer while it is connected."""

    user: str
    noted_s: float
    """When it last asked, in monotonic seconds."""
    topics: tuple[bytes, ...] = ()
    """Beginnings of the topics that it follows."""
    allowance: float = BURST

    def spend(self, cost: float, now_s: float) -> bool:
        """Return whether a request may be answered now, and count it."""
        self.allowance = min(BURST, self.allowance + PER_SECOND * (now_s - self.noted_s))
        self.noted_s = now_s
        if self.allowance < cost:
            return False
        self.allowance -= cost
        return True
