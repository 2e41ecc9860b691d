"""Messages that reach the application from other threads."""

from textual.message import Message


class SnapshotArrived(Message):
    """The mailbox holds a snapshot."""

    def can_replace(self, message: Message) -> bool:
        """Let one message stand for several: the mailbox holds only the newest snapshot."""
        return isinstance(message, SnapshotArrived)


class TerminalDrained(Message):
    """The terminal reads again, after output to it was lost."""


class TerminalGone(Message):
    """The terminal was closed."""
