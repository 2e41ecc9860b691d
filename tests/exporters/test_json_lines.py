"""JSON lines: one line, numbers as numbers, nothing that is not JSON, exactly what the schema promises."""

import io
import json
import math
from typing import Any, NoReturn

import jsonschema
import msgspec
from hypothesis import given

from tests import REPOSITORY
from vramscope.engine.model import Assessment, HubStatus, NodeStatus, WorkerStatus
from vramscope.exporters.json_lines import encode_line, write_line
from vramscope.exporters.schema import build_schema, render_schema, render_settings_page

from .status.statuses import make_device, make_finding, make_status, statuses

VALIDATOR = jsonschema.Draft202012Validator(build_schema("status"))


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def parse(line: bytes) -> dict[str, Any]:
    """Return the one object in a line, as a strict parser reads it."""
    assert line.count(b"\n") == 1
    parsed: dict[str, Any] = json.loads(line.decode("utf-8"), parse_constant=refuse)
    return parsed


@given(statuses)
def test_whatever_was_measured_the_line_follows_the_schema(status: NodeStatus) -> None:
    VALIDATOR.validate(parse(encode_line(status)))


def test_what_is_not_a_number_is_null() -> None:
    device = make_device(utilization_percent=math.nan, power_w=math.inf)
    shown = parse(encode_line(make_status(device)))["devices"][0]
    assert (shown["utilization_percent"], shown["power_w"]) == (None, None)


def test_bytes_of_a_command_that_were_no_text_do_not_stop_the_line() -> None:
    from vramscope.engine.model import ProcessReading

    device = make_device(processes=(ProcessReading(pid=7, command="caf\udce9 \udcff"),))
    shown = parse(encode_line(make_status(device)))["devices"][0]
    assert shown["processes"][0]["command"].startswith("caf")
    assert shown["memory"]["total_bytes"] == 80 << 30


def test_an_agent_and_findings_follow_the_schema_too() -> None:
    worker = WorkerStatus(name="analyzers", pid=None, state="failed", reason="ended")
    agent = HubStatus(hub_id="a", pid=1, version="0.1.0", started_s=1.0, interval_s=1.0, workers=(worker,))
    status = make_status(make_device(), findings=(make_finding(),))
    line = parse(
        encode_line(
            NodeStatus(**{**{f: getattr(status, f) for f in status.__struct_fields__}, "agent": agent})
        )
    )
    VALIDATOR.validate(line)
    assert line["agent"]["workers"][0]["state"] == "failed"


def test_what_is_assessed_follows_the_schema_too() -> None:
    assessment = Assessment("node03", "GPU-0", "0", 1.0, "low", "steady", pid=7, oom_in_s=math.inf)
    line = parse(encode_line(msgspec.structs.replace(make_status(), assessments=(assessment,))))
    VALIDATOR.validate(line)
    assert (line["assessments"][0]["level"], line["assessments"][0]["oom_in_s"]) == ("low", None)


def test_the_schema_refuses_what_the_program_never_prints() -> None:
    line = parse(encode_line(make_status(make_device())))
    del line["devices"][0]["memory"]["used_bytes"]
    assert not VALIDATOR.is_valid(line)
    assert not VALIDATOR.is_valid({**parse(encode_line(make_status())), "schema": "vramscope.status/2"})


def test_every_field_in_the_schema_of_a_device_is_explained() -> None:
    definitions = build_schema("status")["$defs"]
    for name in ("MemoryReading", "ProcessReading", "DeviceActivity", "DeviceHardware"):
        for field, schema in definitions[name]["properties"].items():
            assert "description" in schema or field in {"used_bytes", "source"}, (name, field)


class _Flushed(io.BytesIO):
    """A stream that remembers what it held when it was flushed."""

    flushed = b""

    def flush(self) -> None:
        self.flushed = self.getvalue()


def test_a_line_is_flushed_when_it_is_written() -> None:
    stream = _Flushed()
    write_line(make_status(), stream)
    assert stream.flushed.endswith(b"}\n")


def test_the_schema_in_the_documents_is_the_programs_own() -> None:
    text = (REPOSITORY / "docs/status.schema.json").read_text(encoding="utf-8")
    assert text == render_schema("status"), "run `python docs/generate.py`"


def test_the_settings_in_the_documents_are_the_programs_own() -> None:
    text = (REPOSITORY / "docs/settings.md").read_text(encoding="utf-8")
    assert text == render_settings_page(), "run `python docs/generate.py`"
