"""Training processes of a recording as rows, and as the tracks that Perfetto opens."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.components import require_package
from tests.engine.recording.samples import make_sample, write
from tests.vramscope.cli.running import call
from vramscope.engine.model import ModelStateReading, Sample, StepReading
from vramscope.exporters.recording.ranks import (
    RANK_COLUMNS,
    write_ranks_csv,
    write_ranks_parquet,
    write_tracks,
)


def make_samples() -> list[Sample]:
    """Return three samples of one process: a step ends with the second, the third reading is old."""
    samples = []
    for tick in range(3):
        sample = make_sample(tick)
        (rank,) = sample.ranks
        step = StepReading(7, sample.time_s, 0.5, 100, 900) if tick else None
        state = "stale" if tick == 2 else "ok"
        rank = msgspec.structs.replace(
            rank, step=step, state=state, model_state=ModelStateReading(1, 2, 3), device_uuid="GPU-1"
        )
        samples.append(msgspec.structs.replace(sample, ranks=(rank,)))
    return samples


def test_a_row_has_what_a_process_reported_and_old_readings_have_none() -> None:
    samples = make_samples()
    stream = io.StringIO()
    write_ranks_csv(samples, stream)
    rows = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert len(rows) == 2, "the third reading is old"
    assert list(rows[0]) == [name for name, _ in RANK_COLUMNS]
    allocator = samples[1].ranks[0].allocator
    assert allocator is not None
    assert rows[1]["allocated_bytes"] == str(allocator.allocated_bytes)
    assert (rows[0]["step"], rows[1]["step"], rows[1]["step_peak_bytes"]) == ("", "7", "900")
    assert (rows[1]["device"], rows[1]["optimizer_bytes"]) == ("1", "3")


def test_parquet_has_the_same_rows(tmp_path: Path) -> None:
    require_package("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "ranks.parquet"
    with path.open("wb") as stream:
        write_ranks_parquet(make_samples(), stream)
    table = parquet.read_table(path)
    assert table.column_names == [name for name, _ in RANK_COLUMNS]
    assert table["step"].to_pylist() == [None, 7]
    assert table["parameters_bytes"].to_pylist() == [1, 1]


def read_tracks(samples: list[Sample]) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    write_tracks(samples, stream)
    events: list[dict[str, Any]] = json.loads(stream.getvalue())["traceEvents"]
    return events


def test_tracks_have_every_value_at_its_time_in_a_group_with_a_name() -> None:
    samples = make_samples()
    events = read_tracks(samples)
    names = {event["args"]["name"]: event["pid"] for event in events if event["ph"] == "M"}
    assert len(names) == len(set(names.values())) == 3
    group = names["node device 0"]
    used = [(it["ts"], it["args"]) for it in events if it["pid"] == group and it.get("name") == "used_bytes"]
    assert used == [
        (round(1e6 * it.time_s), {"used_bytes": it.devices[0].memory.used_bytes}) for it in samples
    ]
    process = next(pid for name, pid in names.items() if name.endswith("on device 1"))
    allocated = [it for it in events if it["pid"] == process and it["name"] == "allocated_bytes"]
    assert len(allocated) == 2, "an old reading has no value"


def test_a_step_is_one_slice_however_many_samples_repeat_it() -> None:
    samples = make_samples()
    repeated = [msgspec.structs.replace(it, ranks=samples[1].ranks) for it in samples]
    (step,) = [event for event in read_tracks(repeated) if event["ph"] == "X"]
    assert (step["name"], step["dur"], step["args"]) == (
        "step 7",
        500_000,
        {"floor_bytes": 100, "peak_bytes": 900},
    )
    assert step["ts"] + step["dur"] == round(1e6 * samples[1].time_s)


def test_the_verb_writes_both(tmp_path: Path) -> None:
    path = str(tmp_path / "run.vscope")
    write(Path(path), make_samples())
    outcome = call("export", path, "--csv", "--ranks")
    assert (outcome.code, len(outcome.stdout.splitlines())) == (0, 3)
    tracks = call("export", path, "--perfetto")
    assert json.loads(tracks.stdout)["displayTimeUnit"] == "ms"


@pytest.mark.parametrize("flag", ["--jsonl", "--prometheus", "--perfetto"])
def test_ranks_are_rows_of_tables_only(tmp_path: Path, flag: str) -> None:
    outcome = call("export", str(tmp_path / "run.vscope"), flag, "--ranks")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert f"--ranks goes with --csv or --parquet, not with {flag}" in outcome.stderr
