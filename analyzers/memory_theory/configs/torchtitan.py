"""Runs of torchtitan, from its TOML: sections `model`, `training`, `parallelism`, `activation_checkpoint`."""

from collections.abc import Mapping

from ....engine.errors import UsageError
from .flags import PYTORCH, Flags
from .hugging_face import flag_plain_training

_DEGREES = {
    "tensor-model-parallel-size": "tensor-parallel-degree",
    "pipeline-model-parallel-size": "pipeline-parallel-degree",
    "context-parallel-size": "context-parallel-degree",
    "expert-model-parallel-size": "expert-parallel-degree",
}


def name_torchtitan_model(config: Mapping[str, object]) -> str:
    """Return the name of the model: name and flavour, as `llama3-8b`.

    Raises:
        UsageError: The section `model` does not name one.
    """
    model = _read_section(config, "model")
    name, flavor = model.find_text("name"), model.find_text("flavor")
    if name is None or flavor is None:
        raise UsageError("the section [model] has no name and flavor; give them, or --model with a name")
    return f"{name.replace('_', '.')}-{flavor}"


def flag_torchtitan(config: Mapping[str, object]) -> dict[str, object]:
    """Return layout and batch as flags; weights are sharded by fully_shard unless replicated."""
    training, degrees = _read_section(config, "training"), _read_section(config, "parallelism")
    mode = _read_section(config, "activation-checkpoint").find_word("mode", "none")
    flags: dict[str, object] = {
        flag: degrees.find_count(name, 1) for flag, name in _DEGREES.items() if degrees.has(name)
    }
    flags |= {
        "seq-length": training.find_count("seq-len", 2048),
        "micro-batch-size": training.find_count("local-batch-size", training.find_count("batch-size", 8)),
        "sequence-parallel": True,
        "use-torch-fsdp2": True,
        "transformer-impl": PYTORCH,
        "attention-backend": "fused",
        "recompute-granularity": "full" if mode == "full" else "",
        **flag_plain_training(),
    }
    return flags


def count_torchtitan_data(config: Mapping[str, object]) -> int | None:
    """Return the data ranks; None where all that remain are meant."""
    degrees = _read_section(config, "parallelism")
    shard = degrees.find_count("data-parallel-shard-degree", -1)
    replicate = degrees.find_count("data-parallel-replicate-degree", 1)
    return None if shard < 1 else shard * replicate


def _read_section(config: Mapping[str, object], name: str) -> Flags:
    section = config.get(name.replace("-", "_"))
    return Flags(section if isinstance(section, dict) else {})
