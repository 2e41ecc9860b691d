"""Messages that reach the application from other threads."""

from textual.message import Message


class TerminalDrained(Message):
    """The terminal reads again, after output to it was lost."""


class TerminalGone(Message):
    """The terminal was closed."""
