"""What figures are made of: curves in bytes or shares, and the findings to mark on them."""

from typing import Literal

import msgspec

from ...engine.model import Severity
from .curve import Curve

FigureFormat = Literal["png", "pdf", "svg"]
FORMATS: tuple[FigureFormat, ...] = ("png", "pdf")
"""Of each figure, where a folder was named and no file."""
FigureClock = Literal["wall", "trace"]
"""`wall`: times are seconds since the epoch and shown as local time; `trace`: seconds of the input."""


class Marker(msgspec.Struct, frozen=True):
    """One finding on the axis of time."""

    time_s: float
    severity: Severity
    label: str
    """Its kind, as `leak`."""
    request_bytes: int | None = None
    """Of an out-of-memory error: the request that failed."""


class DeviceFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one device over time, in bytes."""

    device: str
    """Its label, in the title and the name of the file."""
    clock: FigureClock
    allocated: Curve | None = None
    reserved: Curve | None = None
    used: Curve | None = None
    capacity: Curve | None = None
    markers: tuple[Marker, ...] = ()
    subtitle: str = ""
    """What the figures are of."""
    name: str = ""
    """What the title calls the device, as `rank 3`; without it `GPU` and its label."""


class FragmentationFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Fragmentation of one device over time, as a share from 0 to 1."""

    device: str
    clock: FigureClock
    fragmentation: Curve | None
    external: Curve | None = None
    internal: Curve | None = None
    markers: tuple[Marker, ...] = ()
    subtitle: str = ""
    reason: str = ""
    """Why it was not measured, where it was not."""
    name: str = ""
    """What the title calls the device, as `rank 3`; without it `GPU` and its label."""


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
    """The most that each device ever had, in bytes; None is unmeasured."""

    devices: tuple[str, ...]
    allocated: tuple[int | None, ...]
    """One value a device, in their order; so are the others."""
    reserved: tuple[int | None, ...]
    used: tuple[int | None, ...]
    capacity: tuple[int | None, ...]
    subtitle: str = ""

    def of(self, name: str) -> tuple[int | None, ...]:
        """Return the values of one figure."""
        values: tuple[int | None, ...] = getattr(self, name)
        return values


class HeatMap(msgspec.Struct, frozen=True, kw_only=True):
    """Devices over time, one value a cell; None is unmeasured."""

    devices: tuple[str, ...]
    edges_s: tuple[float, ...]
    """Times between the columns: one more than there are."""
    values: tuple[tuple[float | None, ...], ...]
    """A row a device."""
    unit: Literal["%", "GiB"]
    clock: FigureClock
    subtitle: str = ""
