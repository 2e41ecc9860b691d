"""What a hub publishes from: live devices, or a trace that plays."""

from typing import Protocol

from ..model import Sample


class SampleProducer(Protocol):
    """Yields samples when they are due; the caller owns the waiting."""

    node: str
    """Name of the node that the samples are of."""
    interval_s: float
    """Length of one published tick in seconds."""

    def start(self) -> None:
        """Begin; the first sample may be due at once."""
        ...

    def wait_s(self) -> float:
        """Return the seconds until the next sample is due; 0 when one is."""
        ...

    def take(self) -> list[Sample]:
        """Return the samples that are due now, oldest first; may be empty. Never blocks on a driver."""
        ...

    def stop(self) -> None:
        """End; never waits for a driver call that hangs."""
        ...
