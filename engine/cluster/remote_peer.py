"""A peer at an agent's tcp port: who it is, what it follows, and how much it may still ask."""

from dataclasses import InitVar, dataclass, field

from .allowance import BURST, PER_SECOND, Allowance


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
    noted_s: InitVar[float]
    """When it first asked, in monotonic seconds."""
    topics: tuple[bytes, ...] = ()
    """Beginnings of the topics that it follows."""
    allowance: Allowance = field(init=False)

    def __post_init__(self, noted_s: float) -> None:
        self.allowance = Allowance(BURST, PER_SECOND, noted_s)

    def spend(self, cost: float, now_s: float) -> bool:
        """Return whether a request may be answered now, and count it."""
        return self.allowance.spend(cost, now_s)
