"""What shall be simulated, as the launcher said it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIB = 1 << 30
DEFAULT_CONTEXT_BYTES = 0


@dataclass(frozen=True)
class SimulationConfig:
    """One kind of card, how many of them, and where processes share them."""

    total_bytes: int
    """Capacity of each card."""
    devices: int = 1
    is_fake: bool = False
    """Whether tensors on the card have no storage."""
    context_bytes: int = DEFAULT_CONTEXT_BYTES
    """What a process takes of a card before its first tensor."""
    host_reserve_bytes: int | None = None
    """Host memory that real tensors may not take; None for a share of the host."""
    job: str = "local"
    ledger_dir: str | None = None
    """Folder of the files through which processes share a card; None for a card of this process alone."""
    allocator_settings: str = ""

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> SimulationConfig:
        """Return the configuration in a mapping; a key that is absent or None has its default."""
        known = {name: content[name] for name in cls.__dataclass_fields__ if content.get(name) is not None}
        return cls(**known)

    @property
    def name(self) -> str:
        """What the card calls itself."""
        return f"Simulated {self.total_bytes / GIB:.3g} GiB GPU"
