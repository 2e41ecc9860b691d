"""A model as a training framework or a model hub describes it: `config.json` and saved arguments."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ..errors import InputFileError
from .base.input_file import decode_text, locate_byte, read_input_file, show_path
from .base.toml_text import parse_toml
from .base.yaml_text import YamlError, parse_yaml

LIMIT_BYTES = 16 * 1024**2
_ARGUMENT = re.compile(r"^(?:\S{1,40}: ?)?[^\S\n]*+([a-z][a-z0-9_]*) \.{3,} (.*)$", re.MULTILINE)
_PADDED = re.compile(r"padded vocab \(size: \d+\) with \d+ dummy tokens \(new size: (\d+)\)")
_YAML_LINE = re.compile(r"^\s*(?:\"([^\"]+)\"|'([^']+)'|([\w.-]+))\s*:(?:\s+(.*))?$")

ConfigKind: TypeAlias = Literal["hugging_face", "megatron", "nemo", "galvatron", "torchtitan"]
_OF_DEEPSPEED = frozenset(("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"))


class RunConfig(msgspec.Struct, frozen=True):
    """A configuration: which tool wrote it, and its values as they stand."""

    kind: ConfigKind
    values: dict[str, object]


def read_run_config(path: Path) -> RunConfig:
    data = read_input_file(path, LIMIT_BYTES)
    text = decode_text(data, path, "a configuration")
    if text.lstrip().startswith("{"):
        return _name_kind(path, _read_json(path, data))
    if path.suffix.lower() == ".toml":
        return RunConfig("torchtitan", parse_toml(text, path))
    arguments: dict[str, object] = {name: value.strip() for name, value in _ARGUMENT.findall(text)}
    if "num_layers" in arguments:
        return RunConfig("megatron", _add_vocab(arguments, text))
    config = _name_kind(path, _read_yaml(path, text))
    # NeMo has Megatron-LM's names in a section, and names run, model and optimizer alike.
    if config.kind == "megatron" and re.search(r"^model:\s*(?:#.*)?$", text, re.MULTILINE):
        return RunConfig("nemo", _read_sections(path, text))
    return config


def _read_sections(path: Path, text: str) -> dict[str, object]:
    try:
        found = parse_yaml(text).value
    except YamlError as error:
        raise InputFileError(f"{show_path(path)}: {error}") from error
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}


def _add_vocab(arguments: dict[str, object], text: str) -> dict[str, object]:
    """Add the size of the vocabulary, which the tokenizer prints after the arguments."""
    told = _PADDED.search(text)
    if told is None or str(arguments.get("padded_vocab_size", "None")) != "None":
        return arguments
    return {**arguments, "padded_vocab_size": told.group(1)}


def _read_json(path: Path, data: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError) as error:
        found = re.search(r"byte (\d+)", str(error))
        place = f"{locate_byte(data, int(found.group(1)))}: " if found else ""
        raise InputFileError(f"{show_path(path)}: {place}{error}; expected a JSON object") from error


def _read_yaml(path: Path, text: str) -> dict[str, object]:
    """Read the scalars of a YAML file of at most two levels, both into one mapping; models need no more."""
    values: dict[str, object] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        bare = re.sub(r"(^|\s)#.*$", "", line).rstrip()
        if not bare or bare == "---" or bare.lstrip().startswith("- "):
            continue
        match = _YAML_LINE.match(bare)
        if match is None:
            raise InputFileError(f"{show_path(path)}: line {number}: expected `name: value`")
        name = next(part for part in match.groups()[:3] if part is not None)
        value = (match.group(4) or "").strip().strip("'\"")
        if value not in ("", "null", "~"):
            values[name.lstrip("-")] = value
    return values


def _name_kind(path: Path, values: dict[str, object]) -> RunConfig:
    names = {name.lstrip("-").replace("-", "_") for name in values}
    nested = values.get("MODEL_ARGS") or values.get("arguments")
    if isinstance(nested, dict):
        return _name_kind(path, {str(name): value for name, value in nested.items()})
    if "num_hidden_layers" in names or "model_type" in names:
        return RunConfig("hugging_face", values)
    if {"gated_linear_unit", "model_size", "n_embd", "n_layer", "dim"} & names:
        return RunConfig("galvatron", values)
    if {"num_layers", "hidden_size"} <= names:
        return RunConfig("megatron", values)
    if names & _OF_DEEPSPEED:
        raise InputFileError(f"{show_path(path)}: {_translate_deepspeed(values)}")
    raise InputFileError(
        f"{show_path(path)}: describes no model; expected num_layers or num_hidden_layers, and "
        "hidden_size, as in a Hugging Face config.json, Megatron-LM's arguments, or a configuration of "
        "Galvatron"
    )


# Values of DeepSpeed's configuration and the flags of ours that say the same.
_DEEPSPEED_COUNTS = {
    "train_micro_batch_size_per_gpu": "--micro-batch",
    "gradient_accumulation_steps": "--micro-batches",
    "train_batch_size": "--global-batch",
}
# Values that change no memory.
_DEEPSPEED_QUIET = frozenset(
    (
        *("optimizer", "scheduler", "gradient_clipping", "steps_per_print", "wall_clock_breakdown"),
        *("prescale_gradients", "wandb", "tensorboard", "csv_monitor", "flops_profiler", "bf16", "fp16"),
    )
)


def _translate_deepspeed(values: dict[str, object]) -> str:
    """Return what to give in place of a configuration of DeepSpeed, and which of its values have no flag."""
    zero = _read_section(values, "zero_optimization")
    flags = [f"--zero {zero['stage']}"] if isinstance(zero.get("stage"), int) else []
    if _read_section(zero, "offload_optimizer").get("device") in ("cpu", "nvme"):
        flags.append("--offload optimizer")
    for name in ("bf16", "fp16"):
        if _read_section(values, name).get("enabled") is True:
            flags.append(f"--precision {name}")
    flags += [
        f"{flag} {values[name]}"
        for name, flag in _DEEPSPEED_COUNTS.items()
        if isinstance(values.get(name), int)
    ]
    is_read = {"zero_optimization", *_DEEPSPEED_QUIET}
    is_read |= {name for name in _DEEPSPEED_COUNTS if isinstance(values.get(name), int)}
    unread = [name for name in values if name not in is_read]
    unread += [f"zero_optimization.{name}" for name in zero if name not in ("stage", "offload_optimizer")]
    words = "a configuration of DeepSpeed describes no model; give --model with a name or a config.json"
    words += f", and {' '.join(flags)}" if flags else ""
    return f"{words}; without a flag: {', '.join(unread)}" if unread else words


def _read_section(values: dict[str, object], name: str) -> dict[str, object]:
    section = values.get(name)
    return {str(key): value for key, value in section.items()} if isinstance(section, dict) else {}


MODEL_LIMIT_BYTES = 4 << 20
_WORDS: Mapping[str, object] = {"true": True, "false": False, "null": None, "~": None, "": None}


def read_model_config(path: Path) -> dict[str, object]:
    data = read_input_file(path, MODEL_LIMIT_BYTES)
    text = decode_text(data, path, "a model's config.json")
    if path.suffix in (".yaml", ".yml"):
        return _read_flat_yaml(text, path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputFileError(
            f"{show_path(path)}: not JSON: {error}; expected a model's config.json"
        ) from None
    if not isinstance(content, dict):
        raise InputFileError(f"{show_path(path)}: expected a JSON object with a model's sizes")
    return content


def _read_flat_yaml(text: str, path: Path) -> dict[str, object]:
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
