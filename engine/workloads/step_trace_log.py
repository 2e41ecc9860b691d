"""The blocks of one simulated card in the order in which they come and go, and where each was made."""

from __future__ import annotations

from typing import Any, Protocol

from ..simulation.stacks import Stack

EMPTIED = 0
"""The event of a script that gave cached memory back."""


class Locator(Protocol):
    """Knows where the training step is."""

    def locate(self) -> tuple[int, int]:
        """Return the phase and the number of the module that is running."""


class BlockLog:
    """What came and went, as numbers: cheap to note, and read when all is over.

    A block is known by its place in `sizes`; an event is that place plus one, less than 0 where it ends.
    """

    def __init__(self) -> None:
        self.locator: Locator | None = None
        self.begin()

    def begin(self) -> None:
        """Forget everything: what is on the card now belongs to nobody's trace."""
        self.sizes: list[int] = []
        self.phases: list[int] = []
        self.modules: list[int] = []
        self.stacks: list[int] = []
        self.events: list[int] = []
        self.is_running = True
        self._live: dict[int, int] = {}
        self._stack_numbers: dict[Stack, int] = {}

    def note_allocated(self, address: int, size_bytes: int, stack: Stack) -> None:
        """Note a new block and where it is made."""
        if not self.is_running:
            return
        phase, module = (0, 0) if self.locator is None else self.locator.locate()
        place = self._live[address] = len(self.sizes)
        self.sizes.append(size_bytes)
        self.phases.append(phase)
        self.modules.append(module)
        self.stacks.append(self._stack_numbers.setdefault(stack, len(self._stack_numbers)))
        self.events.append(place + 1)

    def note_freed(self, address: int) -> None:
        """Note the end of a block; of one that was there before, nothing."""
        place = self._live.pop(address, None)
        if place is not None and self.is_running:
            self.events.append(-place - 1)

    def note_emptied(self) -> None:
        """Note that cached memory was given back."""
        if self.is_running:
            self.events.append(EMPTIED)

    def find(self, address: int) -> int | None:
        """Return the place of the live block at an address."""
        return self._live.get(address)

    def describe_stacks(self) -> list[list[dict[str, Any]]]:
        """Return the stacks by their numbers, innermost frame first."""
        return [stack.frames for stack in self._stack_numbers]
