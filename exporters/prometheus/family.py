"""A family of metrics: one kind of figure, of whatever it is read from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

Subject = TypeVar("Subject")
"""What a figure is of: a device, a process, an agent."""

DEVICE_LABELS = ("node", "device", "uuid")
"""Those of the series that `vramscope export --prometheus` writes, so that both continue each other."""
RANK_LABELS = (*DEVICE_LABELS, "rank", "pid")


@dataclass(frozen=True)
class Family(Generic[Subject]):
    """One kind of figure; what is unmeasured has no series."""

    name: str
    """Without the `_total` of a counter and the `_info` of an info."""
    kind: Literal["gauge", "counter", "info"]
    unit: str
    """In the singular of OpenMetrics: how the name ends. Empty where there is none."""
    help: str
    read: Callable[[Subject], float | None]


def label_text(value: object) -> str:
    """Return the value of a label: empty where it is unknown, and always text that can be encoded."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode()
