"""This node where it may have no device: one that only gathers what others tell."""

from collections.abc import Sequence

import msgspec

from vramscope.engine.errors import SourceUnavailableError
from vramscope.engine.model import Sample
from vramscope.exporters.reports.frame import Provenance

from .live_stream import LiveStream


class SpareStream(LiveStream):
    """This node, live; where there is nothing to sample, that is noted and no error.

    Args:
        interval_s: Seconds from one sample to the next, where this process samples.
    """

    def __init__(self, interval_s: float) -> None:
        super().__init__(interval_s)
        self.absence: SourceUnavailableError | None = None
        """Why this node has nothing to sample; None while it has, or as long as that is not known."""

    @property
    def provenance(self) -> Provenance:
        """Where the samples come from, and why there is none where there is none."""
        told = super().provenance
        if self.absence is None:
            return told
        note = f"this node gathers, and reports nothing of its own: {self.absence}"
        return msgspec.structs.replace(told, notes=(*told.notes, note))

    def take(self, timeout_s: float) -> Sequence[Sample]:
        """Return the samples that follow; none when the time is up first, or there is no device."""
        try:
            samples = super().take(timeout_s)
        except SourceUnavailableError as error:
            self.absence = error
            return ()
        self.absence = None if samples else self.absence
        return samples
