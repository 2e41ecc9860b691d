"""`vramscope inspect` of a device memory profile of JAX, as text and as JSON."""

import jsonschema

from tests import REPOSITORY
from vramscope.exporters.schema import build_schema, render_schema

from .running import call

RECORDED = REPOSITORY / "tests" / "engine" / "files" / "jax" / "cpu.prof"


def test_text_names_the_lines_of_the_program_and_not_those_of_jax() -> None:
    outcome = call("inspect", str(RECORDED))
    assert (outcome.code, outcome.stderr) == (0, "")
    assert "cpu:0: 1 MiB (1 MiB in 6 buffers)" in outcome.stdout
    assert "build_weights  /job/train.py:3" in outcome.stdout
    assert "site-packages" not in outcome.stdout
    assert "XLA_PYTHON_CLIENT_PREALLOCATE" in outcome.stdout


def test_json_has_its_schema_and_as_many_lines_as_asked_for() -> None:
    (report,) = call("inspect", str(RECORDED), "--json", "--top", "1").lines
    jsonschema.validate(report, build_schema("device-profile"))
    assert (REPOSITORY / "docs" / "device-profile.schema.json").read_text() == render_schema("device-profile")
    device = report["devices"][0]
    assert (device["device"], len(device["lines"]), device["lines_found"]) == ("cpu:0", 1, 3)
    assert device["size_bytes"] == sum(kind["size_bytes"] for kind in device["kinds"])
    assert device["lines"][0]["size_bytes"] == 4 * 256 * 256 * 4
