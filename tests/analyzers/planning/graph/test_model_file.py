"""What a model's text means: a known name, a file, or a folder with one."""

from pathlib import Path

import pytest

from vramscope.engine.errors import InputFileError, UsageError
from vramscope.planning.model_graph import create_gpt_model_graph, describe_model

CONFIG = b"""{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
"intermediate_size": 1024, "vocab_size": 1000, "max_position_embeddings": 512}"""


def test_a_known_name_is_no_folder_that_is_called_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    assert describe_model("gpt2").shape.layers == 12
    assert create_gpt_model_graph("gpt2").name == "gpt2"


def test_a_folder_of_hugging_face_is_its_config(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    for read in (describe_model, create_gpt_model_graph):
        with pytest.raises(InputFileError, match=r"my-llama: no config\.json in this folder"):
            read(str(folder))
    (folder / "config.json").write_bytes(CONFIG)
    assert describe_model(str(folder)).shape.layers == 4
    assert create_gpt_model_graph(str(folder)).name == "my-llama"


def test_the_memory_theory_names_what_plans_a_model_that_is_no_decoder() -> None:
    with pytest.raises(UsageError, match=r"T5-base is not a decoder.*plan --model t5-base --stages"):
        describe_model("T5-base")
