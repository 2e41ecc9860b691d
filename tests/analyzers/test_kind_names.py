"""No screen shows a kind as programs spell it."""

import re

import pytest

from vramscope.analyzers import (
    device_state,
    divergence,
    fragmentation,
    host_stall,
    out_of_memory,
    pressure,
    usage,
)
from vramscope.analyzers import replay_capacity as capacity
from vramscope.analyzers.finding_words import name_kind
from vramscope.analyzers.health import health
from vramscope.analyzers.serving import analyzer as serving


@pytest.mark.parametrize(
    "kind",
    [
        *out_of_memory.KINDS,
        *device_state.KINDS,
        *health.KINDS,
        host_stall.KIND,
        capacity.KIND,
        pressure.KIND,
        divergence.KIND,
        fragmentation.KIND,
        usage.KIND,
        *serving.KINDS,
        "oom",
        "gradient_leak",
    ],
)
def test_a_kind_is_words(kind: str) -> None:
    assert re.fullmatch(r"[a-z]+( [a-z]+)*", name_kind(kind))


def test_an_error_that_was_met_is_told_from_one_that_is_ahead() -> None:
    assert name_kind("oom_met") == "out of memory"
    assert name_kind("oom") != name_kind("oom_met")


def test_a_kind_of_a_plug_in_is_spelled_out() -> None:
    assert name_kind("gradient_leak") == "gradient leak"
