"""Arguments of Megatron-LM: the layout of the pipeline, and flags of uneven stages that say the same.

A layout such as `Et*11|(t*13|)*2,t*11L` lists stages in the order of the model: E the embedding, t a
transformer layer, L norm, head and loss (megatron/core/transformer/pipeline_parallel_layer_layout.py). The
older flags know three kinds of split: all stages alike; the embedding or the loss counted as a layer; the
first and the last stage of any size and those between alike (megatron/training/arguments.py).
"""

from collections.abc import Iterator
from itertools import groupby

from .split import PipelineSplit, check_decoder


def encode_megatron(split: PipelineSplit) -> bytes:
    """Return arguments for a command line, one a line; what follows `#` is for people.

    Raises:
        UsageError: The model is no decoder of like layers.
    """
    check_decoder(split, "Megatron-LM")
    lines = [
        f"--num-layers {sum(split.blocks)}",
        f"--pipeline-model-parallel-size {split.layout.pipeline}",
        f"--pipeline-model-parallel-layout '{write_layout(split)}'",
        *_list_batch(split),
        *(_list_degrees(split) if split.has_degrees else ()),
        "",
        *_describe_flags(split),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def write_layout(split: PipelineSplit) -> str:
    """Return the value of `--pipeline-model-parallel-layout`."""
    letters = {"embedding": "E", "transformer_block": "t", "output_head": "L"}
    words = []
    for stage in split.stages:
        runs = [(letters[kind], len(list(run))) for kind, run in groupby(stage) if kind in letters]
        words.append("".join(letter if times == 1 else f"{letter}*{times}" for letter, times in runs))
    *before, last = words
    text = ""
    for word, same in groupby(before):
        times = len(list(same))
        text += f"{word}|" if times == 1 else f"({word}|)*{times},"
    return text + last


def write_uneven_flags(split: PipelineSplit) -> tuple[str, ...] | None:
    """Return the flags that make this split without a layout, none where it is even; None where none can."""
    blocks = split.blocks
    pieces = split.layout.virtual_stages
    if split.stages[0][0] != "embedding" or split.stages[-1][-2:] != ("layer_norm", "output_head"):
        return None
    interleaved = (f"--num-virtual-stages-per-pipeline-rank {pieces}",) if pieces > 1 else ()
    share = max(blocks)
    missing = [share - count for count in blocks]
    if not any(missing[1:-1]) and max(missing) <= 1 and min(blocks[0], blocks[-1]) > 0:
        counted = ("embedding",) * missing[0] + ("loss",) * (missing[-1] if len(blocks) > 1 else 0)
        return interleaved + tuple(f"--account-for-{each}-in-pipeline-split" for each in counted)
    if pieces > 1 or len({*blocks[1:-1]}) > 1 or not all(blocks):
        return None
    return (
        f"--decoder-first-pipeline-num-layers {blocks[0]}",
        f"--decoder-last-pipeline-num-layers {blocks[-1]}",
    )


def _describe_flags(split: PipelineSplit) -> Iterator[str]:
    flags = write_uneven_flags(split)
    if flags is None:
        yield "# No flags of uneven stages make this split: it takes the layout."
    elif flags:
        yield "# Without the layout these make the same split:"
        yield f"# {' '.join(flags)}"
    else:
        yield "# The split is even: without the layout it is the same."


def _list_batch(split: PipelineSplit) -> Iterator[str]:
    yield f"--seq-length {split.setup.seq_length}"
    yield f"--micro-batch-size {split.setup.micro_batch_size}"
    yield f"--global-batch-size {split.global_batch}"


def _list_degrees(split: PipelineSplit) -> Iterator[str]:
    """Yield the degrees that are not 1, sharding and recomputation."""
    layout = split.layout
    setup = split.setup
    degrees = {"tensor": layout.tensor, "expert": layout.expert}
    yield from (f"--{name}-model-parallel-size {degree}" for name, degree in degrees.items() if degree > 1)
    if layout.context > 1:
        yield f"--context-parallel-size {layout.context}"
    if layout.expert > 1:
        yield f"--expert-tensor-parallel-size {layout.expert_shards}"
    if layout.is_sequence_parallel and layout.tensor > 1:
        yield "--sequence-parallel"
    yield from _list_sharding(setup.zero_stage)
    if setup.recompute == "selective":
        yield f"--recompute-granularity selective --recompute-modules {' '.join(setup.recomputed_modules)}"
    elif setup.recompute == "full":
        method = "uniform" if setup.recomputed_layers is None else "block"
        layers = setup.recompute_unit_layers if setup.recomputed_layers is None else setup.recomputed_layers
        yield f"--recompute-granularity full --recompute-method {method} --recompute-num-layers {layers}"


def _list_sharding(zero_stage: int) -> Iterator[str]:
    """Yield what shards states over data ranks: ZeRO-1 is the distributed optimizer."""
    if zero_stage == 1:
        yield "--use-distributed-optimizer"
    elif zero_stage:
        kinds = {2: "optim_grads", 3: "optim_grads_params"}
        yield f"--use-megatron-fsdp --data-parallel-sharding-strategy {kinds[zero_stage]}"
