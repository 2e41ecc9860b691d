"""Everything of one simulated process: its devices, their cards, and what is on them."""

from __future__ import annotations

from typing import Any, Callable

import torch

from .alone import Post
from .card import AllocatorModule, Card, DeviceMemory, SimulationConfig
from .compiled_regions import CompiledRegions
from .devices import Devices, state
from .host_memory import HostMemory
from .outside import OutsideUses
from .storages import PinnedMemory, StorageRegistry, Transfers


class Simulation:
    def __init__(
        self,
        config: SimulationConfig,
        module: AllocatorModule,
        make_memory: Callable[[int], DeviceMemory],
        host: HostMemory,
    ) -> None:
        self.config = config
        self.host = host
        self.devices = Devices(config.devices)
        self._memories = [make_memory(number) for number in range(config.devices)]
        self.cards = [
            Card(ordinal, config, module, self._memories[number])
            for ordinal, number in enumerate(self.devices.cards)
        ]
        self.registry = StorageRegistry(self.cards, host.note_growth)
        self.transfers = Transfers(self.registry)
        self.pinned = PinnedMemory()
        # The rank that this process is, if no other rank runs.
        self.post = None if config.ranks is None else Post(config.ranks, config.rank)
        # File and line of whatever has read a value that does not exist.
        self.list_readings: Callable[[], list[tuple[str, object]]] = list
        self.uses = OutsideUses()
        self.regions = CompiledRegions()
        # The probe reads this as `torch.cuda._vramscope_simulated`.
        self.mark: dict[str, Any] = {
            "job": config.job,
            "index": 0,
            "total_bytes": config.total_bytes,
            "context_bytes": config.context_bytes,
            "notes": [],
            "describe_uses": self.uses.describe,
        }
        self.choose(0)

    def choose(self, ordinal: int) -> None:
        """Make a device the current one of the calling thread."""
        state.device = ordinal
        if ordinal < self.devices.count:
            self.mark["index"] = self.devices.cards[ordinal]

    def card(self, device: Any = None) -> Card:
        """The card of a device, by default of the current one; raises `RuntimeError` if there is none."""
        if device is None or (isinstance(device, torch.device) and device.index is None):
            return self.cards[state.device]
        ordinal: int | None = device if isinstance(device, int) else torch.device(device).index
        if ordinal is None:
            return self.cards[state.device]
        return self.cards[self.devices.check(ordinal)]
