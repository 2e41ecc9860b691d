"""Models of Galvatron, from its YAML of today and its older JSON, as flags of Megatron-LM."""

from collections.abc import Mapping

from .flags import Flags
from .hugging_face import flag_hugging_face, flag_plain_training

_SAME = (
    "hidden-size",
    "num-layers",
    "num-attention-heads",
    "num-query-groups",
    "ffn-hidden-size",
    "kv-channels",
    "vocab-size",
    "normalization",
    "max-position-embeddings",
    "position-embedding-type",
    "make-vocab-size-divisible-by",
    "num-experts",
    "moe-router-topk",
    "moe-ffn-hidden-size",
)
"""Names that both programs give a size."""


def flag_galvatron(config: Mapping[str, object]) -> dict[str, object]:
    """Return a model's configuration as flags.

    The YAML has Megatron-LM's names. The older JSON has those of GPT-2 (`n_embd`) or of Llama (`dim`), whose
    inner size follows from `multiple_of` where it is not given.
    """
    values = Flags(config)
    if not values.has("hidden-size"):
        flags = flag_hugging_face(config)
        if flags["ffn-hidden-size"] is None and values.has("dim"):
            flags["ffn-hidden-size"] = _size_inner(values)
        return flags
    return {
        **{name: values.find_text(name) for name in _SAME if values.has(name)},
        "group-query-attention": True,
        "swiglu": values.is_on("gated-linear-unit"),
        "disable-bias-linear": not values.is_on("add-bias-linear"),
        "add-qkv-bias": values.is_on("add-qkv-bias"),
        "untie-embeddings-and-output-weights": values.is_on("untie-embeddings-and-output-weights"),
        "max-position-embeddings": values.find_count("max-position-embeddings", 1024),
        **flag_plain_training(),
    }


def _size_inner(values: Flags) -> int:
    """Return two thirds of 4 h, rounded up as Llama does (facebookresearch/llama, llama/model.py)."""
    multiple = values.find_count("multiple-of", 256)
    return -(-int(8 * values.get_count("dim") / 3) // multiple) * multiple
