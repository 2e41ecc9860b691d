"""`vramscope estimate` as a person calls it."""

import csv
import json
from pathlib import Path

import jsonschema
import pytest

from tests import REPOSITORY
from vramscope.exporters.schema import build_schema, render_schema

from .running import call

DOCS = REPOSITORY / "docs"

CASES = """\
case,platform,world_size,num_layers,hidden,heads,seq,mbs,gbs,tp,pp,dist_opt,bf16,arguments
whole,h100,8,12,512,8,1024,4,32,1,1,True,True,
odd,h100,8,12,512,8,1024,4,32,3,1,True,True,
"flags, quoted",h100,,,,,,,,,,,,"{""num-layers"": 12, ""hidden-size"": 512, ""num-attention-heads"": 8,
 ""seq-length"": 1024, ""micro-batch-size"": 4, ""bf16"": true, ""use-distributed-optimizer"": true}"
torn,h100,8,12,512,8,1024,4,32,1,1,True,True,{
"""
STATES = 64_109_568 * 6 + 64_109_568 // 8 * 12
"""Bytes of GPT of 12 layers, h 512, 1024 positions: weight and gradient whole, the rest over 8 ranks."""


def test_a_batch_keeps_its_rows_and_says_why_one_has_no_figures(tmp_path: Path) -> None:
    cases, output = tmp_path / "cases.csv", tmp_path / "predicted.csv"
    cases.write_text(CASES)
    outcome = call("estimate", "--batch", str(cases), "--output", str(output))
    assert outcome.code == 0, outcome.stderr
    assert "estimated 2 of 4 cases" in outcome.stderr
    rows = list(csv.DictReader(output.read_text().splitlines(keepends=True)))
    assert [row["case"] for row in rows] == ["whole", "odd", "flags, quoted", "torn"]
    whole, odd, flags, torn = rows
    assert "TP = 3" in odd["predicted_error"] or "TP x PP x CP" in odd["predicted_error"]
    assert odd["predicted_peak_bytes"] == ""
    assert "JSON" in torn["predicted_error"]
    for row in (whole, flags):
        beyond = int(row["predicted_allocated_bytes"]) - STATES
        assert 0 <= beyond - 3 * 32 * 2**20 < 1 << 20
        assert int(row["predicted_peak_bytes"]) > int(row["predicted_allocated_bytes"])
    assert list(rows[0])[: CASES.count(",", 0, CASES.index("\n")) + 1] == CASES.splitlines()[0].split(",")


@pytest.mark.parametrize("column", ["dist_opt", "bf16", "seq_parallel"])
def test_a_cell_that_is_neither_on_nor_off_is_refused(tmp_path: Path, column: str) -> None:
    sizes = "8,12,512,8,1024,4,32,1,1"
    header = f"world_size,num_layers,hidden,heads,seq,mbs,gbs,tp,pp,{column}"
    cases = tmp_path / "cases.csv"
    words = ("maybe", "no", "false", "yes", "1")
    cases.write_text("\n".join([header, *(f"{sizes},{word}" for word in words)]) + "\n")
    refused, *known = csv.DictReader(call("estimate", "--batch", str(cases)).stdout.splitlines())
    assert refused["predicted_error"] == f"{column} is 'maybe'; expected true or false"
    assert refused["predicted_peak_bytes"] == ""
    no, false, yes, one = (row["predicted_peak_bytes"] for row in known)
    assert no == false != ""
    assert yes == one != ""


def test_a_batch_refuses_to_be_judged_and_does_not_ask_for_what_it_refuses(tmp_path: Path) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text(CASES)
    for more in ((), ("--gpu", "h200")):
        refused = call("estimate", "--batch", str(cases), "--fail-on", "unfit", *more)
        assert refused.code == 2
        assert "--fail-on" in refused.stderr
        assert "do not go with --batch" in refused.stderr
        assert "needs the memory" not in refused.stderr


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("--recompute", "block"), "at most 32, the layers of the model"),
        (("--recompute", "full"), "at most 32, the layers of the model"),
        (("--recompute", "block", "--pp", "4"), "at most 8, the layers of a stage"),
    ],
)
def test_more_recomputed_layers_than_there_are_together_are_refused(
    words: tuple[str, ...], most: str
) -> None:
    refused = call("estimate", "--model", "llama2-7b", *words, "--recompute-layers", "99")
    assert refused.code == 2
    assert f"--recompute-layers 99: expected {most}" in " ".join(refused.stderr.split())
    number = most.split(",", maxsplit=1)[0].removeprefix("at most ")
    assert call("estimate", "--model", "llama2-7b", *words, "--recompute-layers", number).code == 0


def test_a_batch_of_which_nothing_can_be_estimated_is_bad_input(tmp_path: Path) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text("\n".join(CASES.splitlines()[:3:2]) + "\n")
    outcome = call("estimate", "--batch", str(cases))
    assert (outcome.code, len(outcome.stdout.splitlines())) == (2, 2), "each row is told all the same"
    assert "estimated 0 of 1 cases" in outcome.stderr


def test_json_tells_every_part_and_the_table_the_same_peak() -> None:
    words = ("estimate", "--model", "llama2-7b", "--tp", "2", "--pp", "2", "--dp", "2", "--capacity", "80GiB")
    (report,) = call(*words, "--json").lines
    assert report["schema"] == "vramscope.estimate/1"
    assert report["world_size"] == 8
    assert [stage["layers"][0] for stage in report["stages"]] == [0, 16]
    for stage in report["stages"]:
        peak = max(stage["moments"], key=lambda moment: moment["total_bytes"])
        assert sum(part["size_bytes"] for part in peak["parts"]) == stage["peak_bytes"]
    assert report["does_fit"] is True
    table = call(*words, "--format", "text", COLUMNS="120")
    assert table.code == 0, table.stderr
    assert f"{report['peak_bytes'] / 2**30:.2f}" in table.stdout
    assert table.stdout.startswith("llama2-7b: an estimated peak of ")
    assert "fits into 80.0 GiB" in table.stdout


def test_what_would_make_it_fit_does_so_when_it_is_asked_for() -> None:
    words = ("estimate", "--model", "llama2-7b", "--dp", "8", "--capacity", "80GiB")
    (report,) = call(*words, "--json").lines
    assert report["does_fit"] is False
    flags = [change["flags"] for change in report["changes"]]
    assert flags[0] == ["--zero 1"]
    assert len({tuple(flag.split()[0] for flag in way) for way in flags}) == len(flags)
    assert all(change["peak_bytes"] <= 0.9 * report["capacity_bytes"] for change in report["changes"])
    (changed,) = call(*words, *flags[0][0].split(), "--json").lines
    assert changed["peak_bytes"] == report["changes"][0]["peak_bytes"]
    assert (changed["does_fit"], changed["changes"]) == (True, None)
    for printed in (report, changed):
        jsonschema.validate(printed, build_schema("estimate"))
    table = call(*words, COLUMNS="120").stdout
    assert "By the same estimate it would fit with --zero 1 (" in table


@pytest.mark.parametrize(
    ("flag", "bound", "said", "nothing_helps"),
    [
        ("cpu-offloading", "at_most", "it would fit with", "No change brings the estimate that low"),
        ("enable-cuda-graph", "at_least", "whether it fits then cannot be said", "No change makes it fit"),
        (
            *("a-flag-of-nobody", "open"),
            *("whether it fits then cannot be said", "No change brings the estimate that low"),
        ),
    ],
)
def test_changes_are_as_doubtful_as_the_estimate_of_the_changed_run(
    tmp_path: Path, flag: str, bound: str, said: str, nothing_helps: str
) -> None:
    config = tmp_path / "arguments.json"
    sizes = {"num-layers": 32, "hidden-size": 4096, "num-attention-heads": 32, "seq-length": 4096}
    config.write_text(json.dumps({**sizes, "bf16": True, flag: True}))
    for capacity, expected in (("80GiB", said), ("1GiB", nothing_helps)):
        words = ("estimate", "--model", str(config), "--capacity", capacity)
        (report,) = call(*words, "--json").lines
        assert report["bound"] == bound
        text = " ".join(call(*words).stdout.split())
        assert expected in text
        assert ("it would fit with" in text) == (expected == said and bound == "at_most")


def test_a_model_that_nothing_helps_is_told_so() -> None:
    outcome = call("estimate", "--model", "llama3-405b", "--capacity", "24GiB", COLUMNS="200")
    assert "does not fit into 24.0 GiB" in outcome.stdout
    assert "No change makes it fit" in outcome.stdout


def test_the_schemas_are_those_of_the_program() -> None:
    for name, text in (
        ("estimate", render_schema("estimate")),
        ("calibration", render_schema("calibration")),
    ):
        assert (DOCS / f"{name}.schema.json").read_text("utf-8") == text


def test_the_fork_is_reproduced_from_the_command_line(tmp_path: Path) -> None:
    """A model of 485 billion parameters on 8192 ranks, with a PP that does not divide its layers."""
    config = tmp_path / "arguments.json"
    sizes = {"num-layers": 96, "hidden-size": 20480, "num-attention-heads": 160, "seq-length": 2048}
    config.write_text(json.dumps({**sizes, "bf16": True}))
    words = ("--tp", "2", "--pp", "64", "--world-size", "8192", "--micro-batches", "64")
    outcome = call("estimate", "--model", str(config), *words, "--theory", "megatron-fork")
    assert outcome.code == 0, outcome.stderr
    assert "140,204.06 MiB" in outcome.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "llama2-7b", "--tp", "3"), "TP = 3 does not divide the 32 heads"),
        (("--model", "llama2-7b", "--world-size", "7", "--tp", "2"), "world size 7 is not a multiple"),
        (("--model", "lama2-7b"), "did you mean llama2-7b"),
        (("--model", "absent.json"), "absent.json: cannot be read"),
        (("--model", "llama2-7b", "--output", "x"), "--output needs --batch"),
        (("--model", "llama2-7b", "--tp", "0"), "TP is 0; expected 1 or more"),
        (("--model", "llama2-7b", "--dp", "-1"), "DP is -1; expected 1 or more"),
        (("--model", "llama2-7b", "--micro-batch", "0"), "a micro-batch has 0 sequences"),
        (("--batch", "absent.csv"), "absent.csv: cannot be read"),
        (("--model", "llama2-7b", "--quantize", "nf4"), "give --lora, the rank of adapters to train"),
        (("--model", "llama2-7b", "--optimizer", "none"), "--optimizer none does not go with --model"),
        (("--model", "llama2-7b", "--serve", "--lora", "8"), "--lora does not go with --serve"),
        ((), "one of the arguments --model --batch --factory is required"),
    ],
)
def test_a_mistake_is_named_in_one_line(words: tuple[str, ...], message: str) -> None:
    outcome = call("estimate", *words)
    assert outcome.code == 2
    assert message in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert outcome.stdout == ""


def test_adapters_small_moments_and_offloading_are_asked_for_by_a_flag_each() -> None:
    def find(*words: str) -> dict[str, int]:
        (report,) = call("estimate", "--model", "llama3-8b", "--seq", "2048", *words, "--json").lines
        (stage,) = report["stages"]
        return {it["name"]: it["size_bytes"] for it in stage["moments"][0]["parts"]}

    parameters, adapters = 8_030_261_248, 41_943_040
    assert find("--lora", "16")["gradients"] == 4 * adapters
    small = find("--lora", "16", "--quantize", "nf4", "--optimizer", "adam8bit")
    assert small["weights"] < 0.37 * 2 * parameters
    # Two bytes a parameter and two scales for 256; adapters smaller than 4,096 numbers would be in fp32.
    assert small["optimizer"] == adapters * 2 + 2 * 4 * adapters // 256
    pure = find("--precision", "pure-bf16")
    assert [pure[name] for name in ("weights", "gradients", "optimizer")] == [
        2 * parameters,
        2 * parameters,
        4 * parameters,
    ]
    away = find("--offload", "optimizer")
    assert away["gradients"] == 4 * parameters
    assert {"optimizer", "master weights"}.isdisjoint(away)
    text = call("estimate", "--model", "llama3-8b", "--lora", "16", "--quantize", "nf4").stdout
    assert "adapters of rank 16 in fp32, frozen NF4 weights" in " ".join(text.split())
    assert "routed experts" not in text


def test_experts_that_stay_at_the_precision_are_named_as_assumed() -> None:
    words = ("estimate", "--model", "qwen3-30b-a3b", "--seq", "2048", "--lora", "16")
    said = "routed experts in 16 bits, as bitsandbytes converts nn.Linear and no 3-D parameters"
    assert said in " ".join(call(*words, "--quantize", "nf4").stdout.split())
    assert "routed experts" not in call(*words).stdout


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--lora", "16"),
        ("--lora", "16", "--quantize", "nf4", "--optimizer", "adam8bit"),
        ("--optimizer", "adam8bit"),
        ("--optimizer", "sgd"),
        ("--precision", "pure-bf16"),
        ("--offload", "optimizer"),
    ],
)
def test_every_way_of_training_that_a_flag_asks_for_is_counted(words: tuple[str, ...]) -> None:
    """Else the estimate would not say whether the run fits."""
    ask = ("estimate", "--model", "llama3-8b", "--seq", "2048", *words)
    assert "Not counted" not in call(*ask).stdout
    assert "fits into 500.0 GiB" in " ".join(call(*ask, "--capacity", "500GiB").stdout.split())


def test_a_sequence_is_no_longer_than_the_positions_that_the_model_learns() -> None:
    for model, tokens in (("gpt2", 1024), ("gpt3-175b", 2048), ("llama3-8b", 4096)):
        (report,) = call("estimate", "--model", model, "--json").lines
        assert report["run"]["setup"]["seq_length"] == tokens


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_hidden_layers": 4}, "config.json: hidden_size is not given"),
        ({"model_type": "mamba", "hidden_size": 64}, "config.json: model_type 'mamba' cannot be estimated"),
    ],
)
def test_what_a_configuration_lacks_is_named_with_its_file(
    tmp_path: Path, config: dict[str, object], words: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    outcome = call("estimate", "--model", str(path))
    assert outcome.code == 2
    assert words in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_card_by_name_says_whether_it_fits_and_3_where_that_is_asked_for() -> None:
    words = ("estimate", "--model", "llama2-7b", "--seq", "1024")
    told = call(*words, "--gpu", "RTX 4090")
    assert told.code == 0, told.stderr
    assert "does not fit into 24.0 GiB" in " ".join(told.stdout.split())
    assert "RTX 4090." in told.stdout
    assert call(*words, "--gpu", "4090", "--fail-on", "unfit").code == 3
    assert call(*words, "--capacity", "24GiB", "--fail-on", "unfit").code == 3
    assert call(*words, "--capacity", "24GiB").code == 0
    assert call(*words, "--gpu", "h200", "--zero", "1", "--dp", "8", "--fail-on", "unfit").code == 0
    (report,) = call(*words, "--gpu", "rtx-4090", "--json").lines
    jsonschema.validate(report, build_schema("estimate"))
    assert (report["gpu"], report["run"]["setup"]["gpu"]) == ("RTX 4090", "a100")
    assert (report["capacity_bytes"], report["does_fit"]) == (24564 << 20, False)
    refused = call(*words, "--gpu", "rtx 4095")
    assert (refused.code, "did you mean rtx4090" in refused.stderr) == (2, True)
    refused = call(*words, "--fail-on", "unfit")
    assert (refused.code, "needs the memory that it is to fit: --capacity" in refused.stderr) == (2, True)


def test_annotations_say_whether_it_fits_and_only_where_it_is_known() -> None:
    outcome = call("estimate", "--model", "llama2-7b", "--capacity", "80GiB", "--format", "github")
    assert outcome.stdout.startswith("::error title=llama2-7b%3A ")
    assert outcome.stdout.endswith(": does not fit into 80.0 GiB.\n")
    for words in (("--theory", "megatron"), ("--serve",)):
        refused = call("estimate", "--model", "llama2-7b", "--format", "github", *words)
        assert (refused.code, refused.stdout) == (2, "")
        assert "--format github" in refused.stderr
