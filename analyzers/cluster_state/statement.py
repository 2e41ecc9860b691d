"""What may be said of a cluster at one moment, before it has stood for long enough to be a finding."""

from typing import NamedTuple

from ...engine.model import Evidence, Severity


class Statement(NamedTuple):
    """One thing that holds, nearly holds, or holds no longer."""

    kind: str
    about: str
    """Which job."""
    is_beyond: bool
    """Whether it holds."""
    is_back: bool
    """Whether it holds no longer; between the two neither."""
    node: str = ""
    """Where it strikes first."""
    severity: Severity = "low"
    title: str = ""
    evidence: tuple[Evidence, ...] = ()
    method: str = ""
    advice: str = ""
    news: tuple[object, ...] = ()
    """What a person would call another state of affairs; figures may change without."""
    at_s: float | None = None
    """When it is expected to strike, by our own clock."""
    time_s: float = 0.0
    """When it is stated."""

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others."""
        return self.kind, self.about
