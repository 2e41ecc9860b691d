"""The record of an out-of-memory error is whole, bounded, private, and never in the way of the error."""

import gzip
import json
import os
import resource
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.probe.clocks import WoundClock
from tests.engine.probe.hub import listen
from tests.engine.probe.stand_in import MIB, StandInCuda, StandInOptimizer, make_segment, make_torch
from tests.waiting import wait_until
from vramscope.engine.probe import flight_record
from vramscope.engine.probe.base import current
from vramscope.engine.probe.flight_record import (
    COLUMNS,
    MAX_FILE_BYTES,
    MOST_COARSE,
    MOST_FINE,
    PAUSE_S,
    RecentReadings,
    encode_record,
    fill_record,
    locate_folders,
    write_record,
)
from vramscope.engine.probe.history import attach_observer, is_observer_settled, observe_out_of_memory
from vramscope.engine.probe.session import Session
from vramscope.engine.ranks.messages import Hello, OutOfMemoryMet

MESSAGE = "CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.fixture
def flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "flights"
    monkeypatch.setenv("VRAMSCOPE_FLIGHT_DIR", str(folder))
    return folder


@pytest.fixture
def cuda() -> StandInCuda:
    cuda = StandInCuda()
    cuda.allocate(40 * MIB)
    cuda.segments = [make_segment([(30 * MIB, "active_allocated"), (2 * MIB, "inactive")], frames=3)]
    return cuda


@pytest.fixture
def clock() -> WoundClock:
    return WoundClock()


@pytest.fixture
def session(tmp_path: Path, cuda: StandInCuda, clock: WoundClock) -> Iterator[Session]:
    """A session whose thread is not started: the test ticks."""
    current.failures.clear()
    session = Session(make_torch(cuda), str(tmp_path), "job-1", is_explicit=False, clock=clock)
    current.session = session
    yield session
    current.session = None
    session.end("exit")
    current.failures.clear()


def load(path: str | None) -> dict[str, Any]:
    assert path is not None
    content: dict[str, Any] = json.loads(gzip.decompress(Path(path).read_bytes()))
    return content


def test_a_record_tells_what_led_to_the_error(session: Session, flights: Path, tmp_path: Path) -> None:
    with listen(tmp_path) as hub:
        session._tick()
        path = session.record_out_of_memory(2 << 30, MESSAGE, 1 << 30, None, None)
        (met,) = hub.wait_for(OutOfMemoryMet)
        assert isinstance(hub.connections[0][0], Hello)
    record = load(path)
    assert met.flight_record == path
    assert (met.size_bytes, met.reason) == (2 << 30, None)
    assert record["schema"] == "vramscope.flight/1"
    assert record["reason"] == "oom"
    assert record["process"]["pid"] == os.getpid()
    assert record["process"]["backend"] == "cuda"
    assert record["process"]["rank"] is None
    assert record["device"] == {
        "uuid": "GPU-11111111-2222-3333-4444-000000000000",
        "index": 0,
        "name": "Stand-in 24G",
        "total_bytes": 24 * 1024 * MIB,
    }
    failure = record["failure"]
    assert (failure["size_bytes"], failure["device_free_bytes"], failure["message"]) == (
        2 << 30,
        1 << 30,
        MESSAGE,
    )
    assert failure["device_used_bytes"] == 23 << 30
    innermost = failure["stack"][0]
    assert innermost[0] == __file__
    assert innermost[2] == "test_a_record_tells_what_led_to_the_error"


def test_a_record_holds_samples_steps_statistics_and_segments(
    session: Session, clock: WoundClock, flights: Path
) -> None:
    for _ in range(20):
        session._tick()
        clock.advance(0.1)
    optimizer = StandInOptimizer()
    session.meet_optimizer(optimizer)
    record = load(session.record_out_of_memory(2 << 30, MESSAGE, 1 << 30, None, None))
    assert record["columns"] == list(COLUMNS)
    assert len(record["samples"]) == 20
    assert record["samples"][-1][1] == 40 * MIB
    assert record["steps"][0][0] == 1
    assert record["model"]["parameters_bytes"] == 4
    assert record["stats"]["allocated_bytes.all.current"] == 40 * MIB
    assert len(record["stats"]) == 122
    assert [block["size"] for block in record["segments"][0]["blocks"]] == [30 * MIB, 2 * MIB]
    assert all("frames" not in block for block in record["segments"][0]["blocks"])
    assert record["live_blocks"][0]["size_bytes"] == 30 * MIB
    assert record["live_blocks"][0]["stack"][0] == [f"/code/layer_{30 * MIB}.py", 10, "f0"]
    assert record["truncated"] == {"samples": 0, "segments": 0, "blocks": 0}
    assert record["notes"] == []


def test_a_record_belongs_to_its_user_alone_and_leaves_nothing_else(session: Session, flights: Path) -> None:
    path = session.record_out_of_memory(1, MESSAGE, None, None, None)
    assert path is not None
    assert [str(child) for child in flights.iterdir()] == [path]
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert stat.S_IMODE(flights.stat().st_mode) == 0o700


def test_at_most_three_records_are_written_and_not_close_together(
    session: Session, clock: WoundClock, flights: Path
) -> None:
    written = []
    for _ in range(12):
        written.append(session.record_out_of_memory(1, MESSAGE, None, None, None) is not None)
        clock.advance(PAUSE_S / 2)
    assert written == [True, False, True, False, True] + 7 * [False]
    assert len(list(flights.iterdir())) == 3


def test_the_observer_writes_one_and_is_attached_once_and_only_after_initialisation(
    session: Session, cuda: StandInCuda, flights: Path
) -> None:
    torch = make_torch(cuda)
    cuda.is_ready = False
    assert not attach_observer(torch)
    cuda.is_ready = True
    assert attach_observer(torch)
    assert attach_observer(torch)
    (observer,) = cuda.observers
    observer(0, 5 * MIB, 100 * MIB, 3 * MIB)
    (file,) = flights.iterdir()
    failure = load(str(file))["failure"]
    assert (failure["size_bytes"], failure["device_free_bytes"]) == (5 * MIB, 3 * MIB)
    assert not attach_observer(make_torch(cuda, has_observer=False))


def test_an_allocator_that_may_call_with_its_lock_held_is_not_observed(
    session: Session, cuda: StandInCuda
) -> None:
    torch = make_torch(cuda)
    torch.cuda.memory._record_memory_history = lambda enabled, record_context=True: None
    assert not attach_observer(torch)
    assert not attach_observer(torch)
    assert cuda.observers == []
    (note,) = current.failures
    assert "leave no record" in note


def test_an_allocator_that_takes_no_observer_is_told_once_and_raises_nothing(
    session: Session, cuda: StandInCuda
) -> None:
    torch = make_torch(cuda)

    def refuse(_: object) -> None:
        raise RuntimeError("CUDAPluggableAllocator does not yet support attachOutOfMemoryObserver")

    torch._C._cuda_attach_out_of_memory_observer = refuse
    assert not attach_observer(torch)
    assert not attach_observer(torch)
    (note,) = current.failures
    assert "accepts no observer" in note


def test_a_simulated_card_in_a_build_for_cuda_is_not_observed_and_nothing_is_said(
    session: Session, cuda: StandInCuda
) -> None:
    torch = make_torch(cuda)
    torch.cuda._vramscope_simulated = {"device_name": "Simulated GPU"}

    def refuse(_: object) -> None:
        raise RuntimeError("Allocator not initialized for device 0")

    torch._C._cuda_attach_out_of_memory_observer = refuse
    assert not attach_observer(torch)
    assert is_observer_settled(torch)
    assert current.failures == []


def test_a_ctrl_c_that_falls_into_the_record_reaches_the_program_and_not_the_allocator(
    session: Session, flights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("vramscope.engine.probe.out_of_memory.fill_record", interrupt)
    returned: list[str] = []

    def fail_to_allocate() -> None:
        observe_out_of_memory(0, 1, 2, 3)
        returned.append("to the allocator")
        wait_until(lambda: False, 60.0, "the interrupt")

    with pytest.raises(KeyboardInterrupt):
        fail_to_allocate()
    assert returned != []
    assert "KeyboardInterrupt" in current.failures[-1]


def test_whatever_fails_the_error_goes_on(
    session: Session, flights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no memory for the record either")

    monkeypatch.setattr("vramscope.engine.probe.out_of_memory.fill_record", fail)
    observe_out_of_memory(0, 1, 2, 3)
    assert "MemoryError" in current.failures[-1]
    current.session = None
    observe_out_of_memory(0, 1, 2, 3)


def test_a_snapshot_that_fails_leaves_a_record_without_segments(
    session: Session, cuda: StandInCuda, flights: Path
) -> None:
    def refuse(mempool_id: object = None, include_traces: bool = True) -> None:
        raise RuntimeError("mempool_id must be a tuple of 2 integers")

    cuda.memory_snapshot = refuse  # type: ignore[assignment,method-assign]
    record = load(session.record_out_of_memory(1, MESSAGE, None, None, None))
    assert record["segments"] == []
    assert "mempool_id" in record["notes"][0]


def test_folders_are_tried_in_turn(tmp_path: Path) -> None:
    environ = {"VRAMSCOPE_FLIGHT_DIR": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}
    assert locate_folders("/run", environ) == ["/a", "/b/vramscope/flight", "/run/flight"]
    assert locate_folders("/run", {"HOME": "/c"}) == ["/c/.local/state/vramscope/flight", "/run/flight"]
    assert locate_folders("/run", {"XDG_STATE_HOME": "relative"}) == ["/run/flight"]
    taken = tmp_path / "taken"
    taken.write_text("a file where a folder should be")
    path, reason = write_record(b"content", [str(taken), str(tmp_path / "free")], "name")
    assert path == str(tmp_path / "free" / "name")
    assert reason is None


def test_a_full_disk_leaves_no_half_record_and_the_hub_hears_why(
    session: Session, clock: WoundClock, flights: Path, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with listen(tmp_path) as hub:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
        try:
            path = session.record_out_of_memory(7, MESSAGE, None, None, None)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        (met,) = hub.wait_for(OutOfMemoryMet)
    assert path is None
    assert met.flight_record is None
    assert met.reason is not None
    assert "File too large" in met.reason
    assert [child for child in tmp_path.rglob("*") if child.is_file()] == []


def make_about(**changed: object) -> dict[str, Any]:
    about: dict[str, Any] = {
        "written_s": 1.0,
        "process": {},
        "device": {},
        "failure": {"message": "m"},
        "steps": [],
        "model": None,
        "stats": {},
        "notes": [],
    }
    return {**about, **changed}


def test_a_record_of_a_shattered_allocator_is_bounded_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    segments = [
        make_segment(
            [(512 * (1 + (number * 7919 + block) % 97), "inactive") for block in range(100)], address=number
        )
        for number in range(600)
    ]
    content = fill_record(make_about(), [], segments)
    assert sum(len(segment["blocks"]) for segment in content["segments"]) <= flight_record.MOST_BLOCKS
    left_out = content["truncated"]["segments"]
    assert left_out == 600 - len(content["segments"]) > 0
    assert len(encode_record(content)) <= MAX_FILE_BYTES
    monkeypatch.setattr(flight_record, "MAX_FILE_BYTES", 20_000)
    packed = encode_record(content)
    smaller = json.loads(gzip.decompress(packed))
    assert len(packed) <= 20_000
    assert smaller["truncated"]["segments"] == 600 - len(smaller["segments"]) > left_out


def test_the_last_minutes_are_kept_the_newest_in_full() -> None:
    recent = RecentReadings()
    from vramscope.engine.probe.backends import NOTHING

    total = MOST_FINE + 10 * MOST_COARSE
    for number in range(total):
        recent.add(number / 10, NOTHING, 0)
    times = [row[0] for row in recent.rows()]
    assert times == sorted(times)
    assert len(times) == MOST_FINE + MOST_COARSE
    assert times[-MOST_FINE:] == [number / 10 for number in range(total - MOST_FINE, total)]
    assert times[-1] - times[0] == pytest.approx(300, abs=1)
    assert recent.thinned_away == total - len(times)
