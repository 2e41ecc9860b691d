"""The card that `run --simulate`, `phases` and the plug-in of pytest simulate."""

from typing import NamedTuple

from vramscope.engine.errors import UsageError
from vramscope.engine.units import parse_device_bytes


class Card(NamedTuple):
    """A GPU to simulate; of one that is given by its size, nothing more is known."""

    total_bytes: int
    kind: str | None = None
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None


def read_card(text: str) -> Card:
    """Return the card of a size (`24GiB`) or a kind (`h100`).

    Raises:
        UsageError: It is neither.
    """
    try:
        return Card(parse_device_bytes(text))
    except UsageError:
        if not any(letter.isalpha() for letter in text) or text[:1].isdigit():
            raise
    from vramscope.analyzers.planning.cluster import find_device

    model = find_device(text, is_for_cuda=True)
    return Card(model.memory_bytes, model.kind, model.capability, model.multiprocessors)
