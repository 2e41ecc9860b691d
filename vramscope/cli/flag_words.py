"""Naming the flag whose value cannot be used."""

from collections.abc import Iterator
from contextlib import contextmanager

from vramscope.engine.errors import UsageError


@contextmanager
def given_by(flag: str, text: str) -> Iterator[None]:
    """Put a flag and what was given with it before what the block says is wrong with it.

    Args:
        flag: As it is typed.
        text: What was given.

    Raises:
        UsageError: The block raises one.
    """
    try:
        yield
    except UsageError as error:
        reason = str(error).removeprefix(f"{text!r}: ").removeprefix(f"port {text!r}: ")
        raise UsageError(f"{flag} {text or repr(text)}: {reason}") from error
