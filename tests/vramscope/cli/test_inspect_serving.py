"""`vramscope inspect` of a server's start-up log."""

from pathlib import Path

import jsonschema
import pytest

from tests import REPOSITORY
from tests.engine.files.test_serving_log import ENGINE, RANKS, ROOM
from vramscope.engine.files.detect import identify
from vramscope.exporters.schema import build_schema, render_schema

from .running import call

PLAN = (
    "INFO worker.py:267] the current vLLM instance can use total_gpu_memory (44.42GiB) x "
    "gpu_memory_utilization (0.90) = 39.98GiB\n"
    "INFO worker.py:267] model weights take 30.71GiB; non_torch_memory takes 0.30GiB; PyTorch activation "
    "peak memory takes 1.26GiB; the rest of the memory reserved for KV Cache is 7.71GiB.\n"
)
TOO_LONG = (
    "ValueError: To serve at least one request with the models's max seq len (65536), (8.0 GiB KV cache is "
    "needed, which is larger than the available KV cache memory (7.71 GiB). Based on the available memory, "
    "the estimated maximum model length is 63152.\n"
)


def _inspect(folder: Path, text: str, *words: str) -> str:
    path = folder / "server.log"
    path.write_text(text)
    outcome = call("inspect", str(path), *words)
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout


def test_a_plan_adds_up_and_says_what_is_outside_of_it(tmp_path: Path) -> None:
    text = " ".join(_inspect(tmp_path, PLAN).split())
    assert "The parts of a rank add up to its share of 40.0 GiB." in text
    assert "Outside of the share are 4.4 GiB of the device" in text


def test_parts_that_do_not_add_up_are_not_explained_away(tmp_path: Path) -> None:
    text = " ".join(_inspect(tmp_path, PLAN.replace("7.71GiB", "3.71GiB")).split())
    assert "are 4.0 GiB less than its share of 40.0 GiB, which the log does not explain" in text


def test_json_has_the_rank_that_decides_and_follows_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(ENGINE + RANKS + ROOM)
    (report,) = call("inspect", str(path), "--json").lines
    jsonschema.validate(report, build_schema("serving-log"))
    assert report["token_bytes"] == 65523, "63.75 GiB of the fuller rank over 1,044,688 tokens"
    assert [rank["name"] for rank in report["log"]["ranks"]] == ["TP0", "TP1"]
    assert (REPOSITORY / "docs" / "serving-log.schema.json").read_text() == render_schema("serving-log")


def test_too_long_a_sequence_gets_the_two_flags_that_help(tmp_path: Path) -> None:
    """0.29 GiB of cache are missing: (39.98 + 0.29) / 44.42 is 0.907, so 0.91."""
    text = " ".join(_inspect(tmp_path, PLAN + TOO_LONG).split())
    assert "Line 3: the longest sequence does not fit into the cache: it needs 8.0 GiB" in text
    assert "Try --max-model-len 63152 or --gpu-memory-utilization 0.91." in text


@pytest.mark.parametrize(
    ("rest", "advice"),
    [
        ("-1.05", "Try --gpu-memory-utilization 0.93."),
        ("-9.00", "Try a greater --tensor-parallel-size."),
    ],
)
def test_no_cache_gets_a_greater_share_where_the_device_has_one(
    tmp_path: Path, rest: str, advice: str
) -> None:
    text = PLAN.replace("7.71GiB", f"{rest}GiB") + "ValueError: No available memory for the cache blocks.\n"
    assert advice in " ".join(_inspect(tmp_path, text).split())


def test_a_share_that_was_not_free_gets_the_one_that_was(tmp_path: Path) -> None:
    text = PLAN + (
        "ValueError: Free memory on device (20.0/44.42 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 39.98 GiB).\n"
    )
    assert "Try --gpu-memory-utilization 0.45." in " ".join(_inspect(tmp_path, text).split())


def test_an_out_of_memory_error_is_explained_by_both_readers(tmp_path: Path) -> None:
    text = PLAN + (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.88 GiB. GPU 0 has a total capacity "
        "of 44.42 GiB of which 1.29 GiB is free. Of the allocated memory 40.02 GiB is allocated by "
        "PyTorch, and 1.32 GiB is reserved by PyTorch but unallocated.\n"
    )
    shown = " ".join(_inspect(tmp_path, text).split())
    assert (
        "out of memory on a request of 1.9 GiB with 1.3 GiB free: it came from outside of the plan" in shown
    )
    assert "40.0 GiB" in shown


def test_other_verbs_say_which_one_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(PLAN)
    kind = identify(path)
    assert kind is not None
    assert kind.is_read_by("inspect")
