"""Devices that are alike as one kind, and what a stage costs on each kind."""

from collections.abc import Sequence
from functools import cached_property
from math import gcd, lcm

from ..partition.stage import Room, Stage, add_up, make_stage
from .model import StageDevice


class Workload:
    """Layers, and kinds of devices that run them.

    Args:
        costs: Of each layer, at least 0.
        memory: Bytes of each layer, whatever stage it is in.
        activations: Bytes of each layer for one micro-batch in flight.
        micro_batches: In one step.
        groups: The devices, one for each stage.
    """

    def __init__(
        self,
        costs: Sequence[int],
        memory: Sequence[int],
        activations: Sequence[int] | None,
        micro_batches: int,
        groups: Sequence[StageDevice],
    ) -> None:
        self.layers, self.stages = len(costs), len(groups)
        self.kinds = tuple(dict.fromkeys(groups))
        self.counts = tuple(groups.count(kind) for kind in self.kinds)
        self.micro_batches = micro_batches
        self._memory, self._activations = memory, activations
        unit = gcd(*(kind.speed for kind in self.kinds))
        common = lcm(*(kind.speed // unit for kind in self.kinds))
        factors = [common * unit // kind.speed for kind in self.kinds]
        self.plain = tuple(make_stage([cost * factor for cost in costs]) for factor in factors)
        """For each kind what a stage on it pays, without room."""
        self._rooms: dict[int, Room] = {}

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """Speeds of the kinds as least integers: what a stage costs, times this, is alike for all kinds."""
        unit = gcd(*(kind.speed for kind in self.kinds))
        return tuple(kind.speed // unit for kind in self.kinds)

    def stage(self, kind: int, number: int) -> Stage:
        """Return what the stage of a number, from 0, pays on a kind of device, and the room it has there."""
        in_flight = min(self.stages - number, self.micro_batches) if self._activations is not None else 0
        if in_flight not in self._rooms:
            live = self._activations or (0,) * self.layers
            held = [fixed + in_flight * each for fixed, each in zip(self._memory, live, strict=True)]
            self._rooms[in_flight] = Room(add_up(held), 0, held, max(held))
        room = self._rooms[in_flight]
        return self.plain[kind]._replace(room=room._replace(most=self.kinds[kind].capacity_bytes))

    def order_stages(self, order: Sequence[int]) -> list[Stage]:
        """Return the stages for kinds in an order."""
        return [self.stage(kind, number) for number, kind in enumerate(order)]
