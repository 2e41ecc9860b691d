"""Which file a model's text means: `gpt2` is a name, `./config.json` a file, `./Llama-3-8B` a folder."""

from pathlib import Path

from vramscope.analyzers.planning.graph.catalog import MODELS
from vramscope.analyzers.planning.theory.presets import PRESETS
from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.input_file import show_path

SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".txt", ".log")
"""Of files: a model that ends so is one, whether it exists or not."""


def find_model_file(model: str | Path) -> Path | None:
    """Return the file that describes a model, of a folder its `config.json`; None where the text is a name.

    A known name is one even where a folder is called the same.

    Raises:
        InputFileError: A folder without `config.json`.
    """
    if isinstance(model, str) and {make_name(model)} & {*MODELS, *PRESETS}:
        return None
    path = Path(model)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputFileError(f"{show_path(path)}: a folder without config.json; name the model's file")
        return path / "config.json"
    is_file = isinstance(model, Path) or path.suffix in SUFFIXES or path.exists()
    return path if is_file else None


def make_name(text: str) -> str:
    """Return a model's name as it is known, however it was written."""
    return text.strip().lower().replace("_", "-")
