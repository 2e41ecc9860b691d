"""What people decide about findings is kept, shared, and outlives the hub."""

import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.engine.alerts.findings import NOON_S, HandClock, make_finding
from tests.waiting import wait_until
from vramscope.engine.alerts import desk as keeping
from vramscope.engine.alerts.desk import AlertBook, decisions_file, load_decisions
from vramscope.engine.files.base.output_file import replacing
from vramscope.engine.model import Finding


def told(book: AlertBook, *findings: Finding) -> list[str]:
    return [crossing.event for crossing in book.take(findings)]


def changes(book: AlertBook, finding: Finding) -> list[str]:
    return [change.what for change in book.state.changes_of(finding)]


def test_what_happened_to_a_finding_is_written_down_with_its_times() -> None:
    book, finding = AlertBook(clock=HandClock()), make_finding(severity="medium")
    told(book, finding)
    told(book, make_finding(severity="medium", updated_s=NOON_S + 5, title="other figures"))
    told(book, make_finding(severity="high", updated_s=NOON_S + 10, title="GPU 0 leaks 30 MiB a step"))
    told(book, make_finding(severity="medium", updated_s=NOON_S + 20, title="GPU 0 leaks 5 MiB a step"))
    book.acknowledge(finding, NOON_S + 25)
    told(book, make_finding(severity="medium", closed_s=NOON_S + 30, title="GPU 0 leaks 5 MiB a step"))
    found = book.state.changes_of(finding)
    assert [(change.time_s - NOON_S, change.what) for change in found] == [
        (0, "opened, medium"),
        (10, "raised to high"),
        (20, "now medium"),
        (25, "acknowledged"),
        (30, "closed"),
    ]
    assert [change.title for change in found] == [
        "GPU 0 leaks 20 MiB a step",
        "GPU 0 leaks 30 MiB a step",
        "GPU 0 leaks 5 MiB a step",
        "",
        "",
    ]


def test_a_worker_that_tells_the_past_again_changes_nothing() -> None:
    book = AlertBook(clock=HandClock())
    past = [
        make_finding(severity="medium"),
        make_finding(severity="high", updated_s=NOON_S + 10),
        make_finding(severity="medium", updated_s=NOON_S + 20),
    ]
    told(book, *past)
    before = book.state
    assert told(book, *past) == []
    assert book.state == before
    told(book, make_finding(severity="medium", closed_s=NOON_S + 30))
    assert told(book, *past) == []
    assert changes(book, past[0])[: len(before.changes)] == [change.what for change in before.changes]
    assert changes(book, past[0])[-1] == "closed"


def test_an_acknowledged_finding_is_silent_until_its_end_is_told() -> None:
    book, finding = AlertBook(clock=HandClock()), make_finding(severity="medium")
    assert told(book, finding) == ["opened"]
    book.acknowledge(finding, NOON_S + 1)
    assert book.state.is_acknowledged(finding)
    assert told(book, make_finding(severity="critical", updated_s=NOON_S + 2)) == []
    assert told(book, make_finding(severity="critical", closed_s=NOON_S + 3)) == ["closed"]


def test_a_muted_kind_is_silent_on_that_device_and_on_no_other() -> None:
    book, first = AlertBook(clock=HandClock()), make_finding()
    told(book, first)
    book.mute(first, "always", NOON_S + 1)
    assert told(book, make_finding(closed_s=NOON_S + 2)) == []
    assert told(book, make_finding(opened_s=NOON_S + 3)) == [], "the next of its kind"
    assert told(book, make_finding(opened_s=NOON_S + 3, uuid="GPU-b")) == ["opened"]
    assert told(book, make_finding("oom", opened_s=NOON_S + 3)) == ["opened"]


def test_a_mute_for_an_hour_ends_after_an_hour() -> None:
    clock = HandClock()
    book, finding = AlertBook(clock=clock), make_finding()
    told(book, finding)
    book.mute(finding, "hour", NOON_S)
    clock.now_s += 3599
    assert not book.expire()
    assert book.state.is_silent(finding)
    clock.now_s += 1
    assert book.expire()
    assert not book.state.is_silent(finding)


def test_a_mute_until_it_closes_ends_when_it_closes() -> None:
    book, finding = AlertBook(clock=HandClock()), make_finding()
    told(book, finding)
    book.mute(finding, "open", NOON_S)
    assert told(book, make_finding(closed_s=NOON_S + 2)) == []
    assert book.state.mutes == ()
    assert told(book, make_finding(opened_s=NOON_S + 3)) == ["opened"]


def test_what_was_decided_can_be_taken_back() -> None:
    book, finding = AlertBook(clock=HandClock()), make_finding()
    told(book, finding)
    book.acknowledge(finding, NOON_S)
    book.mute(finding, "always", NOON_S)
    book.mute(finding, "hour", NOON_S)
    assert len(book.state.mutes) == 1, "the last word counts"
    book.release(finding, NOON_S)
    assert not book.state.is_silent(finding)
    assert changes(book, finding)[-1] == "no longer acknowledged or muted"


def restarted(path: Path, clock: HandClock, *, after_s: float = 30.0) -> AlertBook:
    clock.now_s += after_s
    return AlertBook(path, clock)


def test_decisions_outlive_the_hub_and_reach_the_same_trouble_under_its_new_id(tmp_path: Path) -> None:
    clock, path = HandClock(), tmp_path / "deeper" / "alerts.json"
    book = AlertBook(path, clock)
    leak, oom, idle = make_finding(), make_finding("oom"), make_finding("idle_held")
    told(book, leak, oom, idle)
    book.acknowledge(leak, NOON_S)
    book.mute(oom, "open", NOON_S)
    book.mute(idle, "always", NOON_S)
    assert path.stat().st_mode & 0o077 == 0
    book = restarted(path, clock)
    again = {kind: make_finding(kind, opened_s=clock.now_s) for kind in ("leak", "oom", "idle_held")}
    assert told(book, *again.values()) == []
    assert book.state.is_acknowledged(again["leak"])
    assert book.state.mute_of(again["oom"]) is not None
    assert book.reason is None


def test_what_opens_long_after_a_restart_is_new_trouble(tmp_path: Path) -> None:
    clock, path = HandClock(), tmp_path / "alerts.json"
    book = AlertBook(path, clock)
    told(book, make_finding())
    book.acknowledge(make_finding(), NOON_S)
    book = restarted(path, clock)
    clock.now_s += 601
    assert told(book, make_finding(opened_s=clock.now_s)) == ["opened"]


def test_what_was_acknowledged_before_a_long_pause_is_new_trouble(tmp_path: Path) -> None:
    clock, path = HandClock(), tmp_path / "alerts.json"
    book = AlertBook(path, clock)
    told(book, make_finding())
    book.acknowledge(make_finding(), NOON_S)
    book = restarted(path, clock, after_s=3 * 86_400)
    assert told(book, make_finding(opened_s=clock.now_s)) == ["opened"]


def test_a_hub_that_was_killed_hours_after_the_decision_had_said_that_it_was_there(tmp_path: Path) -> None:
    clock, path = HandClock(), tmp_path / "alerts.json"
    book = AlertBook(path, clock)
    told(book, make_finding())
    book.acknowledge(make_finding(), NOON_S)
    for _ in range(100):
        clock.now_s += 60
        book.expire()
    book = restarted(path, clock)
    assert told(book, make_finding(opened_s=clock.now_s)) == []


def test_a_hub_that_is_started_again_beside_a_running_leak_does_not_ring_twice(tmp_path: Path) -> None:
    clock, path = HandClock(), tmp_path / "alerts.json"
    first = AlertBook(path, clock)
    assert told(first, make_finding(severity="medium")) == ["opened"]
    clock.now_s += 60
    # It was killed: nobody called `save`. Its successor has no past, and so the leak opens later, anew.
    second, later = AlertBook(path, clock), NOON_S + 200
    assert told(second, make_finding(severity="medium", opened_s=later)) == []
    assert told(second, make_finding(severity="high", opened_s=later, updated_s=later + 5)) == ["raised"]
    assert told(second, make_finding(opened_s=later + 7)) == ["opened"], "a second leak on the device is news"
    assert told(second, make_finding("oom", "low", opened_s=later)) == ["opened"]
    # The third is handed the past of the second, and meets the same ids.
    clock.now_s += 60
    third = AlertBook(path, clock)
    again = [make_finding(severity="high", opened_s=opened_s) for opened_s in (later + 7, later)]
    assert told(third, *again) == []
    assert told(third, make_finding(opened_s=later, closed_s=later + 90)) == ["closed"]
    assert told(AlertBook(path, clock), make_finding(opened_s=later, closed_s=later + 90)) == []


def test_what_was_told_long_ago_is_told_again_under_another_id_only(tmp_path: Path) -> None:
    clock, path = HandClock(), tmp_path / "alerts.json"
    told(AlertBook(path, clock), make_finding())
    clock.now_s += 3 * 3600
    book = AlertBook(path, clock)
    assert told(book, make_finding()) == []
    assert told(book, make_finding(opened_s=clock.now_s)) == ["opened"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": "other/9"}', b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_not_ours_is_told_and_the_hub_goes_on(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    path.write_bytes(content)
    book = AlertBook(path, HandClock())
    assert book.reason is not None
    assert str(path) in book.reason
    assert told(book, make_finding()) == ["opened"]


def test_a_folder_that_cannot_be_written_is_told_and_the_decision_holds(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    book, finding = AlertBook(tmp_path / "file" / "alerts.json", HandClock()), make_finding()
    told(book, finding)
    book.acknowledge(finding, NOON_S)
    assert book.state.is_acknowledged(finding)
    assert book.reason is not None
    assert "cannot save" in book.reason


def test_a_folder_that_does_not_answer_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "PATIENCE_S", 0.05)
    path = tmp_path / "alerts.json"
    has_answered = threading.Event()

    def wait_and_replace(place: Path) -> AbstractContextManager[BinaryIO]:
        has_answered.wait()
        return replacing(place)

    monkeypatch.setattr("vramscope.engine.alerts.desk.replacing", wait_and_replace)
    book = AlertBook(path, HandClock())
    assert told(book, make_finding()) == ["opened"]
    assert told(book, make_finding("oom")) == ["opened"]
    assert told(book, make_finding("pressure")) == ["opened"]
    has_answered.set()
    wait_until(path.is_file)
    assert [it.kind for it in load_decisions(path).told] == ["leak", "oom", "pressure"]


def test_every_hub_has_a_file_of_its_own() -> None:
    folder = Path("/state")
    names = {
        decisions_file(folder, node, Path(run)) for node in ("a", "../a", "b") for run in ("/run/1", "/run/2")
    }
    assert len(names) == 6
    assert {name.parent for name in names} == {folder}
