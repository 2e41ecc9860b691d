"""What a connection to the hub of another node does, whatever carries it."""

from typing import Protocol


class NodeConnection(Protocol):
    """A connection that is made again and again, with the words for why it is not; use from one thread."""

    node: str
    """What the other end calls the node; empty where it is the node itself."""
    answers_within_s: float
    """A node that has said nothing by then is said not to answer."""

    @property
    def trouble(self) -> str | None:
        """Why the hub cannot be reached, in one sentence; None where nothing speaks against it."""
        ...

    @property
    def warning(self) -> str | None:
        """What should be known of who answers there, in one sentence; None where nothing should."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether what is sent now may arrive."""
        ...

    @property
    def sources(self) -> tuple[object, ...]:
        """Sockets or descriptors that the loop waits for."""
        ...

    @property
    def silence(self) -> str:
        """What is said of a hub that has not answered yet, and nobody knows why."""
        ...

    def silence_s(self, now_s: float) -> float | None:
        """Return for how long the other end has heard nothing of the node; None where that is not known.

        Args:
            now_s: In monotonic seconds.
        """
        ...

    def send(self, data: bytes) -> None:
        """Send a message; it is lost where nobody is connected."""
        ...

    def receive(self) -> list[bytes]:
        """Return the messages that have come, without waiting."""
        ...

    def note_events(self) -> bool:
        """Take what is told of the connection; return whether it was made since the last call."""
        ...

    def mend(self, now_s: float, *, is_silent: bool = False) -> None:
        """Look after the connection, several times a second.

        Args:
            now_s: In monotonic seconds.
            is_silent: Whether the node should have been heard by now.
        """
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
