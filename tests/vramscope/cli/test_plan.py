"""`vramscope plan`: tables, JSON and files; what cannot be planned is refused in one line."""

import hashlib
import json
from pathlib import Path

import jsonschema
import pytest

from tests import REPOSITORY
from vramscope.exporters.schema import build_schema, render_schema

from .running import call
from .test_live import terminal

DOCS = REPOSITORY / "docs"

ORIGINALS = {
    "gpt_1.5b_model_graph.json": "216960e8705780ba89e0e69aa40ecb97f14cf977505bfcfbcb99c9dffba02e63",
    "best_partition_strategy.json": "54d68c06b3098d1468a80e8dcda6aa64d5152379478a028cfedea8a56d68ebf0",
    "pipeline_parallel_config.json": "4441cb5a4aa15ed629f593b238bf228debd38c31c6ac4da17e2629dc61c4291c",
    "pipeline_strategy_report.txt": "47fe2e8a47ab0c9909188eb19e7ad43388817969337bd2499e2f6affaac3fdeb",
}
"""SHA-256 of the files that llm_parallel_strategy's authors published."""


def test_a_pipe_gets_every_column_and_sentences_of_80_cells() -> None:
    words = ("plan", "--model", "gpt-1.5b", "--stages", "2", "--capacity", "30GiB")
    piped, narrow = call(*words), call(*words, COLUMNS="80")
    heading = next(line for line in piped.stdout.splitlines() if line.startswith("  stage  layers"))
    assert heading.endswith("parameters")
    assert "sent MiB   parameters" not in narrow.stdout
    sentences = [line for line in piped.stdout.splitlines() if "  " not in line.strip()]
    assert max(map(len, sentences)) <= 80


def test_the_table_says_what_each_number_of_stages_is_worth() -> None:
    told = call("plan", "--model", "gpt-1.5b", "--stages", "2,4,6,8,60", COLUMNS="80")
    assert told.code == 0, told.stderr
    rows = [line.replace(" %", "%").split() for line in told.stdout.splitlines() if " exact " in line]
    assert [row[:2] for row in rows[:5]] == [[number, "exact"] for number in ("2", "4", "6", "8", "60")]
    assert rows[0][2] == "best"
    by_weights = call(
        "plan", "--model", "gpt-1.5b", "--stages", "2,4,6,8", "--metric", "memory", COLUMNS="80"
    )
    named = [line.replace(" %", "%").split() for line in by_weights.stdout.splitlines() if " exact " in line]
    assert [row[-5] for row in named[:4]] == ["3,119.54", "1,595.95", "1,054.80", "820.40"]
    assert [row[-3] for row in named[:4]] == ["500.4", "312.9", "251.2", "227.2"]
    least = [float(row[-4].replace(",", "")) for row in rows[:4]]
    assert all(ours <= float(row[-4].replace(",", "")) for ours, row in zip(least, named, strict=False)), (
        "the usual metric is what a stage holds while it trains"
    )
    assert "8 micro-batches of 1 x 1,024 tokens" in " ".join(told.stdout.split())
    assert "60 stages, exact: 60 stages for 51 layers" in told.stdout
    assert "Recommended: 2 stages, exact: least device time of a step" in told.stdout
    assert all(len(line) <= 80 for line in told.stdout.splitlines())


def test_a_number_of_stages_beyond_the_capacity_is_marked_and_not_recommended() -> None:
    told = call("plan", "--model", "gpt-1.5b", "--stages", "2,4", "--capacity", "12GiB", COLUMNS="80")
    assert told.code == 0, told.stderr
    rows = [line.split()[:3] for line in told.stdout.splitlines() if " exact " in line]
    assert rows[:2] == [["2", "exact", "over"], ["4", "exact", "best"]]
    assert "over: more than --capacity" in told.stdout


def test_that_nothing_fits_is_an_answer_and_3_where_that_is_asked_for(tmp_path: Path) -> None:
    words = ("plan", "--model", "llama3-8b", "--stages", "2,3", "--capacity", "8GiB")
    told = call(*words, "-o", str(tmp_path / "out"))
    assert (told.code, (tmp_path / "out").exists()) == (0, False)
    text = " ".join(told.stdout.split())
    assert "Nothing fits: the least any needs is" in text
    assert "with 3 stages; allow more stages, smaller micro-batches or larger devices" in text
    assert " best" not in told.stdout.partition("Nothing fits")[0]
    assert "no file was written" in told.stderr
    (plan,) = call(*words, "--json").lines
    jsonschema.validate(plan, build_schema("plan"))
    assert (plan["recommended_strategy"], plan["recommended_stages"]) == (None, None)
    assert call(*words, "--fail-on", "unfit").code == 3
    refused = call(*words[:3], "--fail-on", "unfit")
    assert (refused.code, "needs the memory that it is to fit: --capacity" in refused.stderr) == (2, True)
    joint = ("plan", "--model", "llama3-70b", "--cluster", "1x1xh100", "--global-batch", "8")
    told = call(*joint)
    assert (told.code, "no configuration fits into" in " ".join(told.stdout.split())) == (0, True)
    assert call(*joint, "--fail-on", "unfit").code == 3
    (report,) = call(*joint, "--json").lines
    assert (report["schema"], report["fits"]) == ("vramscope.nothing_fits/1", False)


@pytest.mark.parametrize(
    ("capacity", "verdict", "code"), [("8GiB", "does not", 3), ("160GiB", "Use 2 stages", 0)]
)
def test_the_screen_exits_by_whether_anything_fits_where_that_is_asked_for(
    private_environment: Path, capacity: str, verdict: str, code: int
) -> None:
    words = ("plan", "--model", "llama3-8b", "--stages", "2", "--capacity", capacity, "--screen")
    for flags, expected in ((("--fail-on", "unfit"), code), ((), 0)):
        with terminal(*words, *flags) as screen:
            screen.wait_for(verdict)
            screen.type("q")
            assert screen.wait_for_end() == expected


def test_the_recommendation_is_the_same_whether_other_strategies_are_listed_or_not() -> None:
    words = ("plan", "--model", "gpt-1.5b", "--stages", "2,4", "--json")
    (alone,), (listed,) = call(*words).lines, call(*words, "--strategy", "all").lines
    for plan in (alone, listed):
        assert (plan["recommended_strategy"], plan["recommended_stages"]) == ("exact", 2)
    assert "of the strategies its fullest stage is smallest" in listed["reason"]
    assert "of the strategies" not in alone["reason"]


def test_a_thin_margin_is_named() -> None:
    words = ("plan", "--model", "llama3-8b", "--stages", "3", "--seq", "8192")
    assert "a thin margin" not in call(*words, "--capacity", "80GiB").stdout
    thin = " ".join(call(*words, "--capacity", "72GiB").stdout.split())
    assert "the fullest stage needs 70.4 of 72.0 GiB and leaves 2.2 %, a thin margin" in thin


def test_json_is_one_object_with_its_schema() -> None:
    (plan,) = call("plan", "--model", "GPT2", "--stages", "2-3", "--strategy", "all", "--json").lines
    assert plan["schema"] == "vramscope.plan/1"
    jsonschema.validate(plan, build_schema("plan"))
    assert (DOCS / "plan.schema.json").read_text("utf-8") == render_schema("plan")
    assert list(plan["searches"]) == [
        "uniform",
        "balanced_memory",
        "balanced_compute",
        "balanced_parameters",
        "exact",
        "exact-1f1b",
    ]
    three = plan["searches"]["exact-1f1b"]["optimization_results"]["3"]
    assert sum(three["result"]["transformer_layers"]) == 12
    assert (three["fits"], plan["assumptions"]["capacity_bytes"]) == (None, None)
    assert (plan["assumptions"]["seq_length"], plan["assumptions"]["micro_batch"]) == (1024, 1)


def test_the_original_s_four_files_come_out_to_the_last_byte(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    told = call("plan", "--model", "gpt-1.5b", "--stages", "2-8", "--legacy", "-o", str(folder))
    assert told.code == 0, told.stderr
    written = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert written == ORIGINALS
    assert "the embedding's number is in FLOP" in told.stdout


def test_files_of_the_exact_plan_hold_the_exact_split(tmp_path: Path) -> None:
    told = call("plan", "--model", "gpt-1.5b", "--stages", "8", "--metric", "memory", "-o", str(tmp_path))
    assert told.code == 0, told.stderr
    config = json.loads((tmp_path / "pipeline_parallel_config.json").read_text())
    assert (config["strategy"], config["total_stages"]) == ("exact", 8)
    assert round(config["max_memory_per_stage"], 2) == 820.40
    assert config["stages"][0]["layer_range"] == [0, 4]
    assert "EXACT:" in (tmp_path / "pipeline_strategy_report.txt").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "gtp-1.5b"], "unknown model 'gtp-1.5b': did you mean gpt-1.5b"),
        (["--model", "gpt2", "--stages", "20"], "20 stages for 15 layers"),
        (
            ["--model", "gpt2", "--stages", "4-2"],
            "--stages 4-2: expected 1 to 4,096, with the smaller number first",
        ),
        (
            ["--model", "gpt2", "--stages", "two"],
            "'two' is not a number; expected for example 2,4,6,8 or 2-8",
        ),
        (["--model", "gpt2", "--strategy", "exakt"], "--strategy exakt: did you mean exact?"),
        (
            ["--model", "gpt2", "--metric", "speed"],
            "--metric speed: expected training, memory, compute, parameters",
        ),
        (["--model", "gpt2", "--micro-batches", "0"], "--micro-batches 0: expected a whole number"),
        (["--model", "gpt2", "--seq", "9" * 5000], "expected a whole number of at least 1"),
        (["--model", "gpt2", "--seq", "4096"], "the model learns 1024 positions; choose a sequence"),
        (["--model", "gpt2", "--legacy", "--capacity", "8GiB"], "--capacity does not go with --legacy"),
        (["--model", "gpt2", "--json", "--table"], "--json does not go with --table"),
        (["--model", "absent.json"], "absent.json"),
        (["--factory", "train:make"], "--factory needs --input SHAPE[:TYPE] for the forward pass"),
        (["--model", "gpt2", "--figure", "x.gif"], "--figure x.gif: expected a name that ends in .pdf"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(words: list[str], message: str) -> None:
    told = call("plan", *words)
    assert told.code == 2
    assert message in told.stderr
    assert told.stderr.count("\n") == 1
    assert told.stdout == ""


def test_what_figures_are_of_is_said_and_nothing_of_activations_that_are_not_known(tmp_path: Path) -> None:
    told = call("plan", "--model", "gpt2", "--stages", "2", "--micro-batch", "4", "-o", str(tmp_path))
    words = " ".join(told.stdout.split())
    assert (
        "621.94 MiB of weights in float32 with copies of shared ones, 291.6 GFLOP forward of 1,024" in words
    )
    graph = json.loads((tmp_path / "gpt2_model_graph.json").read_text("utf-8"))
    for node in graph["nodes"].values():
        del node["activation_bytes"]
    (tmp_path / "old.json").write_text(json.dumps(graph), "utf-8")
    told = call("plan", "--model", str(tmp_path / "old.json"), "--stages", "2")
    words = " ".join(told.stdout.split())
    assert "training MiB: —, as the activations of these layers are unknown." in words
    assert "in flight" not in words


def test_flags_that_are_not_counted_are_listed_as_estimate_lists_them(tmp_path: Path) -> None:
    path = tmp_path / "arguments.json"
    sizes = {"num_layers": 8, "hidden_size": 512, "num_attention_heads": 8, "vocab_size": 1024}
    path.write_text(json.dumps({**sizes, "seq_length": 512, "cpu_offloading": True}))
    (plan,) = call("plan", "--model", str(path), "--stages", "2", "--json").lines
    (estimate,) = call("estimate", "--model", str(path), "--json").lines
    assert [each["flag"] for each in plan["not_counted"]] == ["cpu-offloading"]
    assert plan["not_counted"] == estimate["run"]["not_counted"]
    shown = " ".join(call("plan", "--model", str(path), "--stages", "2").stdout.split())
    assert "Not counted: offloading to the host (cpu-offloading)" in shown
