"""What a plan assumes is named with it: in text, in JSON, on the screen, and where nothing fits."""

import json
from pathlib import Path

import pytest

import vramscope
from vramscope.analyzers.planning.theory import ParallelLayout
from vramscope.cli.plan_screen import present_words
from vramscope.engine.clock import SystemClock
from vramscope.engine.errors import NothingFitsError
from vramscope.tui.plan.planned import JobDefaults
from vramscope.tui.plan.screen import view_plan
from vramscope.tui.screens.terminal_app import TerminalApp
from vramscope.tui.terminal.abilities import TerminalAbilities

from .running import call

STAGES = ("plan", "--model", "llama3-8b", "--stages", "4")
OF_STAGES = [
    "1 rank in each stage",
    "sequences of 4,096 tokens",
    "micro-batches of 1 sequence",
    "8 micro-batches in a step",
    "fused attention",
    "training in bf16 without dropout",
    "18 bytes a parameter (mixed-adam)",
    "devices of 100 TFLOP/s",
    "links of 25 GB/s",
]
CLUSTER = ("plan", "--model", "gpt-0.3b", "--cluster", "2x2xh100", "--global-batch", "8", "--zero", "0")
OF_CLUSTER = [
    "sequences of 1,024 tokens",
    "fused attention",
    "training in bf16 with dropout",
    "1 context-parallel rank",
    "90 % of each device's memory",
    "matrix products at 75 % of the peak",
    "InfiniBand NDR between nodes",
]
# As Megatron-LM prints its arguments: everything that changes memory.
ARGUMENTS = {
    "num_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "vocab_size": 50257,
    "max_position_embeddings": 2048,
    "seq_length": 1024,
    "micro_batch_size": 2,
    "attention_backend": "unfused",
    "fp16": True,
}


GPT2 = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_embd": 256,
    "n_head": 4,
    "vocab_size": 50257,
    "n_positions": 512,
}
OPT = {
    **{"model_type": "opt", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4},
    **{"vocab_size": 50272, "max_position_embeddings": 512, "ffn_dim": 1024},
}


def find_assumed(*words: str) -> list[str]:
    (found,) = call(*words, "--json").lines
    assumed: list[str] = found["assumed"]
    return assumed


@pytest.mark.parametrize(("words", "expected"), [(STAGES, OF_STAGES), (CLUSTER, OF_CLUSTER)])
def test_what_nobody_said_is_named_with_a_plan(words: tuple[str, ...], expected: list[str]) -> None:
    assert find_assumed(*words) == expected
    shown = call(*words, COLUMNS="80").stdout
    assert f"Assumed, since neither flags nor file say it: {', '.join(expected)}." in " ".join(shown.split())
    sentence = shown[shown.index("Assumed,") :].partition("\n  ")[0]
    assert max(map(len, sentence.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "flags", "said"),
    [
        (STAGES, ("--seq", "4096"), "sequences of 4,096 tokens"),
        (STAGES, ("--micro-batch", "1"), "micro-batches of 1 sequence"),
        (STAGES, ("--micro-batches", "8"), "8 micro-batches in a step"),
        (STAGES, ("--tflops", "100"), "devices of 100 TFLOP/s"),
        (STAGES, ("--link", "25"), "links of 25 GB/s"),
        (CLUSTER, ("--seq", "1024"), "sequences of 1,024 tokens"),
        (CLUSTER, ("--cp", "1"), "1 context-parallel rank"),
        (CLUSTER, ("--memory-share", "0.9"), "90 % of each device's memory"),
        (CLUSTER, ("--efficiency", "0.75"), "matrix products at 75 % of the peak"),
        (CLUSTER, ("--cluster", "2x2xh100:ib-ndr"), "InfiniBand NDR between nodes"),
    ],
)
def test_what_was_said_is_no_assumption_also_if_it_is_the_default(
    words: tuple[str, ...], flags: tuple[str, ...], said: str
) -> None:
    expected = [each for each in (OF_STAGES if words is STAGES else OF_CLUSTER) if each != said]
    assert find_assumed(*words, *flags) == expected


def test_given_states_say_the_number_formats_and_no_dropout() -> None:
    assumed = find_assumed(*STAGES, "--states", "fp32-adam")
    assert "training without dropout" in assumed
    assert not [each for each in assumed if "bf16" in each or "bytes a parameter" in each]


def test_dropout_is_named_where_a_model_has_it() -> None:
    assert "training in bf16 with dropout" in find_assumed("plan", "--model", "bert-base", "--stages", "2")


def test_kernels_of_a_device_that_the_theory_does_not_know_are_named() -> None:
    words = ("plan", "--model", "gpt-0.3b", "--global-batch", "8", "--cluster")
    assert "workspaces of H100" in find_assumed(*words, "1xl40s")
    assert "workspaces of H100" not in find_assumed(*words, "1xa100-40gb")


def test_what_a_file_says_is_planned_with_and_is_no_assumption(tmp_path: Path) -> None:
    path = tmp_path / "arguments.json"
    path.write_text(json.dumps(ARGUMENTS))
    words = ("plan", "--model", str(path))
    (plan,) = call(*words, "--stages", "2", "--json").lines
    assert (plan["assumptions"]["seq_length"], plan["assumptions"]["micro_batch"]) == (1024, 2)
    named = " ".join(plan["assumed"])
    assert not [word for word in ("sequence", "attention", "vocabulary") if word in named]
    features = [each["feature"] for each in plan["not_counted"]]
    assert features == ["attention that keeps its scores", "training in fp16"]
    joint = (*words, "--cluster", "1xh100", "--global-batch", "8")
    (plan,) = call(*joint, "--zero", "0", "--recompute", "none", "--cp", "1", "--json").lines
    assert plan["assumed"] == ["90 % of each device's memory", "matrix products at 75 % of the peak"]
    best = plan["configurations"][0]
    assert best["setup"]["attention"] == "unfused"
    flags = ("--micro-batch", str(best["setup"]["micro_batch_size"]), "--global-batch", "8", "--dp", "1")
    (estimate,) = call("estimate", "--model", str(path), *flags, "--json").lines
    assert best["peak_bytes"] == estimate["peak_bytes"], "one theory reads the file for both"


@pytest.mark.parametrize("words", [("--stages", "2"), ("--cluster", "1xh100", "--global-batch", "8")])
def test_of_a_file_without_a_vocabulary_a_plan_names_the_one_it_takes(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "arguments.log"
    values = {**ARGUMENTS, "vocab_size": None}
    path.write_text("".join(f"  {name} ........ {value}\n" for name, value in values.items()))
    assert "a vocabulary of 50,257 (GPT-2's)" in find_assumed("plan", "--model", str(path), *words)


def test_what_arguments_of_megatron_lm_say_of_the_training_is_not_assumed(tmp_path: Path) -> None:
    path = tmp_path / "arguments.json"
    said = {**ARGUMENTS, "fp16": False, "bf16": True}
    path.write_text(json.dumps(said))
    assert "training with dropout" in find_assumed("plan", "--model", str(path), "--stages", "2")
    path.write_text(json.dumps({**said, "hidden_dropout": 0.0}))
    named = " ".join(find_assumed("plan", "--model", str(path), "--stages", "2"))
    assert "training" not in named


LLAMA = {
    **{"num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
    **{"vocab_size": 32000, "max_position_embeddings": 512},
}
MIXTRAL = {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}
GALVATRON = {**GPT2, "head_dim": 64}


@pytest.mark.parametrize(
    ("config", "assumed"),
    [
        ({**GPT2, "model_type": None}, "gpt2"),
        ({**GPT2, "num_hidden_layers": 2, "model_type": None}, "gpt2"),
        (LLAMA, "llama"),
        ({**LLAMA, "num_experts": None, "type_vocab_size": None}, "llama"),
        (MIXTRAL, "mixtral"),
        (GPT2, None),
        # Files of Galvatron have no model type: their format says which model it is.
        ({**GALVATRON, "model_type": None}, None),
        ({"dim": 256, "n_layers": 2, "n_heads": 4, "multiple_of": 256, "vocab_size": 32000}, None),
    ],
)
def test_a_file_is_the_same_model_to_all_verbs_which_name_the_type_they_assume(
    config: dict[str, object], assumed: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    if config.get("model_type") is None:
        config = {name: value for name, value in config.items() if name != "model_type"}
    path.write_text(json.dumps(config))
    model = ("--model", str(path), "--seq", "512")
    (estimate,) = call("estimate", *model, "--micro-batch", "1", "--json").lines
    (stages,) = call("plan", *model, "--stages", "2", "--json").lines
    (joint,) = call("plan", *model, "--cluster", "1xh100", "--global-batch", "1", "--json").lines
    (stage,) = estimate["stages"]
    assert stage["parameters"] == stages["analysis"]["parameters"]["total"]
    named = [] if assumed is None else [f"a model of type {assumed} (the file has no model_type)"]
    for words in (estimate["run"]["assumptions"], stages["assumed"], joint["assumed"]):
        assert [word for word in words if "a model of" in word] == named


def test_an_encoder_without_a_model_type_is_planned_as_one_and_not_estimated(tmp_path: Path) -> None:
    path = tmp_path / "bert.json"
    path.write_text(json.dumps({**LLAMA, "type_vocab_size": 2}))
    assert "a model of type bert (the file has no model_type)" in find_assumed(
        "plan", "--model", str(path), "--stages", "2"
    )
    told = call("estimate", "--model", str(path))
    assert told.code == 2
    assert "model_type is not given, and 'bert', which the names of its sizes suggest, cannot" in told.stderr


def test_a_saved_graph_says_its_batch_and_its_kernels(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    vramscope.create_gpt_model_graph("gpt2").save_to_json(path)
    assert find_assumed("plan", "--model", str(path), "--stages", "2") == [
        each for each in OF_STAGES if not each.startswith(("sequences", "micro-batches", "fused", "training"))
    ]


def test_that_nothing_fits_is_said_with_what_was_assumed(tmp_path: Path) -> None:
    stages = (*STAGES, "--capacity", "8GiB")
    cluster = ("plan", "--model", "llama3-70b", "--cluster", "1x1xh100", "--global-batch", "8")
    of_llama = ["sequences of 4,096 tokens", "fused attention", OF_STAGES[5], *OF_CLUSTER[3:-1]]
    for words, expected in ((stages, OF_STAGES), (cluster, of_llama)):
        shown = " ".join(call(*words).stdout.split())
        assert "Nothing fits:" in shown
        assert f"Assumed, since neither flags nor file say it: {', '.join(expected)}." in shown
        assert find_assumed(*words) == expected
    with pytest.raises(NothingFitsError) as refusal:
        vramscope.plan_cluster("llama3-70b", "1x1xh100", global_batch=8)
    assert "fused attention" in refusal.value.assumed


def test_the_report_among_the_files_has_the_assumptions_and_that_of_the_original_stays(
    tmp_path: Path,
) -> None:
    for flags, has_line in ((), True), (("--legacy",), False):
        call(*STAGES, *flags, "-o", str(tmp_path / str(has_line)))
        report = (tmp_path / str(has_line) / "pipeline_strategy_report.txt").read_text()
        assert ("Assumed, since" in report) is has_line


def test_a_program_gets_what_its_arguments_do_not_say() -> None:
    plan = vramscope.plan_cluster("gpt-0.3b", "2x2xh100", global_batch=8, zero_stages=(0,), context=1, top=1)
    assert list(plan.assumed) == [each for each in OF_CLUSTER if each != "1 context-parallel rank"]
    assert plan.configurations[0].layout != ParallelLayout()


@pytest.mark.parametrize(
    ("words", "size", "said"),
    [
        (
            "llama3-8b 4 --capacity 80GiB",
            (120, 32),
            "Assumed, since neither flags nor file say it: 1 rank in",
        ),
        ("llama3-8b 4 --capacity 80GiB", (80, 24), "9 assumptions that neither flags nor file say: i lists"),
        ("llama3-8b 4 --capacity 80GiB", (24, 10), "9 assumptions: i"),
        ("gpt-0.3b --cluster 1xh100 --global-batch 8", (80, 24), "6 assumptions that neither"),
    ],
)
async def test_a_screen_shows_what_was_assumed_or_how_much_it_is(
    words: str, size: tuple[int, int], said: str
) -> None:
    plan = present_words(words, JobDefaults())
    view = view_plan(lambda: plan, model="a model")
    app = TerminalApp(TerminalAbilities(), view=view, clock=SystemClock(), driver_class=None)
    async with app.run_test(size=size) as pilot:
        while view.screen.candidate is None:
            await pilot.pause()
        await pilot.pause()
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
        assert said in "\n".join(lines)
        await pilot.press("i")
        await pilot.pause()
        assert all(each in " ".join(plan.report.split()) for each in plan.assumed)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt2", "training in bf16 with dropout"),  # its config.json: resid_pdrop 0.1
        ("gpt-0.3b", "training in bf16 with dropout"),
        ("gpt3-175b", "training in bf16 with dropout"),
        ("llama3-8b", "training in bf16 without dropout"),
        (GPT2, "training in bf16 with dropout"),  # transformers: 0.1 where the file says nothing
        ({**GPT2, "resid_pdrop": 0.0}, "training in bf16"),
        (OPT, "training in bf16 with dropout"),
        ({**OPT, "model_type": "gpt_neox"}, "training in bf16 without dropout"),
        ({**OPT, "model_type": "starcoder2", "residual_dropout": 0.1}, "training in bf16"),
    ],
)
def test_an_estimate_and_a_plan_of_stages_assume_the_same_dropout(
    tmp_path: Path, model: str | dict[str, object], expected: str
) -> None:
    name, is_dropping = model, expected.endswith("with dropout")
    if not isinstance(model, str):
        name = str(tmp_path / "config.json")
        Path(name).write_text(json.dumps(model))
        is_dropping = is_dropping or bool(model.get("residual_dropout"))
    (estimated,) = call("estimate", "--model", str(name), "--json").lines
    assert expected in estimated["run"]["assumptions"]
    assert expected in find_assumed("plan", "--model", str(name), "--stages", "2")
    assert ("MLP dropout" in json.dumps(estimated)) is is_dropping
