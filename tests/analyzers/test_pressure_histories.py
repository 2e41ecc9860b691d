"""Device pressure whatever happens: drawn histories, restarts anywhere, and fields that decide nothing."""

from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.pressure import PressureAnalyzer
from vramscope.engine.model import Finding, Sample

from .samples import device, sample
from .test_pressure import BETWEEN, NEARLY_FULL, RELIEVED, SCARCE, run, standing

levels = st.one_of(
    st.sampled_from([RELIEVED, BETWEEN, NEARLY_FULL, SCARCE, 80.0]),
    st.floats(0, 80, allow_nan=False),
    st.none(),
)
ticks = st.lists(
    st.tuples(levels, st.integers(1, 15), st.sampled_from(["ok", "ok", "ok", "stale", "lost", "absent"])),
    max_size=25,
)


@st.composite
def histories(draw: st.DrawFn) -> list[Sample]:
    samples = []
    time_s = 0.0
    for used, count, state in draw(ticks):
        for _ in range(count):
            time_s += draw(st.sampled_from([1.0, 1.0, 1.0, 0.5, 4.0, 9.0]))
            devices = () if state == "absent" else (device(used, state=state),)  # type: ignore[arg-type] # drawn
            samples.append(sample(*devices, time_s=time_s))
    return samples


def open_at_end(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in standing(findings).values() if finding.is_open]


@settings(deadline=None)
@given(histories())
def test_openings_and_closings_alternate(samples: list[Sample]) -> None:
    current: Finding | None = None
    for found in run(samples):
        if current is None:
            assert found.is_open
            assert found.opened_s == found.updated_s
        else:
            assert found.id == current.id
            assert found.updated_s > current.updated_s
        assert found.severity in {"low", "medium"}
        current = found if found.is_open else None


@settings(deadline=None)
@given(histories(), st.data())
def test_restart_concludes_the_same_from_the_open_findings_and_the_ring(
    samples: list[Sample], data: st.DataObject
) -> None:
    crash = data.draw(st.integers(0, len(samples)))
    before = run(samples[:crash])
    opened_s = min((finding.opened_s for finding in open_at_end(before)), default=0.0)
    reaches = data.draw(st.sampled_from(["whole", "since it opened"]))
    ring = [each for each in samples if reaches == "whole" or each.time_s >= opened_s]
    analyzer = PressureAnalyzer()
    analyzer.restore(open_at_end(before))
    after = standing(run(ring, analyzer))
    expected = standing(run(samples))
    for identity, found in after.items():
        assert expected[identity] == found
    assert {**standing(before), **after} == expected


@settings(deadline=None)
@given(histories())
def test_fields_that_the_ring_does_not_keep_decide_nothing(samples: list[Sample]) -> None:
    bare = [
        msgspec.structs.replace(
            each,
            seq=0,
            host=None,
            notes=("other",),
            devices=tuple(
                msgspec.structs.replace(
                    one, age_s=None, reason=None, processes=(), temperature_c=1.0, power_w=2.0, rank=None
                )
                for one in each.devices
            ),
        )
        for each in samples
    ]
    assert run(bare) == run(samples)
