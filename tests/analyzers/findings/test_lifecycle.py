"""How a finding lives, whichever analyzer it is of: opened, adopted, restated, closed, also for absence."""

from vramscope.analyzers.findings.lifecycle import OpenFinding, Tracks, begin_finding, restate
from vramscope.engine.model import Sample
from vramscope.engine.model.finding import CLOSED_BECAUSE, make_finding_id

KEY = ("node", "GPU-1")


def make_track(_: tuple[str, str]) -> OpenFinding:
    return OpenFinding()


def make_sample(time_s: float, interval_s: float = 1.0, node: str = "node") -> Sample:
    return Sample(node=node, seq=1, time_s=time_s, interval_s=interval_s)


def test_an_id_is_that_of_the_device_or_of_what_else_the_finding_is_about() -> None:
    device = begin_finding("leak", "node", 7.0, device_uuid="GPU-1")
    process = begin_finding("leak", "node", 7.0, device_uuid="GPU-1", about="GPU-1#4711")
    assert device.id == make_finding_id("leak", "node", "GPU-1", 7.0)
    assert process.id == make_finding_id("leak", "node", "GPU-1#4711", 7.0)
    assert process.device_uuid == "GPU-1"


def test_a_clock_that_was_set_back_neither_updates_nor_closes_a_finding_before_it_opened() -> None:
    opened = begin_finding("leak", "node", 7.0, device_uuid="GPU-1")
    assert restate(opened, 3.0, title="words").updated_s == 7.0
    track = OpenFinding()
    track.state(opened)
    (closed,) = track.close(3.0, "why")
    assert (closed.updated_s, closed.closed_s, track.finding) == (7.0, 7.0, None)
    assert (closed.evidence[-1].name, closed.evidence[-1].value) == (CLOSED_BECAUSE, "why")
    assert track.close(4.0, "again") == ()


def test_samples_up_to_the_last_update_of_an_adopted_finding_are_judged_already() -> None:
    track = OpenFinding()
    assert not track.is_settled(0.0)
    track.adopt(restate(begin_finding("leak", "node", 7.0), 9.0, title="words"))
    assert [track.is_settled(time_s) for time_s in (8.0, 9.0, 9.5)] == [True, True, False]


def test_a_device_must_be_absent_for_a_whole_dwell_before_its_finding_closes() -> None:
    track = OpenFinding()
    track.state(begin_finding("pressure", "node", 7.0, device_uuid="GPU-1"))
    found = [track.observe_absence(time_s, is_lost=True) for time_s in (10.0, 15.0, 20.0)]
    assert [len(closed) for closed in found] == [0, 0, 1]
    assert found[-1][0].evidence[-1].value == "the device was lost"


def test_a_subject_is_gone_when_its_own_node_has_not_listed_it_for_long() -> None:
    tracks = Tracks(make_track)
    tracks.see(KEY, 100.0)
    assert list(tracks.pop_absent(make_sample(109.0), lambda _: set())) == []
    assert list(tracks.pop_absent(make_sample(500.0, node="other"), lambda _: set())) == []
    assert list(tracks.pop_absent(make_sample(110.0), lambda _: {KEY})) == []
    assert list(tracks.pop_absent(make_sample(110.0, interval_s=5.0), lambda _: set())) == []
    assert [key for key, _ in tracks.pop_absent(make_sample(110.0), lambda _: set())] == [KEY]
    assert tracks.get(KEY) is None
