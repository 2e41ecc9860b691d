"""What steps of different sizes say about the largest that would fit: an estimate, never a measurement."""

import msgspec

from ..units import KIB, MIB, format_bytes


class HeadroomEstimate(msgspec.Struct, frozen=True):
    """What the steps of one process say; None where it was refused."""

    unit: str
    """What sizes count, in the plural: `tokens` or `samples`."""
    limit_bytes: int
    """Most that live tensors can take."""
    steps: int
    sizes: int
    """Distinct sizes."""
    largest_seen: float | None
    confidence: float
    """Probability that a step of `largest_size` fits, and that one of `too_large_size` does not."""
    sampled_sizes: int = 0
    """Of how many sizes the peak was only sampled, and is itself an estimate."""
    reason: str | None = None
    """Why there is no answer, in a clause."""
    per_unit_bytes: float | None = None
    base_bytes: int | None = None
    """Peak of a step of size 0 by the line: what does not depend on the size."""
    expected_size: int | None = None
    """Size whose peak meets the limit by the line, halfway between what is sure and the best case."""
    largest_size: int | None = None
    """Largest size that fits with the confidence; 0 where not even the smallest does."""
    too_large_size: int | None = None
    """Smallest size that does not fit with the confidence; None where that is too far from what was seen."""
    is_extrapolated: bool = False
    """Whether `largest_size` is beyond the largest size seen."""
    is_bounded: bool = False
    """Whether more might fit, but is too far beyond what was seen to tell."""

    @property
    def sentence(self) -> str:
        """The answer for people."""
        if self.reason is not None or self.largest_size is None:
            return f"No headroom in {self.unit} can be told: {self.reason}"
        return (
            f"Estimate: {self.per_unit} over {format_bytes(self.base_bytes)}; {self.fitting} would fit "
            f"{format_bytes(self.limit_bytes)} with {self.confidence:.0%} confidence{self._beyond}; "
            f"seen were up to {self.largest_seen:,.0f}"
        )

    @property
    def per_unit(self) -> str:
        """Memory for each token or sample, for people."""
        each = self.per_unit_bytes or 0.0
        told = f"{each / MIB:,.2f} MiB" if each >= MIB else f"{each / KIB:,.1f} KiB"
        return f"{told} a {self.unit.removesuffix('s')}"

    @property
    def fitting(self) -> str:
        """The largest size that fits, for people."""
        least = "at least " if self.is_bounded else ""
        noun = self.unit.removesuffix("s") if self.largest_size == 1 else self.unit
        return f"{least}{self.largest_size or 0:,} {noun}"

    @property
    def _beyond(self) -> str:
        if self.too_large_size is None or self.expected_size is None:
            return ""
        return f", {self.expected_size:,} as likely as not, {self.too_large_size:,} would not"
