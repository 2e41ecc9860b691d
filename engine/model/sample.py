"""A sample: everything measured on one node in one published tick."""

from typing import Literal

import msgspec

from .device import DeviceSample
from .host import HostSample
from .rank import RankSample


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One node at one published tick."""

    node: str
    seq: int
    """Counts up by one per tick of one hub; a gap means samples were dropped on the way."""
    time_s: float
    """Wall clock in seconds since the epoch, or seconds of the trace where `clock` is `trace`."""
    interval_s: float
    """Length of the tick in seconds of `time_s`."""
    devices: tuple[DeviceSample, ...] = ()
    host: HostSample | None = None
    ranks: tuple[RankSample, ...] = ()
    """Training processes that report through the probe, each with the device its tensors live on."""
    notes: tuple[str, ...] = ()
    """Sentences about what was looked for and not found, or what limits the figures."""
    clock: Literal["wall", "trace"] = "wall"
    is_last: bool = False
    """Whether no sample follows: a recording has ended."""
    devices_left_out: int = 0
    """Devices that the node has beside these, and for which nobody asked; 0 where all are told."""
