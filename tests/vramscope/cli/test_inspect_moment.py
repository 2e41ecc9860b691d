"""`vramscope inspect --at`: one moment of a file, or two next to each other, as text and as JSON."""

import json
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest

from tests import REPOSITORY
from vramscope.engine.model import (
    AllocatorReading,
    MemoryReading,
    ModelStateReading,
    ProcessReading,
    RankCoordinates,
    Sample,
)
from vramscope.exporters.schema import render_schema

from ...engine.files import flight_records
from ...engine.files.snapshots import (
    BASE,
    EMBED,
    LINEAR,
    MIB,
    block,
    event,
    free,
    segment,
    snapshot,
    write_snapshot,
)
from ...engine.recording.samples import make_sample, write
from .running import call

SCHEMA = json.loads(render_schema("moment"))


def write_history(folder: Path, **fields: object) -> str:
    """Write a snapshot: 4 MiB of one line are there throughout, 8 MiB of another from 2 s to 3 s."""
    events = [
        event("alloc", BASE, 4 * MIB, 1_000_000, frames=EMBED),
        event("alloc", BASE + 4 * MIB, 8 * MIB, 3_000_000, frames=LINEAR),
        event("oom", MIB, 64 * MIB, 3_500_000, frames=LINEAR),
        event("free_requested", BASE + 4 * MIB, 8 * MIB, 4_000_000, frames=LINEAR),
    ]
    for each in events:
        each.update(fields)
    blocks = [block(4 * MIB, frames=EMBED), free(16 * MIB)]
    return str(write_snapshot(folder, snapshot([segment(blocks)], events)))


def test_the_kept_schema_is_the_one_of_the_struct() -> None:
    assert (REPOSITORY / "docs" / "moment.schema.json").read_text("utf-8") == render_schema("moment")


@pytest.mark.parametrize(
    ("at", "event_number", "sizes"),
    [
        ("start", 0, []),
        ("end", 4, [4]),
        ("peak", 2, [8, 4]),
        ("oom", 3, [8, 4]),
        ("#1", 1, [4]),
        ("2s", 2, [8, 4]),
        ("50%", 1, [4]),
    ],
)
def test_a_moment_is_named_by_word_number_time_or_share(
    tmp_path: Path, at: str, event_number: int, sizes: list[int]
) -> None:
    (report,) = call("inspect", write_history(tmp_path), "--at", at, "--json").lines
    jsonschema.validate(report, SCHEMA)
    (moment,) = report["devices"][0]["moments"]
    assert moment["event"] == event_number
    assert [row["size_bytes"] for row in moment["groups"][0]["rows"]] == [size * MIB for size in sizes]
    assert moment["allocated_bytes"] == sum(sizes) * MIB


def test_two_moments_are_shown_next_to_each_other(tmp_path: Path) -> None:
    path = write_history(tmp_path)
    (report,) = call("inspect", path, "--at", "peak", "--and", "end", "--json").lines
    jsonschema.validate(report, SCHEMA)
    lines = report["devices"][0]["changes"][0]
    assert (lines["by"], lines["groups"]) == ("line", 1)
    assert lines["rows"][0]["change_bytes"] == -8 * MIB
    assert lines["rows"][0]["frame"]["line"] == 40
    told = call("inspect", path, "--at", "peak", "--and", "end").stdout
    assert "  allocated           12 MiB          4 MiB  -8 MiB" in told
    assert "    -8 MiB      8 MiB        0 B  block  /job/model.py:40" in told


def test_text_says_what_lived_by_line_module_and_kind(tmp_path: Path) -> None:
    told = call("inspect", write_history(tmp_path), "--at", "peak").stdout
    assert "      8 MiB    66.7 %         1 block  block  /job/model.py:40" in told
    assert "      8 MiB    66.7 %         1 block  linear" in told
    assert "     12 MiB   100.0 %        2 blocks  forward pass" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--at", "never"), "not a time: 'never'"),
        (("--at", "#9"), "#9: expected an event from #0 to #4"),
        (("--at", "2h"), "2h is not within what was recorded, which is 3.0 s long"),
        (("--and", "peak"), "--and needs --at"),
        (("--at", "end", "--devices", "3"), "the only device in the file is 0"),
    ],
)
def test_what_is_no_moment_is_refused(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    outcome = call("inspect", write_history(tmp_path), *words)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert told in outcome.stderr


def test_events_without_times_have_numbers_and_shares(tmp_path: Path) -> None:
    path = write_history(tmp_path, time_us=-1)
    (report,) = call("inspect", path, "--at", "#2", "--and", "34%", "--json").lines
    first, second = report["devices"][0]["moments"]
    assert (first["event"], first["time_s"], second["event"]) == (2, None, 2)
    assert "the events have no times" in call("inspect", path, "--at", "2s").stderr


def test_files_without_history_say_what_is_missing(tmp_path: Path) -> None:
    bare = str(write_snapshot(tmp_path, snapshot([segment([block(MIB), free(MIB)])])))
    assert call("inspect", bare, "--at", "end").code == 0
    outcome = call("inspect", bare, "--at", "peak")
    assert outcome.code == 2
    assert "_record_memory_history()" in outcome.stderr
    flight = str(flight_records.write_record(tmp_path, flight_records.record()))
    assert (
        "needs a memory snapshot with history, or a recording"
        in call("inspect", flight, "--at", "end").stderr
    )


def test_a_snapshot_without_memory_says_that_nothing_was_allocated(tmp_path: Path) -> None:
    empty = str(write_snapshot(tmp_path, snapshot([])))
    outcome = call("inspect", empty, "--at", "end")
    assert outcome.stdout == "note: no segments and no events: nothing was allocated on any device\n"
    assert "the file has no device" in call("inspect", empty, "--devices", "1").stderr


def test_a_recording_says_what_filled_its_devices(tmp_path: Path) -> None:
    samples = [make_sample(tick) for tick in range(5)]
    write(tmp_path / "run.vscope", samples)
    path = str(tmp_path / "run.vscope")
    (report,) = call("inspect", path, "--at", "start", "--and", "peak", "--json", "--devices", "1").lines
    jsonschema.validate(report, SCHEMA)
    (device,) = report["devices"]
    used = [sample.devices[1].memory.used_bytes or 0 for sample in samples]
    assert device["device"] == "device 1"
    assert [moment["used_bytes"] for moment in device["moments"]] == [used[0], max(used)]
    assert device["moments"][0]["event"] is None
    parts = next(groups for groups in device["moments"][0]["groups"] if groups["by"] == "part")
    assert sum(row["size_bytes"] for row in parts["rows"]) == used[0]
    assert "a recording holds no stacks" in call("inspect", path, "--at", "end").stdout


def test_a_moment_before_a_device_was_found_has_the_device_and_no_numbers(tmp_path: Path) -> None:
    samples = [make_sample(tick) for tick in range(3)]
    modelled = [
        msgspec.structs.replace(
            it, devices=tuple(msgspec.structs.replace(each, kind="simulated") for each in it.devices)
        )
        for it in samples
    ]
    write(tmp_path / "run.vscope", [msgspec.structs.replace(samples[0], devices=()), *modelled[1:]])
    path = str(tmp_path / "run.vscope")
    (report,) = call("inspect", path, "--at", "start", "--json").lines
    jsonschema.validate(report, SCHEMA)
    assert report["is_simulated"] is True
    assert {it["device"] for it in report["devices"]} == {
        f"device sim{it.index}" for it in samples[1].devices
    }
    assert all(it["moments"][0]["used_bytes"] is None for it in report["devices"])
    text = call("inspect", path, "--at", "start").stdout
    assert "device sim1: nothing was measured of it then" in text
    assert "nothing was measured" not in call("inspect", path, "--at", "end").stdout


def test_memory_that_is_older_than_its_moment_is_said_to_be(tmp_path: Path) -> None:
    early, late = make_sample(0), make_sample(1)
    devices = tuple(msgspec.structs.replace(it, state="lost", age_s=9.0) for it in late.devices)
    write(tmp_path / "run.vscope", [early, msgspec.structs.replace(late, devices=devices)])
    text = " ".join(
        call("inspect", str(tmp_path / "run.vscope"), "--at", "start", "--and", "end").stdout.split()
    )
    assert "device 0 was not measured at end (lost 9 s ago): its memory is the last that was read" in text
    assert "not measured at start" not in text


def make_pair(tick: int, *, age_s: float | None) -> Sample:
    """Return a sample of two ranks, of which the second has not reported for a while."""
    sample = make_ranked(tick)
    first = msgspec.structs.replace(sample.ranks[0], coordinates=RankCoordinates(rank=0, world_size=2))
    second = msgspec.structs.replace(first, pid=8, coordinates=RankCoordinates(rank=1, world_size=2))
    if age_s is not None:
        why = "it was stopped by a signal"
        second = msgspec.structs.replace(second, state="stale", age_s=age_s, reason=why)
    return msgspec.structs.replace(sample, ranks=(first, second))


def read_old(path: Path, *at: str) -> tuple[list[dict[str, object]], str]:
    """Return what is old at the first moment, and the report as text."""
    (report,) = call("inspect", str(path), *at, "--json").lines
    jsonschema.validate(report, SCHEMA)
    old = [each for device in report["devices"] for each in device["moments"][0]["old"]]
    return old, " ".join(call("inspect", str(path), *at).stdout.split())


def test_values_of_a_rank_that_no_longer_reports_have_their_age(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    write(path, [make_pair(tick, age_s=None if tick < 5 else 200.0 + tick) for tick in range(9)])
    old, text = read_old(path, "--at", "end")
    why = "it was stopped by a signal"
    assert old == [{"kind": "rank", "name": "rank 1", "state": "stale", "age_s": 208.0, "reason": why}]
    said = (
        "rank 1 did not report at end (stale 3 m 28 s: it was stopped by a signal): its values are the last"
    )
    assert said in text
    assert "rank 0 did not" not in text
    assert read_old(path, "--at", "start")[0] == []
    assert "did not report" not in read_old(path, "--at", "start")[1]


def test_values_of_a_node_whose_recording_ended_before_have_their_age(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    times = [(tick, "node01") for tick in range(60)] + [(tick, "node02") for tick in range(10)]
    samples = [make_sample(tick, 1, node=node, time_s=1_700_000_000.0 + tick) for tick, node in sorted(times)]
    write(path, samples)
    old, text = read_old(path, "--at", "50")
    assert old == [{"kind": "node", "name": "node02", "state": "stale", "age_s": 41.0, "reason": None}]
    assert "node02 has no sample at 50 (stale 41 s): its values are the last that were recorded" in text
    # Samples come once a second: one of a moment ago is not old.
    assert read_old(path, "--at", "11")[0] == []


def test_age_of_a_rank_counts_from_the_moment_also_where_its_node_is_silent(tmp_path: Path) -> None:
    path = tmp_path / "run.vscope"
    nodes = [msgspec.structs.replace(make_pair(0, age_s=10.0), node="node02", time_s=1_700_000_000.0)]
    nodes += [make_sample(tick, 1, node="node01", time_s=1_700_000_000.0 + tick) for tick in range(60)]
    write(path, nodes)
    old, text = read_old(path, "--at", "30")
    assert [(each["name"], each["age_s"]) for each in old] == [("node02", 30.0), ("rank 1", 40.0)]
    assert "node02 rank 1 did not report at 30 (stale 40 s: it was stopped by a signal)" in text


@pytest.mark.parametrize("at", ["+1s", "#2", "soon"])
def test_what_is_no_moment_of_a_recording_is_refused_with_the_words_that_are(tmp_path: Path, at: str) -> None:
    write(tmp_path / "run.vscope", [make_sample(tick) for tick in range(3)])
    outcome = call("inspect", str(tmp_path / "run.vscope"), "--at", at)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "expected for example start, end, peak, oom, 1h20m, 35%, 14:03" in outcome.stderr


def test_a_recording_without_a_moment_is_refused_with_the_flag_that_names_one(tmp_path: Path) -> None:
    write(tmp_path / "run.vscope", [make_sample(tick) for tick in range(3)])
    outcome = call("inspect", str(tmp_path / "run.vscope"))
    assert (outcome.code, outcome.stdout) == (2, "")
    assert "name a moment with --at, for example peak, or give it to `vramscope import`, " in outcome.stderr
    assert " or `vramscope export`\n" in outcome.stderr


def make_ranked(tick: int, *, has_rank: bool = True, **device: object) -> Sample:
    """Return a sample of one GPU with 8 MiB of tensors in one process of 128 MiB, of which 2 MiB are free."""
    sample = make_sample(tick, 1)
    reading = AllocatorReading(
        allocated_bytes=8 * MIB, reserved_bytes=10 * MIB, active_bytes=8 * MIB, inactive_split_bytes=0
    )
    state = ModelStateReading(
        parameters_bytes=4 * MIB, gradients_bytes=0 if tick else MIB, optimizer_bytes=2 * MIB
    )
    ranks = [
        msgspec.structs.replace(it, allocator=reading, model_state=state, step=None) for it in sample.ranks
    ]
    fields = {
        "memory": MemoryReading(1024 * MIB, 200 * MIB, 824 * MIB),
        "processes": (ProcessReading(7, "user", "python train.py", 128 * MIB),),
    }
    (found,) = (msgspec.structs.replace(it, **(fields | device)) for it in sample.devices)
    return msgspec.structs.replace(sample, devices=(found,), ranks=tuple(ranks) if has_rank else ())


def compare(
    folder: Path, first: Sample, second: Sample
) -> tuple[dict[str, tuple[int | None, int | None]], str]:
    """Return the changes in MiB by name, and all as text, from the first of two samples to the second."""
    path = folder / "run.vscope"
    write(path, [first, second])
    (report,) = call("inspect", str(path), "--at", "start", "--and", "end", "--json").lines
    jsonschema.validate(report, SCHEMA)
    rows = [row for groups in report["devices"][0]["changes"] for row in groups["rows"]]
    for row in rows:
        is_measured = None not in (row["first_bytes"], row["second_bytes"])
        assert row["change_bytes"] == (row["second_bytes"] - row["first_bytes"] if is_measured else None)

    def count_mib(size_bytes: int | None) -> int | None:
        return None if size_bytes is None else size_bytes // MIB

    sizes = {row["name"]: (count_mib(row["first_bytes"]), count_mib(row["second_bytes"])) for row in rows}
    return sizes, call("inspect", str(path), "--at", "start", "--and", "end").stdout


def test_after_a_job_has_ended_its_tensors_are_unmeasured_and_its_processes_gone(tmp_path: Path) -> None:
    changes, text = compare(tmp_path, make_ranked(0), make_ranked(1, has_rank=False, processes=()))
    assert changes["live tensors"] == (8, None)
    assert changes["context and libraries"] == (118, None)
    assert changes["parameters"] == (4, None)
    assert changes["unattributed"] == (72, 200)
    assert changes["rank 0"] == (128, 0), "the driver says that no process is left"
    assert re.search(r"  allocated +8 MiB +unmeasured +—", text)
    assert "           —       8 MiB  unmeasured  live tensors" in text
    assert "+128 MiB      72 MiB     200 MiB  unattributed" in text


def test_what_filled_a_device_that_is_not_read_any_more_is_unmeasured(tmp_path: Path) -> None:
    ended = make_ranked(1, has_rank=False, state="ended", processes=None)
    changes, text = compare(tmp_path, make_ranked(0), ended)
    assert changes == {
        "context and libraries": (118, None),
        "unattributed": (72, None),
        "live tensors": (8, None),
        "cached": (2, None),
        "parameters": (4, None),
        "optimizer state": (2, None),
        "gradients": (1, None),
        "activations and other tensors": (1, None),
        "rank 0": (128, None),
    }
    assert " 0 B  " not in text
    alone = call("inspect", str(tmp_path / "run.vscope"), "--at", "end").stdout
    assert "unattributed" not in alone
    assert "its memory is the last that was read" in " ".join(alone.split())


def test_a_process_that_reports_at_one_moment_only_is_one_process(tmp_path: Path) -> None:
    changes, _ = compare(tmp_path, make_ranked(0), make_ranked(1, has_rank=False))
    assert changes["live tensors"] == (8, None)
    assert changes["other processes"] == (0, 128)
    assert not changes.keys() & {"rank 0", "7 python train.py"}


def test_a_process_whose_memory_the_driver_does_not_say_has_not_0_bytes(tmp_path: Path) -> None:
    hidden = (ProcessReading(7, "user", "python train.py"),)
    changes, _ = compare(tmp_path, make_ranked(0), make_ranked(1, processes=hidden))
    assert changes["rank 0"] == (128, None)
    assert changes["context and libraries"] == (118, None), "it is within a part of several kinds"
    assert changes["gradients"] == (1, 0), "0 bytes that were measured"


def test_before_a_device_was_found_all_of_it_is_unmeasured(tmp_path: Path) -> None:
    early = msgspec.structs.replace(make_ranked(0), devices=(), ranks=())
    changes, text = compare(tmp_path, early, make_ranked(1))
    assert changes["live tensors"] == (None, 8)
    assert "           —  unmeasured       8 MiB  live tensors" in text


def test_kinds_that_were_measured_at_one_moment_only_are_not_compared_with_nothing(tmp_path: Path) -> None:
    """A probe reads the model once it has made a step; before, its parameters are not 0 bytes."""
    early = make_ranked(0)
    ranks = tuple(msgspec.structs.replace(rank, model_state=None) for rank in early.ranks)
    changes, _ = compare(tmp_path, msgspec.structs.replace(early, ranks=ranks), make_ranked(1))
    assert changes["parameters"] == (None, 4)
    assert "live tensors" not in changes, "it did not change"
