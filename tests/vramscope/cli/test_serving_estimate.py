"""`vramscope estimate --serve` as a person calls it."""

import json
from pathlib import Path

import jsonschema
import pytest

from benchmarks.serving_logs import LLAMA_8B, QWEN3_NEXT
from tests import REPOSITORY
from vramscope.exporters.schema import build_schema, render_schema

from .running import call


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_8B))
    return str(path)


def test_json_has_what_the_server_of_the_same_start_printed(config: str) -> None:
    """vLLM 0.19 on an H100: 14.99 GiB of weights, 476,016 tokens, 3.63 sequences of 131,072."""
    words = ("--model", config, "--capacity", "79.19GiB", "--utilization", "0.95", "--json")
    (report,) = call("estimate", "--serve", *words).lines
    jsonschema.validate(report, build_schema("serving-estimate"))
    assert report["schema"] == "vramscope.serving-estimate/1"
    assert report["stages"][0]["weights_bytes"] == pytest.approx(14.9888 * 2**30, rel=1e-4)
    assert report["pool"]["tokens"]["likely"] == pytest.approx(476016, rel=0.02)
    assert (report["pool"]["sequences"]["likely"], report["pool"]["does_fit"]) == (3, True)
    assert report["assumptions"][0].startswith("131,072 tokens in a sequence")


def test_the_schema_in_the_documentation_is_the_one_of_the_program() -> None:
    kept = (REPOSITORY / "docs" / "serving-estimate.schema.json").read_text()
    assert kept == render_schema("serving-estimate")


def test_text_answers_in_sentences_and_in_rows(config: str) -> None:
    outcome = call("estimate", "--serve", "--model", config, "--gpu", "h100", "--seq", "8192")
    assert outcome.code == 0, outcome.stderr
    text = " ".join(outcome.stdout.split())
    for part in ("8.03 billion parameters", "128 KiB a token", "It fits", "Outside of its share", "H100"):
        assert part in text
    assert "state of a sequence" in outcome.stdout


def test_without_a_device_it_says_what_a_rank_holds(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN3_NEXT))
    outcome = call("estimate", "--serve", "--model", str(path), "--tp", "2", "--cache-type", "fp8")
    text = " ".join(outcome.stdout.split())
    assert "a sequence, whatever its length" in text
    assert "share" not in text


def test_too_large_a_model_fails_only_when_asked() -> None:
    words = ("estimate", "--serve", "--model", "llama3-70b", "--capacity", "80GiB", "--seq", "8192")
    outcome = call(*words)
    assert outcome.code == 0
    assert "By the same estimate it would with --tp 4" in " ".join(outcome.stdout.split())
    assert call(*words, "--fail-on", "unfit").code == 3


def test_a_known_name_has_its_positions_and_an_assumed_type() -> None:
    (report,) = call("estimate", "--serve", "--model", "gpt2", "--json").lines
    assert report["assumptions"][0] == "1,024 tokens in a sequence (as many as the model has positions)"
    assert report["assumptions"][-1] == "weights and activations in bf16"
    (report,) = call("estimate", "--serve", "--model", "gpt2", "--precision", "fp16", "--json").lines
    assert "bf16" not in " ".join(report["assumptions"])


def test_a_longer_sequence_than_learned_positions_and_an_encoder_are_refused() -> None:
    outcome = call("estimate", "--serve", "--model", "gpt2", "--seq", "4096")
    assert (outcome.code, "expected at most 1024 tokens" in outcome.stderr) == (2, True)
    outcome = call("estimate", "--serve", "--model", "bert-base")
    assert (outcome.code, "bert-base is not a decoder" in outcome.stderr) == (2, True)


def test_positions_under_every_name_of_a_configuration_count_and_unread_sizes_are_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "config.json"
    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 512, "n_positions": 256}
    path.write_text(json.dumps({"model_type": "gpt2", **sizes, "num_memory_slots": 9}))
    (report,) = call("estimate", "--serve", "--model", str(path), "--json").lines
    assert report["assumptions"][0].startswith("256 tokens in a sequence")
    assert report["model"]["notes"] == ["num_memory_slots: not read; by the name it may be a size"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--zero", "0"), "--zero does not go with --serve"),
        (("--sp",), "--sp does not go with --serve"),
        (("--schedule", "gpipe"), "--schedule does not go with --serve"),
        (("--tp", "3"), "TP = 3"),
        (("--seq", "0"), "--seq is 0"),
        (("--utilization", "2"), "expected a number from 0.01 to 1"),
        (("--fail-on", "unfit"), "--fail-on unfit needs"),
    ],
)
def test_what_does_not_go_together_is_refused(words: tuple[str, ...], said: str) -> None:
    outcome = call("estimate", "--serve", "--model", "llama3-8b", *words)
    assert outcome.code == 2
    assert said in outcome.stderr


def test_flags_of_servers_need_serve_and_training_files_are_no_models(tmp_path: Path) -> None:
    assert "--max-seqs needs --serve" in call("estimate", "--model", "llama3-8b", "--max-seqs", "8").stderr
    assert "--serve, which needs --model" in call("estimate", "--serve", "--factory", "a:b").stderr
    path = tmp_path / "flags.json"
    path.write_text('{"num_layers": 2, "hidden_size": 8}')
    outcome = call("estimate", "--serve", "--model", str(path))
    assert outcome.code == 2
    assert "config.json of a model" in " ".join(outcome.stderr.split())


def test_an_unknown_architecture_is_refused_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_8B, "model_type": "kimi_linear"}))
    outcome = call("estimate", "--serve", "--model", str(path))
    assert outcome.code == 2
    assert "config.json: model_type 'kimi_linear' cannot be estimated; expected one of" in outcome.stderr
