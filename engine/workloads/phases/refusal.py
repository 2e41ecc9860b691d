"""What cannot be trained as it was asked for."""


class RefusedError(Exception):
    """The text says what is wrong, what was expected and what to do; it becomes a usage error."""
