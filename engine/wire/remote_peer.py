"""A peer at an agent's tcp port: who it is, what it follows, and how much it may still ask."""

from dataclasses import InitVar, dataclass, field

from .allowance import BURST, PER_SECOND, Allowance
from .device_selection import DeviceSelection


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
    follows: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    """Beginnings of the topics that it follows, by node; at an agent there is one, without a name."""
    selections: dict[str, DeviceSelection] = field(default_factory=dict)
    """The devices that it follows, by node; of a node that is not named here all."""
    answering: dict[str, int] = field(default_factory=dict)
    """Number of its newest join by node, whose answer was sent; none where that may not have gone."""
    allowance: Allowance = field(init=False)

    def __post_init__(self, noted_s: float) -> None:
        self.allowance = Allowance(BURST, PER_SECOND, noted_s)

    def follow(self, node: str, topics: tuple[bytes, ...], selection: DeviceSelection | None) -> None:
        """Follow these topics of a node in place of those before, and of its devices those wanted."""
        self.follows[node] = topics
        self.selections.pop(node, None)
        if selection is not None:
            self.selections[node] = selection

    def stop_following(self, node: str) -> None:
        """Follow a node no longer."""
        self.follows.pop(node, None)
        self.selections.pop(node, None)

    @property
    def is_following(self) -> bool:
        """Whether it follows anything."""
        return any(self.follows.values())

    def is_told(self, topic: bytes, node: str) -> bool:
        """Return whether it follows a topic of a node."""
        return topic.startswith(self.follows.get(node, ()))

    def spend(self, cost: float, now_s: float) -> bool:
        """Return whether a request may be answered now, and count it."""
        return self.allowance.spend(cost, now_s)
