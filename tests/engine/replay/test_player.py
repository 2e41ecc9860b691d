"""A moment of a recording is the same however it was reached, and playing keeps its pace."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.tui.canned import NODE
from vramscope.engine.model import DeviceEvent, Finding, Sample
from vramscope.engine.recording import RecordingIdentity, RecordingWriter
from vramscope.engine.replay.player import ReplayOptions
from vramscope.engine.replay.tapes import RecordingTape

from .recordings import START_S, TICKS, Played, grow, record

jumps = st.one_of(
    st.tuples(st.just("step"), st.integers(-3, 3).filter(bool)),
    st.tuples(st.just("skip"), st.sampled_from([-10.0, 10.0, -45.5, 120.0])),
    st.tuples(st.just("mark"), st.sampled_from([1, -1])),
    st.tuples(st.just("go"), st.floats(0, TICKS - 1).map(lambda at: round(at, 3))),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("replay") / "run.vscope")


@pytest.fixture(scope="module")
def played_through(path: Path) -> list[tuple[Finding, ...]]:
    """What is found at each sample where the recording plays from its start."""
    played = Played(path, options=ReplayOptions(is_paused=True))
    found = [played.player.snapshot.findings]
    for _ in range(1, TICKS):
        played.ask("step", 1)
        found.append(played.player.snapshot.findings)
    assert len({len(findings) for findings in found}) > 2, "there must be something to find"
    return found


@settings(max_examples=12, deadline=None)
@given(path_of_jumps=st.lists(jumps, min_size=1, max_size=5))
def test_a_moment_is_the_same_by_any_path(
    path: Path,
    played_through: list[tuple[Finding, ...]],
    path_of_jumps: list[tuple[str, float]],
) -> None:
    played = Played(path, options=ReplayOptions(is_paused=True))
    for verb, count in path_of_jumps:
        if verb == "go":
            played.ask("go", text=f"{count}s")
        else:
            played.ask(verb, count)  # type: ignore[arg-type]  # one of the verbs above
        at = round(played.seconds)
        is_last = at == TICKS - 1
        assert played.sample == msgspec.structs.replace(grow(at + 1), seq=0, is_last=is_last)
        assert played.player.snapshot.findings == played_through[at]
        kept = list(played.history.samples())
        assert kept[-1].time_s == START_S + at
        assert [it.time_s for it in kept] == [START_S + it for it in range(at + 1)]


def test_recorded_findings_are_those_that_were_told(path: Path) -> None:
    found, told = (
        Played(path, options=ReplayOptions(is_paused=True, is_as_recorded=is_it)) for is_it in (False, True)
    )
    for text in ("35%", "10s", "100%"):
        found.ask("go", text=text)
        told.ask("go", text=text)
        assert told.player.snapshot.findings == found.player.snapshot.findings
    assert told.player.snapshot.findings


def test_findings_of_before_the_window_are_handed_on(tmp_path: Path) -> None:
    samples = [
        msgspec.structs.replace(grow(129), time_s=START_S + seq, seq=seq, interval_s=0.05)
        for seq in range(240)
    ]
    played = Played(record(tmp_path / "long.vscope", samples), options=ReplayOptions(is_paused=True))
    played.ask("go", text="100%")  # the window is 180 s here: what opened at the start is out of it
    first = samples[0].time_s
    assert played.history.samples()
    assert any(
        finding.opened_s < first + 20 and finding.is_open for finding in played.player.snapshot.findings
    )


def test_playing_keeps_its_pace_through_gaps_pauses_and_loops(tmp_path: Path) -> None:
    seconds = [*range(1, 20), *range(8_000, 8_010)]
    samples = [msgspec.structs.replace(grow(1), time_s=START_S - 1 + at, seq=at) for at in seconds]
    played = Played(record(tmp_path / "gap.vscope", samples))
    played.let_pass(4.5)
    assert played.seconds == 4
    played.ask("speed", 2)
    played.let_pass(2)
    assert played.seconds == 12
    played.ask("pause")
    played.let_pass(60)
    assert played.seconds == 12
    played.ask("pause")
    played.let_pass(1.5 + 2)  # what is left, and the two seconds that the gap of hours takes
    assert played.seconds >= 7_998
    played.let_pass(10)
    assert played.sample.is_last
    played.ask("loop")
    played.let_pass(1)
    assert played.seconds < 10


def test_speeds_are_bounded_and_marks_are_visited_in_turn(path: Path) -> None:
    played = Played(path, options=ReplayOptions(speed=3.0, is_paused=True))
    played.ask("speed", 1)
    assert played.player.state.speed == 4
    for direction, bound in ((9, 64), (-20, 0.25)):
        played.ask("speed", direction)
        assert played.player.state.speed == bound
    moments = [mark.time_s for mark in played.player.state.marks]
    visited = list(_visit(played, 1))
    assert visited == sorted(set(moments))
    assert list(_visit(played, -1)) == visited[-2::-1]
    assert "No finding" in (played.player.state.word or pytest.fail("no message")).text


def fall_off(seq: int) -> Sample:
    """Return the sample of one second: XID 63 at 20.5 s, XID 79 at 60.25 s; GPU 0 is lost from 61 s on."""
    sample = grow(1)
    gpu, other = sample.devices
    if seq >= 61:
        gpu = msgspec.structs.replace(gpu, state="lost", reason="it fell off the bus")
    events = tuple(
        DeviceEvent(START_S + at, "xid", "kernel log", gpu.uuid, code=code, pid=pid)
        for at, code, pid in ((20.5, 63, None), (60.25, 79, 4001))
        if at <= seq <= at + 60
    )
    return msgspec.structs.replace(sample, devices=(gpu, other), time_s=START_S + seq, seq=seq, events=events)


@pytest.mark.parametrize("has_findings", [True, False])
def test_errors_of_devices_are_replayed_at_their_times(tmp_path: Path, has_findings: bool) -> None:
    samples = [fall_off(seq) for seq in range(120)]
    path = tmp_path / "lost.vscope"
    if has_findings:
        record(path, samples)
    else:
        with RecordingWriter(path, RecordingIdentity(NODE, START_S, "test", interval_s=1.0)) as writer:
            for sample in samples:
                writer.append(sample)
    played = Played(path, options=ReplayOptions(is_paused=True))
    errors = [(it.time_s - START_S, it.text) for it in played.player.state.marks if it.kind == "error"]
    assert errors == [
        (20.5, "device 0: XID 63"),
        (60.25, "device 0: XID 79 (process 4001)"),
        (61.0, "device 0 is lost: it fell off the bus"),
    ]
    played.ask("skip", 65)
    titles = [it.title for it in played.player.snapshot.findings if it.kind == "device_error"]
    assert sorted(title.partition(":")[0].split()[-1] for title in titles) == ["63", "79"]
    found = [it for it in played.player.state.marks if it.kind == "finding"]
    assert any("XID 79" in it.text for it in found)


def test_where_nothing_is_found_steps_are_visited(tmp_path: Path) -> None:
    def step(seq: int) -> object:
        sample = grow(1)
        devices = tuple(msgspec.structs.replace(it, step=seq // 40) for it in sample.devices)
        return msgspec.structs.replace(sample, devices=devices, time_s=START_S + seq, seq=seq)

    played = Played(record(tmp_path / "steps.vscope", [step(seq) for seq in range(200)]))  # type: ignore[misc]
    assert not played.player.state.marks
    assert list(_visit(played, 1)) == [START_S + at for at in (40, 80, 120, 160)]
    assert list(_visit(played, -1)) == [START_S + at for at in (120, 80, 40)]
    played.ask("mark", 1)
    word = played.player.state.word
    assert word is not None
    assert word.text == "step 2"


def test_a_clock_that_was_set_back_leaves_one_order_by_any_path(tmp_path: Path) -> None:
    times_s = [START_S + it for it in (*range(50), *(20.5 + it for it in range(60)))]
    samples = [msgspec.structs.replace(grow(1), time_s=at, seq=seq) for seq, at in enumerate(times_s)]
    tape = RecordingTape(record(tmp_path / "back.vscope", samples))
    whole = [it.time_s for it in tape.samples(tape.start_s)]
    assert whole == sorted(set(whole))
    for begin in whole[::7]:
        assert [it.time_s for it in tape.samples(begin)] == [at for at in whole if at >= begin]


def test_something_newer_leaves_what_was_begun(path: Path) -> None:
    played = Played(path, options=ReplayOptions(is_paused=True))
    played.ask("go", text="270s")
    before = list(played.history.samples())
    played.player.seek(START_S + 140)
    looks = iter([False, False, True])
    assert not played.player.catch_up(lambda: next(looks))
    assert list(played.history.samples()) == before
    assert played.player.is_catching_up
    assert played.player.snapshot.findings == (), "nothing is said of a moment before it is known"
    played.ask("go", text="20s")
    assert list(played.history.samples())[-1].time_s == START_S + 20


def _visit(played: Played, direction: int) -> Iterator[float]:
    """Yield the moments that `n` or `N` goes to, until it stays."""
    while True:
        before_s = played.player.state.position_s
        played.ask("mark", direction)
        if played.player.state.position_s == before_s:
            return
        yield played.player.state.position_s


@pytest.fixture(scope="module")
def long_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record more than a window, which is 180 s long here and begins every 30 s."""
    samples = [
        msgspec.structs.replace(grow(seq % 300), time_s=START_S + seq, seq=seq, interval_s=0.05)
        for seq in range(500)
    ]
    return record(tmp_path_factory.mktemp("replay") / "long.vscope", samples)


@settings(max_examples=6, deadline=None)
@given(jumps=st.lists(st.tuples(st.integers(200, 499), st.lists(st.integers(1, 6), max_size=3)), max_size=2))
@example(jumps=[(393, [1, 1, 1, 1])])  # over the beginning of another window, at 390
def test_going_back_shows_the_same_whatever_was_kept(
    long_path: Path, jumps: list[tuple[int, list[int]]]
) -> None:
    played = Played(long_path, options=ReplayOptions(is_paused=True))
    for reached, steps_back in jumps:
        played.ask("go", text="0s")
        played.ask("go", text=f"{reached}s")
        second = reached
        for step_s in (0, *steps_back):
            second -= step_s
            played.ask("skip", -step_s)
            anew = Played(long_path, options=ReplayOptions(is_paused=True))
            anew.ask("go", text=f"{second}s")
            assert played.sample == anew.sample
            assert played.player.snapshot.findings == anew.player.snapshot.findings
            kept = list(played.history.samples())
            assert kept == list(anew.history.samples())
            assert 180 <= kept[-1].time_s - kept[0].time_s <= 210
