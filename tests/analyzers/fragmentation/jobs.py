"""Training jobs on the allocator model, as the probe would tell of them: one sample a step, at any phase."""

import random
from collections.abc import Callable, Iterator

from vramscope.analyzers.allocator_model import AllocatorSettings, CachingAllocator, PrivateDeviceMemory
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.units import MIB

LAYERS = 12
STEP_S = 2.0


class Job:
    """A model with its optimizer, trained on batches of one length a step.

    Args:
        capacity_bytes: What the card has for it.
        length: Returns the length of a step's batch; activations are 2 KiB a token and layer.
        settings: The allocator's settings, as in `PYTORCH_ALLOC_CONF`.
        model_mib: Parameters and what the optimizer holds.
        keep: Tensors of 2 MiB that it keeps, one more in each layer of a step until there are so many; they
            land in what larger tensors left free, and pin it.
        seed: Of the moments at which it is sampled.
    """

    def __init__(
        self,
        capacity_bytes: int,
        length: Callable[[int], int],
        *,
        settings: str = "",
        model_mib: int = 256,
        keep: int = 0,
        seed: int = 0,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.memory = PrivateDeviceMemory(capacity_bytes)
        self.allocator = CachingAllocator(self.memory, AllocatorSettings.parse(settings))
        self._length = length
        self._phase = random.Random(seed)
        self._step = 0
        self._keep = keep
        self._kept: list[int] = []
        self._model = [self.allocator.malloc(model_mib * MIB // LAYERS) for _ in range(LAYERS)]

    def run(self, steps: int) -> Iterator[Sample]:
        """Yield one sample a step.

        Raises:
            AllocatorOutOfMemoryError: The card has no room.
        """
        for _ in range(steps):
            self._step += 1
            yield self._train()

    def _train(self) -> Sample:
        malloc, free = self.allocator.malloc, self.allocator.free
        length, chosen = self._length(self._step), self._phase.randrange(2 * LAYERS)
        floor, peak = self.allocator.allocated_bytes, 0
        live: list[int] = []
        seen: AllocatorReading | None = None
        for layer in range(LAYERS):
            live.append(malloc(length * 2048))
            free(malloc(length * 1024 + 512 * layer))
            live.append(malloc(length * 512))
            peak = max(peak, self.allocator.allocated_bytes)
            seen = self._read() if chosen == layer else seen
        for layer in range(LAYERS):
            free(live.pop())
            free(live.pop())
            if len(self._kept) < self._keep:
                self._kept.append(malloc(2 * MIB))
            seen = self._read() if chosen == LAYERS + layer else seen
        assert seen is not None
        return self._tell(seen, floor, peak)

    def _read(self) -> AllocatorReading:
        stats = self.allocator.memory_stats()
        return AllocatorReading(
            allocated_bytes=stats["allocated_bytes.all.current"],
            reserved_bytes=stats["reserved_bytes.all.current"],
            requested_bytes=stats["requested_bytes.all.current"],
            active_bytes=stats["active_bytes.all.current"],
            inactive_split_bytes=stats["inactive_split_bytes.all.current"],
            retries=stats["num_alloc_retries"],
            ooms=0,
        )

    def _tell(self, reading: AllocatorReading, floor: int, peak: int) -> Sample:
        now_s = self._step * STEP_S
        reserved = reading.reserved_bytes or 0
        memory = MemoryReading(
            total_bytes=self.capacity_bytes,
            used_bytes=reserved,
            free_bytes=self.capacity_bytes - reserved,
        )
        rank = RankSample(
            pid=7,
            started_s=1.0,
            job="j",
            device_uuid="GPU-0",
            coordinates=RankCoordinates(0),
            allocator=reading,
            step=StepReading(self._step, now_s, STEP_S, floor, peak, True),
            steps_within=1,
            floor_min_bytes=floor,
            peak_max_bytes=peak,
        )
        device = DeviceSample("GPU-0", 0, memory=memory, allocator=reading)
        return Sample("n", self._step, now_s, STEP_S, (device,), ranks=(rank,))


def vary(seed: int, least: int, most: int) -> Callable[[int], int]:
    """Return lengths that change from step to step."""
    lengths = random.Random(seed)
    return lambda step: lengths.randrange(least, most)
