"""The text of a flight record: says what failed first, fits its width, disturbs no terminal."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.files.flight_records import record, write_record
from vramscope.analyzers.sentence import count_cells
from vramscope.analyzers.snapshot_summary.flight import summarize_flight_record
from vramscope.engine.files.flight_record import read_flight_record
from vramscope.engine.model.memory_snapshot import FlightRecord
from vramscope.exporters.inspect.text import describe_flight_record
from vramscope.exporters.json_lines import encode_line
from vramscope.exporters.text import draw_sparkline


def describe(tmp_path: Path, width: int = 80, **fields: Any) -> str:
    return describe_flight_record(read_flight_record(write_record(tmp_path, record(**fields))), width=width)


def test_report_of_a_whole_record(tmp_path: Path) -> None:
    text = describe(tmp_path)
    assert text.startswith("simulated device · out of memory · 2025-10-09 08:55:00 UTC\n")
    assert "\n  train.py --batch-size 8 · pid 4242 · rank 1 · device 1\n" in text
    assert "\n    > block  /job/model.py:40\n" in text
    assert "\n  stranded    2.0 GiB  ██                   free between live blocks\n" in text
    assert "\nallocated, 0 to 24.0 GiB, the last 1 m 39 s\n" in text
    assert "\nleft out of the record: 7 segments\n" in text
    assert "\n  4.0 GiB  21.1 %  300 blocks  (no stack recorded)\n" in text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_asked(tmp_path: Path, width: int) -> None:
    text = describe(tmp_path, width, notes=["x" * 300, "内存 " * 60])
    assert max(map(count_cells, text.splitlines())) <= width


def test_long_command_gives_way_to_the_process(tmp_path: Path) -> None:
    process = {"pid": 1234567, "argv": ["/opt/python/bin/python", "a_long_name.py", *["--flag"] * 20]}
    line = describe(tmp_path, 60, process=process).splitlines()[1]
    assert line.endswith("… · pid 1234567 · device 1")
    assert line.startswith("  python a_long_name.py --flag")


def test_empty_record_says_what_is_known() -> None:
    assert describe_flight_record(FlightRecord()) == "out of memory\n\n  a request of unknown size failed\n"


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b[31m\n\x07"
    text = describe(
        tmp_path,
        process={"argv": [evil]},
        failure={"message": evil, "stack": [[evil, 1, evil]]},
        live_blocks=[{"size_bytes": 5, "stack": [[evil, 2, evil]]}],
        notes=[evil],
    )
    assert all(line.isprintable() for line in text.splitlines())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([key for key in record() if key != "schema"]))
def test_any_part_may_be_missing(tmp_path: Path, key: str) -> None:
    missing: dict[str, Any] = {key: None}
    assert describe(tmp_path, **missing).removeprefix("simulated device · ").startswith("out of memory")


def test_json_form_carries_its_schema(tmp_path: Path) -> None:
    found = read_flight_record(write_record(tmp_path, record()))
    content = json.loads(encode_line(summarize_flight_record(found)))
    assert content["schema"] == "vramscope.flight_summary/1"
    assert content["shares"]["awaiting_bytes"] == 0
    assert len(content["advice"]) == len(summarize_flight_record(found).advice)


def test_sparkline_is_on_the_scale_that_is_said() -> None:
    assert draw_sparkline([0, 1, 4, 8, None, 9], 8, 80) == " ▁▄█·█"
    assert draw_sparkline([1, 8, 1, 1], 8, 2) == "█▁"
    assert draw_sparkline([0.001], 8, 5) == "▁"
    assert draw_sparkline([5], 0, 5) == " "
