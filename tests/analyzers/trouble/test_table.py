"""Every trouble over every run, through all analyzers that are installed, as a worker hosts them."""

import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest

from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.model import Finding, Sample
from vramscope.engine.plugins import make_analyzers
from vramscope.engine.units import GIB

from ..leak.courses import steps
from .runs import FAULTY, HEALTHY
from .troubles import GRAVE, HARMLESS, start_again

NAMES = {"capacity", "divergence", "fragmentation", "leak", "oom", "out_of_memory", "pressure", "usage"}


def _play(run: Sequence[Sample]) -> list[Finding]:
    """Return the newest version of each finding, once nothing broke and each had one life."""
    host = AnalyzerHost(make_analyzers().made)
    assert set(host.names) >= NAMES
    found: dict[str, Finding] = {}
    for sample in run:
        for finding in host.observe(sample):
            before = found.get(finding.id)
            assert before is None or before.is_open, "a closed finding does not come back"
            assert before is None or before.opened_s == finding.opened_s
            found[finding.id] = finding
    host.assess()
    assert host.reason is None
    return list(found.values())


@pytest.mark.parametrize("name", HEALTHY)
def test_no_trouble_makes_a_healthy_run_look_faulty(name: str) -> None:
    for trouble in ({} | HARMLESS | GRAVE).values():
        titles = [finding.title for finding in _play(trouble(HEALTHY[name]()))]
        assert titles == [], trouble.__name__


@pytest.mark.parametrize("name", FAULTY)
def test_what_is_found_is_found_once_whatever_came_between(name: str) -> None:
    make, kinds = FAULTY[name]
    for trouble in HARMLESS.values():
        found = Counter(finding.kind for finding in _play(trouble(make())) if finding.kind in kinds)
        assert found == dict.fromkeys(kinds, 1), trouble.__name__


@pytest.mark.parametrize("name", FAULTY)
def test_grave_trouble_hides_nothing_for_long(name: str) -> None:
    make, kinds = FAULTY[name]
    for trouble in GRAVE.values():
        found = {finding.kind for finding in _play(trouble(make()))}
        assert kinds <= found, trouble.__name__


def test_a_process_that_starts_again_under_its_id_is_another() -> None:
    first, second = [it for it in _play(start_again(FAULTY["leak"][0]())) if it.kind == "leak"]
    assert not first.is_open
    assert second.is_open
    assert second.opened_s > (first.closed_s or 0.0)


def _keep_lengths(count: int) -> Iterator[Sample]:
    source = random.Random(1)
    return steps([20.0 * GIB] * count, lambda step: source.uniform(4, 12) * GIB)


def _come_and_go(count: int, life: int = 40) -> Iterator[Sample]:
    for start in range(0, count, life):
        yield from steps([20.0 * GIB] * life, started_s=float(start), start_s=float(start))


@pytest.mark.parametrize("make", [_keep_lengths, _come_and_go])
def test_what_analyzers_hold_does_not_grow_with_the_run(
    make: Callable[[int], Iterable[Sample]],
) -> None:
    analyzers = make_analyzers().made
    host, held = AnalyzerHost(analyzers), []
    for at, sample in enumerate(make(8_001)):
        host.observe(sample)
        if at in (1520, 8_000):
            held.append(sum(len(pickle.dumps(analyzer)) for analyzer in analyzers))
    assert held[1] < 1.5 * held[0], "only a handful of blocks is added whenever the run doubles"
