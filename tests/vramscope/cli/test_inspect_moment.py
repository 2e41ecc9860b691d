"""`vramscope inspect --at`: one moment of a file, or two next to each other, as text and as JSON."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from tests import REPOSITORY
from vramscope.engine.model import ModelStateReading
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
        (("--at", "end", "--devices", "3"), "the devices in the file are 0"),
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
    assert "device 0 was not measured at end (lost): its memory is the last that was read" in text
    assert "not measured at start" not in text


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
    assert "name a moment with --at, for example peak" in outcome.stderr


def test_kinds_that_were_measured_at_one_moment_only_are_not_compared_with_nothing(tmp_path: Path) -> None:
    """A probe reads the model once it has made a step; before, its parameters are not 0 bytes."""
    early, late = make_sample(0), make_sample(1)
    state = ModelStateReading(parameters_bytes=4096, gradients_bytes=0, optimizer_bytes=0)
    ranks = tuple(msgspec.structs.replace(rank, model_state=state) for rank in late.ranks)
    write(tmp_path / "run.vscope", [early, msgspec.structs.replace(late, ranks=ranks)])
    assert "parameters" in call("inspect", str(tmp_path / "run.vscope"), "--at", "end").stdout
    outcome = call("inspect", str(tmp_path / "run.vscope"), "--at", "start", "--and", "end")
    assert "what its tensors are was measured at only one of the two moments" in outcome.stdout
    assert "parameters" not in outcome.stdout
    assert "parts of the device" in outcome.stdout
