"""Configurations of models: JSON, or the flat `key: value` lines that Galvatron's YAML consists of."""

import json
from collections.abc import Mapping
from pathlib import Path

from ..errors import InputFileError
from .base.input_file import decode_text, read_input_file, show_path

LIMIT_BYTES = 4 << 20
_WORDS: Mapping[str, object] = {"true": True, "false": False, "null": None, "~": None, "": None}


def read_model_config(path: Path) -> dict[str, object]:
    """Return the keys and values of a configuration.

    Raises:
        InputFileError: It cannot be read, or is neither JSON nor such lines; the text says where.
    """
    data = read_input_file(path, LIMIT_BYTES)
    text = decode_text(data, path, "a model's config.json")
    if path.suffix in (".yaml", ".yml"):
        return _read_lines(text, path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputFileError(
            f"{show_path(path)}: not JSON: {error}; expected a model's config.json"
        ) from None
    if not isinstance(content, dict):
        raise InputFileError(f"{show_path(path)}: expected a JSON object with a model's sizes")
    return content


def _read_lines(text: str, path: Path) -> dict[str, object]:
    config: dict[str, object] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split(" #")[0].rstrip()
        if not line or line.startswith(("#", "---")):
            continue
        key, colon, value = line.partition(":")
        if not colon or key != key.strip() or not key:
            raise InputFileError(
                f"{show_path(path)}, line {number}: {line.strip()[:60]!r} is not `key: value`; "
                "expected a flat YAML file with a model's sizes"
            )
        config[key] = _read_value(value.strip())
    return config


def _read_value(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text.strip("'\"")
