"""What an estimate assumes and does not count is named with it."""

import json
from pathlib import Path

import pytest

from tests.vramscope.cli.running import call
from vramscope.analyzers.planning.graph import find_model
from vramscope.analyzers.planning.theory.configs.assumptions import choose_sequence
from vramscope.analyzers.planning.theory.configs.cases import read_case
from vramscope.analyzers.planning.theory.configs.document import choose_tokens, describe_preset
from vramscope.analyzers.planning.theory.presets import PRESETS

SIZES = {"num-layers": 4, "hidden-size": 512, "num-attention-heads": 8}
TOLD = {
    **SIZES,
    "seq-length": 1024,
    "micro-batch-size": 2,
    "global-batch-size": 16,
    "attention-backend": "fused",
    "vocab-size": 50257,
    "bf16": True,
}


def read(flags: dict[str, object], **columns: str) -> tuple[str, ...]:
    return read_case({"arguments": json.dumps(flags), **columns}).assumptions


def test_a_row_that_says_everything_assumes_nothing() -> None:
    assert read(TOLD, world_size="8", platform="dgx_a100") == ()


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("micro-batch-size", "micro-batches of 1 sequence"),
        ("global-batch-size", "1 micro-batch in a step"),
        ("attention-backend", "fused attention"),
        ("vocab-size", "a vocabulary of 50,257 (GPT-2's)"),
        ("bf16", "training in fp32"),
    ],
)
def test_what_a_row_does_not_say_is_named(flag: str, said: str) -> None:
    flags = {name: value for name, value in TOLD.items() if name != flag}
    assert read(flags, world_size="8", platform="dgx_a100") == (said,)


def test_ranks_and_gpu_that_a_row_does_not_say_are_named() -> None:
    assert read(TOLD) == ("8 ranks", "workspaces of H100")


def test_no_layout_is_read_from_a_name() -> None:
    row = {"arguments": json.dumps(TOLD), "case": "gpt3_tp1_pp1_reshard_8x1xNone"}
    assert read_case(row).layout.tensor == 1


def test_kernels_are_deterministic_by_a_flag_alone_and_not_by_the_name_of_a_test(tmp_path: Path) -> None:
    row = {"arguments": json.dumps(TOLD), "case": "gpt3_tp1_pp1", "golden_file": "golden_values.json"}
    assert not read_case(row).setup.is_deterministic
    flags = {**TOLD, "deterministic-mode": True}
    assert read_case({"arguments": json.dumps(flags)}).setup.is_deterministic
    path = tmp_path / "run.json"
    path.write_text(json.dumps(flags))
    outcome = call("estimate", "--model", str(path), "--dp", "8", "--json")
    assert json.loads(outcome.stdout)["run"]["setup"]["is_deterministic"] is True, outcome.stderr


@pytest.mark.parametrize(
    ("positions", "tokens"), [(None, 4096), (2048, 2048), (4096, 4096), (131072, 4096), (0, 4096)]
)
def test_a_sequence_is_as_long_as_the_model_allows_up_to_a_bound(positions: int | None, tokens: int) -> None:
    assert choose_sequence(positions) == tokens


@pytest.mark.parametrize("name", PRESETS)
def test_of_a_known_model_all_verbs_take_the_same_length(name: str) -> None:
    assert choose_tokens(describe_preset(name)) == choose_sequence(find_model(name).positions)


CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "vocab_size": 32000,
    "intermediate_size": 1376,
    "max_position_embeddings": 2048,
}


def test_the_length_in_a_configuration_is_taken_by_estimate_and_both_plans(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    outcome = call("estimate", "--model", str(path), "--json")
    assert json.loads(outcome.stdout)["run"]["setup"]["seq_length"] == 2048
    assert "sequences of 2,048 tokens" in json.loads(outcome.stdout)["run"]["assumptions"]
    joint = call("plan", "--model", str(path), "--cluster", "1x8xh100", "--global-batch", "64", "--json")
    assert '"seq_length":2048' in joint.stdout.replace(" ", ""), joint.stderr
    stages = call("plan", "--model", str(path), "--stages", "2", "--json")
    assert '"seq_length":2048' in stages.stdout.replace(" ", ""), stages.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "training in bf16 without dropout"),
        (("--offload", "optimizer"), "training in bf16 without dropout"),
        (("--precision", "bf16"), "training without dropout"),
    ],
)
def test_a_precision_is_assumed_only_if_no_flag_gives_it(words: tuple[str, ...], said: str) -> None:
    outcome = call("estimate", "--model", "llama2-7b", *words, "--json")
    assert said in json.loads(outcome.stdout)["run"]["assumptions"]


@pytest.mark.parametrize(("words", "fits"), [((), None), (("--precision", "bf16"), True)])
def test_a_given_precision_replaces_the_format_of_a_quantized_checkpoint(
    tmp_path: Path, words: tuple[str, ...], fits: bool | None
) -> None:
    """DeepSeek-V3 and gpt-oss are published in fp8 and MXFP4 alone, and trained in bf16."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "quantization_config": {"quant_method": "mxfp4"}}))
    outcome = call("estimate", "--model", str(path), "--capacity", "80GiB", *words, "--json")
    assert json.loads(outcome.stdout)["does_fit"] is fits


@pytest.mark.parametrize(
    ("flags", "bound", "fits", "said"),
    [
        ({}, "none", True, "fits into 80.0 GiB"),
        (
            {"cuda_graph_impl": "none", "cpu_offloading": "False", "offload_modules": "[]", "fp4": "None"},
            "none",
            True,
            "fits into 80.0 GiB",
        ),
        (
            {"enable-cuda-graph": True},
            "at_least",
            None,
            "Not counted: CUDA graphs (enable-cuda-graph); a rank needs more",
        ),
        ({"cpu-offloading": True}, "at_most", True, "an estimated peak of at most"),
        (
            {"cpu-offloading": True, "perform-rl-step": True},
            "open",
            None,
            "may need more or less than the estimate",
        ),
    ],
)
def test_what_is_not_counted_makes_the_estimate_a_bound(
    tmp_path: Path, flags: dict[str, object], bound: str, fits: bool | None, said: str
) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**TOLD, **flags}))
    words = ("estimate", "--model", str(path), "--dp", "8", "--capacity", "80GiB")
    found = json.loads(call(*words, "--json").stdout)
    assert (found["bound"], found["does_fit"]) == (bound, fits)
    assert said in " ".join(call(*words).stdout.split())


def test_a_run_that_is_too_large_whatever_is_not_counted_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**TOLD, "num-layers": 200, "hidden-size": 8192, "enable-cuda-graph": True}))
    outcome = call("estimate", "--model", str(path), "--dp", "8", "--capacity", "80GiB", "--fail-on", "unfit")
    assert outcome.code == 3
    assert "at least" in outcome.stdout


def test_a_table_names_assumptions_and_what_is_not_counted(tmp_path: Path) -> None:
    table = tmp_path / "cases.csv"
    arguments = json.dumps({**TOLD, "cpu-offloading": True}).replace('"', '""')
    table.write_text(f'case,arguments\nfirst,"{arguments}"\n')
    head, row = call("estimate", "--batch", str(table)).stdout.splitlines()
    assert head.split(",")[-3:] == ["predicted_assumptions", "predicted_not_counted", "predicted_error"]
    assert row.endswith("8 ranks; workspaces of H100,cpu-offloading (less),")


def test_a_row_of_plain_columns_names_its_number_format_and_refuses_an_unknown_recomputation(
    tmp_path: Path,
) -> None:
    table = tmp_path / "cases.csv"
    head = "num_layers,hidden,heads,seq,mbs,bf16,recompute\n"
    table.write_text(f"{head}4,512,8,1024,1,,\n4,512,8,1024,1,1,\n4,512,8,1024,1,,some\n")
    _, assumed, said, refused = call("estimate", "--batch", str(table)).stdout.splitlines()
    assert "training in bf16 with dropout" in assumed
    assert "training" not in said
    assert refused.endswith("\"recompute-granularity is 'some'; expected full, selective or none\"")


def test_the_formula_of_another_program_names_what_it_assumes_too() -> None:
    shown = " ".join(call("estimate", "--model", "llama3-8b", "--theory", "megatron").stdout.split())
    assert "by Megatron-LM's published formula, first stage. Assumed, since neither flags nor file" in shown


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ((), "2 + 4 + 4 + 8"),
        (("--precision", "pure-bf16", "--optimizer", "adam8bit"), "2 + 2 + 0 + 2"),
        (("--offload", "optimizer"), "2 + 4 + 0 + 0"),
        (("--optimizer", "sgd"), "2 + 4 + 4 + 4"),
    ],
)
def test_the_states_of_a_parameter_are_printed(words: tuple[str, ...], sizes: str) -> None:
    shown = " ".join(call("estimate", "--model", "llama3-8b", *words).stdout.split())
    assert f"fused attention; {sizes} bytes a parameter; H100." in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pieces", "2"), "--pieces 2 needs --pp above 1"),
        (("--recompute-layers", "2"), "--recompute-layers needs --recompute full or block, not none"),
        (("--etp", "2"), "--etp is 2, but the model has no experts"),
    ],
)
def test_a_degree_that_would_change_nothing_is_refused(words: tuple[str, ...], said: str) -> None:
    outcome = call("estimate", "--model", "llama3-8b", *words)
    assert (outcome.code, said in outcome.stderr) == (2, True)


def test_layers_that_predict_further_tokens_are_named_as_trained_or_as_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "num_nextn_predict_layers": 1}))
    words = "training also 1 layer for tokens beyond the next"
    assert words in json.loads(call("estimate", "--model", str(path), "--json").stdout)["run"]["assumptions"]
    plan = json.loads(call("plan", "--model", str(path), "--stages", "2", "--json").stdout)
    assert words not in plan["assumed"]
    assert "mtp-num-layers" in {each["flag"] for each in plan["not_counted"]}
