"""What of one node stands as rows until it is enough for a block."""

from ..model import Sample
from .block import TickedSample
from .contents import Told

TARGET_DEVICE_SAMPLES = 2048
"""Of a block: more do not compress better, and make a seek slower, which unpacks one."""
LEAST_BLOCK_TICKS = 8
"""Names and commands of many devices are kept once a block."""
MOST_BLOCK_TICKS = 600
MOST_BLOCK_ROWS = 1 << 15
"""Devices, processes, ranks and assessments of all ticks of a block, unless a single tick has more."""


class PendingRows:
    """Samples of one node in order, what was said of them, and whether they are enough for a block."""

    def __init__(self) -> None:
        self.samples: list[TickedSample] = []
        self.told: list[Told] = []
        self.device_samples = 0
        """Devices of all samples."""
        self._rows = 0

    @property
    def is_enough(self) -> bool:
        """Whether a block should be made of them."""
        ticks = len(self.samples)
        is_large = self.device_samples >= TARGET_DEVICE_SAMPLES and ticks >= LEAST_BLOCK_TICKS
        return ticks > 0 and (is_large or ticks >= MOST_BLOCK_TICKS or self._rows >= MOST_BLOCK_ROWS)

    def add(self, tick: int, sample: Sample) -> None:
        """Take one more sample."""
        self.samples.append(TickedSample(tick, sample))
        self.device_samples += len(sample.devices)
        processes = sum(len(device.processes or ()) for device in sample.devices)
        self._rows += len(sample.devices) + len(sample.ranks) + processes

    def add_told(self, told: Told) -> None:
        """Take what was said."""
        self.told.append(told)
        self._rows += 1 + 8 * len(told.findings) + len(told.assessments or ())
