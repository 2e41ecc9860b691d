"""A worker that dies and is fed the ring of its hub: what its successor finds, beside what it would have."""

from collections.abc import Callable, Iterable, Sequence

from vramscope.engine.history import History
from vramscope.engine.model import Analyzer, Finding, Sample


def watch(analyzer: Analyzer, samples: Iterable[Sample]) -> list[Finding]:
    """Return everything that an analyzer published, in order."""
    return [finding for sample in samples for finding in analyzer.observe(sample)]


def last_words(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Return the newest version of each finding by its id."""
    return {finding.id: finding for finding in findings}


def restart(
    make: Callable[[], Analyzer], samples: Sequence[Sample], at: int, *, ring: int | None = None
) -> list[Finding]:
    """Return what two workers published, of which the second is fed the ring as a hub hands it over.

    Args:
        make: Returns a fresh analyzer.
        samples: The run.
        at: How many of them the first worker saw.
        ring: Ticks that the ring keeps; all where None.
    """
    published = watch(make(), samples[:at])
    history = History(ring) if ring is not None else History()
    for sample in samples[:at]:
        history.add(sample)
    kept = list(history.samples())
    oldest_s = kept[0].time_s if kept else None
    known = last_words(published).values()
    successor = make()
    successor.restore([f for f in known if f.is_open and (oldest_s is None or f.opened_s < oldest_s)])
    return [*published, *watch(successor, [*kept, *samples[at:]])]
