"""Hand-made series: CSV lines, logs of nvidia-smi; and a way to play what a test wrote."""

from collections.abc import Sequence
from pathlib import Path

from vramscope.engine.model import Sample
from vramscope.engine.sampling.series_player import FileSource
from vramscope.engine.sampling.series_source import open_series

HEADER = "time_s,device,allocated_bytes,reserved_bytes,used_bytes,total_bytes,step"
LOG_HEADER = "timestamp, index, memory.used [MiB], memory.total [MiB]"


def write_lines(path: Path, *lines: str, end: str = "\n") -> Path:
    """Write lines, each with its end."""
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def play(path: Path) -> tuple[FileSource, list[Sample]]:
    """Return a source and all its samples."""
    source = open_series(path)
    return source, list(source.samples())


def allocated(samples: Sequence[Sample], index: int = 0) -> list[tuple[float, int | None]]:
    """Return the times of a device with what was allocated on it."""
    return [
        (sample.time_s, device.allocator.allocated_bytes if device.allocator else None)
        for sample in samples
        for device in sample.devices
        if device.index == index
    ]


def used(samples: Sequence[Sample], index: int = 0) -> list[int | None]:
    """Return what was used of a device."""
    return [
        device.memory.used_bytes for sample in samples for device in sample.devices if device.index == index
    ]
