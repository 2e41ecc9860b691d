"""What an estimate or a plan assumes where neither flags nor files say, and what it read and does not count.

Both are printed with every estimate and plan: a size that nobody gave is no fact, and a feature that takes
memory and is not counted makes the estimate a bound.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from ....sentence import count
from ..shape import TrainingSetup
from .audit import list_not_counted
from .flags import ASSUMED_TYPE, MICRO_BATCHES, PLAIN_TRAINING, PURE, STATES_DROPOUT, Flags, TrainingRun
from .megatron import VOCABS, read_vocabulary

# Longer sequences than that are not assumed, however many positions a model has.
MOST_ASSUMED_TOKENS = 4096


def choose_sequence(positions: int | None) -> int:
    """Return the tokens of a sequence where nobody says: the positions of the model, 4,096 at most."""
    return min(positions or MOST_ASSUMED_TOKENS, MOST_ASSUMED_TOKENS)


class _Assumption(NamedTuple):
    # Flags of which any says it.
    flags: tuple[str, ...]
    describe: Callable[[TrainingSetup], str]


def _describe_vocabulary(flags: Flags) -> str:
    kind = flags.find_word("tokenizer-type", "")
    why = f"that of {kind}" if kind in VOCABS else "GPT-2's"
    return f"a vocabulary of {read_vocabulary(flags):,} ({why})"


_ASSUMPTIONS = (
    _Assumption(("seq-length",), lambda setup: f"sequences of {setup.seq_length:,} tokens"),
    _Assumption(
        ("micro-batch-size",),
        lambda setup: f"micro-batches of {count(setup.micro_batch_size, 'sequence')}",
    ),
    _Assumption(
        ("global-batch-size", MICRO_BATCHES),
        lambda setup: f"{count(setup.micro_batches, 'micro-batch')} in a step",
    ),
    _Assumption(
        ("attention-backend", "use-flash-attn", "transformer-impl"),
        lambda setup: f"{setup.attention} attention",
    ),
)


def list_setup_assumptions(setup: TrainingSetup, flags: Flags) -> Iterator[str]:
    """Yield what is assumed of model, batch, kernels and numbers; `flags` are all that were given."""
    if (kind := flags.find_text(ASSUMED_TYPE)) is not None:
        yield f"a model of type {kind} (the file has no model_type)"
    for names, describe in _ASSUMPTIONS:
        if not any(flags.has(name) for name in names):
            yield describe(setup)
    # A model that is known by its name, or from a table of its sizes, has a vocabulary.
    if flags.has("hidden-size") and not (flags.has("vocab-size") or flags.has("padded-vocab-size")):
        yield _describe_vocabulary(flags)
    if flags.is_on(PLAIN_TRAINING) and (predicting := flags.find_count("mtp-num-layers", 0)):
        # A checkpoint has them, and a training may leave them out (that of transformers does).
        yield f"training also {count(predicting, 'layer')} for tokens beyond the next"
    if flags.is_on(PLAIN_TRAINING):
        # A given precision is a flag of ours, whatever it is.
        words = ["in bf16"] if setup.numbers.weight_bytes == 2 and not flags.has(PURE) else []
        if not flags.is_on(STATES_DROPOUT):
            words.append("with dropout" if setup.has_hidden_dropout else "without dropout")
        if words:
            yield f"training {' '.join(words)}"
    elif not flags.has("bf16") and not flags.has("fp16"):
        yield "training in fp32"


def list_assumptions(run: TrainingRun, flags: Flags, *, has_ranks: bool, has_gpu: bool) -> tuple[str, ...]:
    """Return what an estimate assumes, each as a few words.

    Args:
        run: As it was read.
        flags: All that were given, by flags and files, without defaults of ours.
        has_ranks: Whether the number of ranks was given.
        has_gpu: Whether the GPU was.
    """
    return tuple(_list_assumptions(run, flags, has_ranks=has_ranks, has_gpu=has_gpu))


def _list_assumptions(run: TrainingRun, flags: Flags, *, has_ranks: bool, has_gpu: bool) -> Iterator[str]:
    if not has_ranks:
        yield count(run.layout.world_size, "rank")
    yield from list_setup_assumptions(run.setup, flags)
    if run.setup.has_nf4_weights and run.shape.experts is not None:
        bits = 8 * run.setup.numbers.weight_bytes
        yield f"routed experts in {bits} bits, as bitsandbytes converts nn.Linear and no 3-D parameters"
    if not has_gpu:
        yield f"workspaces of {run.setup.gpu.upper()}"


def name_assumptions(run: TrainingRun, flags: Flags, *, has_ranks: bool, has_gpu: bool) -> TrainingRun:
    """Return a run with what it assumes and does not count; arguments as of `list_assumptions`."""
    return msgspec.structs.replace(
        run,
        assumptions=list_assumptions(run, flags, has_ranks=has_ranks, has_gpu=has_gpu),
        not_counted=list_not_counted(flags),
    )
