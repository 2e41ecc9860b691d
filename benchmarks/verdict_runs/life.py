"""The life of one process as its allocator saw it: a row for each step."""

from dataclasses import dataclass

from .job import Floats, Ints, Job


@dataclass(frozen=True)
class Life:
    """Levels of one process; arrays of one length, a row for each step that ended or was begun."""

    job: Job
    start_s: float
    """When its first step begins, in seconds from the start of the run."""
    ends_s: Floats
    before_bytes: Ints
    """Allocated where the step begins."""
    after_bytes: Ints
    """Allocated where it ends."""
    peak_bytes: Ints
    """Most allocated within it."""
    reserved_bytes: Ints
    """Reserved from the height of the step on."""
    stranded_bytes: Ints
    """Free bytes in segments that hold a live block, at the end of the step (`inactive_split_bytes`)."""
    retries: Ints
    """Times since its start that the cache was given back for want of room."""
    oom_s: float | None = None
    """When it ran out of memory within the last step; None where it ran to its end."""

    @property
    def end_s(self) -> float:
        """When it is gone."""
        return float(self.ends_s[-1]) if self.oom_s is None else self.oom_s
