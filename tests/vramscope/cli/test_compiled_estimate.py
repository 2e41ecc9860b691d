"""`vramscope estimate --factory` of a step of JAX: a stand-in of JAX says what XLA would say.

The real package is tried in `tests/engine/probe/test_jax_itself.py`.
"""

import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest

from tests import REPOSITORY
from tests.components import require_package
from tests.warm.starter import write_warm_python
from vramscope.engine.errors import UsageError
from vramscope.estimates import StepRequest, compile_step
from vramscope.exporters.compiled_estimate import describe_compiled_estimate
from vramscope.exporters.schema import render_schema

from .running import call

MIB = 1 << 20
JAX = """
from types import SimpleNamespace
__version__ = "0.0.stand-in"
def default_backend(): return "gpu"
def devices(): return [SimpleNamespace(platform="gpu", device_kind="Stand-in card")]
def device_count(): return 4
def jit(function):
    def jitted(*arguments): raise AssertionError("the step shall not run")
    def lower(*arguments, **named):
        size = sum(arguments) + sum(named.values())
        found = None if size == 0 else SimpleNamespace(
            argument_size_in_bytes=size, output_size_in_bytes=2 << 20, alias_size_in_bytes=1 << 20,
            temp_size_in_bytes=5 << 20, generated_code_size_in_bytes=1 << 10, peak_memory_in_bytes=7 << 20,
        )
        return SimpleNamespace(compile=lambda: SimpleNamespace(memory_analysis=lambda: found))
    jitted.lower = lower
    return jitted
"""
STEP = """
import jax
def make_step(batch_size=1, layers=1):
    return jax.jit(lambda *a, **b: None), (batch_size << 20,), {"layers": layers << 20}
def make_nothing():
    return jax.jit(lambda: None)
def make_number():
    return 5
def fail():
    raise RuntimeError("no such weights")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jax.py").write_text(JAX)
    (tmp_path / "steps.py").write_text(STEP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def request(name: str, **given: int) -> StepRequest:
    return StepRequest(factory=f"steps:{name}", **given)  # type: ignore[arg-type]


def test_sizes_are_those_of_xla_for_the_arguments_of_the_factory(folder: Path) -> None:
    estimate = compile_step(request("make_step", batch_size=3, layers=4), capacity_bytes=13 * MIB)
    assert (estimate.argument_bytes, estimate.temporary_bytes) == (7 * MIB, 5 * MIB)
    # What is stored in donated arguments counts once.
    assert estimate.total_bytes == 13 * MIB + 1024
    assert (estimate.does_fit, estimate.platform, estimate.devices) == (False, "gpu", 4)
    text = describe_compiled_estimate(estimate, 80)
    assert "estimated by XLA's memory_analysis of the step compiled for gpu (Stand-in" in " ".join(
        text.split()
    )
    assert "nothing was measured" in text
    assert "it does not fit into 13 MiB" in text


def test_json_fits_its_schema_and_the_exit_code_says_unfit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_package("torch")
    monkeypatch.setattr(sys, "executable", write_warm_python(folder))
    flags = ("--factory", "steps:make_step", "--capacity", "1MiB", "--fail-on", "unfit", "--json")
    told = call("estimate", *flags, cwd=str(folder))
    assert told.code == 3, told.stderr
    (found,) = told.lines
    jsonschema.Draft202012Validator(json.loads(render_schema("compiled-estimate"))).validate(found)
    assert (found["is_estimated"], found["does_fit"], found["argument_bytes"]) == (True, False, 2 * MIB)


def test_the_kept_schema_is_the_one_of_the_struct() -> None:
    path = REPOSITORY / "docs" / "compiled-estimate.schema.json"
    assert path.read_text("utf-8") == render_schema("compiled-estimate")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("make_number", "the factory returned int; expected a jitted function"),
        ("make_nothing", "XLA does not say what a step compiled for gpu needs"),
        ("fail", "steps:fail raised RuntimeError: no such weights"),
        ("absent", "has no function 'absent'"),
    ],
)
def test_what_is_no_step_is_refused(name: str, why: str, folder: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        compile_step(request(name), None)
