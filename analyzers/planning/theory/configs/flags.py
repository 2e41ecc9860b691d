"""Flags of a run by the names of another program: words, numbers and switches under one name each."""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from .....engine.errors import UsageError
from ..shape import ModelShape, ParallelLayout, TrainingSetup

# Greater numbers than any size of a model or batch.
MOST = 10**12
# PyTorch's own layers, whose attention is fused: a `transformer-impl` that Megatron-LM does not have.
PYTORCH = "pytorch"


# One of so many layers is recomputed: an option of torchtitan, not of Megatron-LM.
RECOMPUTE_EVERY = "recompute-every"
# Micro-batches of one data rank, where there is no global batch; no flag of Megatron-LM.
MICRO_BATCHES = "micro-batches"
# No flag of Megatron-LM either: its script for BERT decides that the model is BERT.
BERT = "is-bert"
# No flag either: dropout and numbers are as usual, and nobody said so.
PLAIN_TRAINING = "assumes-plain-training"
# No flag either: the model's file says what dropout it is trained with.
STATES_DROPOUT = "states-dropout"
# No flag either: the model type that was assumed, as the model's file has none.
ASSUMED_TYPE = "assumed-model-type"


# No flags either: norms of a layer, and scores that a head learns (and the bias of a router), by the family.
NORMS = "norms-of-a-layer"
SINKS = "has-sinks"
# Of our command line: rank of adapters, weights of 4 bits, a model trained in the format it was loaded in.
ADAPTER_RANK = "adapter-rank"
NF4 = "nf4-weights"
PURE = "pure-bf16"


# What is missing for models of other kinds, by the beginnings of their names.
_MISSING = (
    (
        (
            "t5",
            "mt5",
            "umt5",
            "switch_transformers",
            "bart",
            "mbart",
            "pegasus",
            "marian",
            "whisper",
            "retro",
        ),
        "an encoder next to the decoder, with attention from one to the other, is not modelled",
    ),
    (
        (
            "hybrid",
            "mamba",
            "nemotron_h",
            "jamba",
            "zamba",
            "bamba",
            "falcon_h1",
            "rwkv",
            "granitemoehybrid",
        ),
        "layers with a state in place of attention are not modelled",
    ),
    (
        ("qwen3_next", "qwen3_5"),
        "layers of gated delta nets in place of attention, and the gate on the output of the others, are not "
        "modelled",
    ),
    (
        ("kimi_linear",),
        "layers of Kimi Delta Attention (a state with a gate for each channel) are not modelled",
    ),
    (
        (
            "multimodal",
            "vlm",
            "llava",
            "idefics",
            "paligemma",
            "qwen2_vl",
            "qwen2_5_vl",
            "qwen3_vl",
        ),
        "a vision tower is not modelled",
    ),
    (
        ("gemma3n",),
        "embeddings of each layer, several predictions of the hidden state (AltUp), low-rank residuals "
        "(LAuReL) and layers that share keys are not modelled",
    ),
    (("mllama",), "layers that attend to a picture are not modelled"),
    (("deepseek_v32",), "an index that chooses keys is not modelled"),
    (("lfm2",), "layers of short convolutions in place of attention are not modelled"),
    (("minimax",), "layers of lightning attention are not modelled"),
    (("llama4",), "layers with attention in chunks, and a mixture in some of the layers, are not modelled"),
)
OTHER_WAY = "`vramscope estimate --factory` estimates a step of your own code, of any model"


def find_missing(kind: str) -> str | None:
    """Return what is missing to estimate models of a kind; None for a kind that is not known to lack it."""
    return next((missing for names, missing in _MISSING if kind.startswith(names)), None)


class Flags:
    """Named values; `--hidden-size`, `hidden-size` and `hidden_size` are one name."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = {name.lstrip("-").replace("_", "-").lower(): value for name, value in values.items()}
        # A file of flags may have variables of the environment too, which are in capitals.
        self.names = tuple(
            name.lstrip("-").replace("_", "-").lower() for name in values if not name.isupper()
        )

    def has(self, name: str) -> bool:
        return self._values.get(name) not in (None, "", "None")

    def is_on(self, name: str) -> bool:
        value = self._values.get(name)
        return value not in (None, False, 0, "", "None") and str(value).lower() not in ("false", "0")

    def is_off(self, name: str) -> bool:
        """Return whether a feature that is on by default is turned off.

        On a command line `--no-NAME` does so, or `--disable-NAME`; where the program prints its arguments,
        NAME itself is false.
        """
        switches = (f"no-{name}", f"disable-{name.removeprefix('add-')}")
        return any(self.is_on(switch) for switch in switches) or (self.has(name) and not self.is_on(name))

    def find_word(self, name: str, default: str) -> str:
        return str(self._values[name]).lower() if self.has(name) else default

    def find_number(self, name: str, default: float) -> float:
        """Return a number, else raise `UsageError`."""
        value = self._values.get(name)
        if not self.has(name):
            return default
        try:
            number = float(str(value))
        except ValueError:
            raise UsageError(f"{name} is {value!r}; expected a number") from None
        if not -MOST <= number <= MOST:
            raise UsageError(f"{name} is {value!r}; expected a number up to {MOST:,}")
        return number

    def find_count(self, name: str, default: int) -> int:
        """Return a whole number, else raise `UsageError`."""
        number = self.find_number(name, default)
        if number != int(number):
            raise UsageError(f"{name} is {number}; expected a whole number")
        return int(number)

    def get_count(self, name: str, *others: str) -> int:
        """Return a required whole number, under one of its names.

        Raises:
            UsageError: No name is given, or its value is not a whole number.
        """
        for known in (name, *others):
            if self.has(known):
                return self.find_count(known, 0)
        raise UsageError(f"{name} is not given; expected the flag with a whole number")

    def find_words(self, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return words: a list, or one text with words parted by blanks or commas, in brackets or not."""
        value = self._values.get(name)
        if not self.has(name):
            return default
        if isinstance(value, list):
            return tuple(str(word) for word in value)
        return tuple(re.sub(r"[\[\]'\",]", " ", str(value)).split())

    def find_section(self, name: str) -> dict[str, object]:
        """Return the values of a section; empty where the name has none."""
        value = self._values.get(name)
        return {str(key): it for key, it in value.items()} if isinstance(value, dict) else {}

    def find_text(self, name: str) -> str | None:
        return str(self._values[name]) if self.has(name) else None


# What a feature that is not counted does to the memory of a rank.
Effect = Literal["more", "less", "unknown"]


class NotCounted(msgspec.Struct, frozen=True, kw_only=True):
    """A flag that changes memory, was read, and is not in the estimate."""

    flag: str
    feature: str
    effect: Effect
    """Whether the run needs more than the estimate, less, or either."""


class TrainingRun(msgspec.Struct, frozen=True, kw_only=True):
    """Model, layout, setup and name of a run."""

    name: str
    shape: ModelShape
    layout: ParallelLayout
    setup: TrainingSetup
    assumptions: tuple[str, ...] = ()
    """What was assumed, since neither flags nor files say it."""
    not_counted: tuple[NotCounted, ...] = ()
    """Flags that were read, change memory and are not in an estimate."""
