"""Rows of a table of cases: columns, and Megatron-LM's flags where a row has them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import msgspec

from .....engine.errors import UsageError
from ..estimate import RankMemory, estimate_stages
from ..shape import GPUS, Gpu, Recompute
from .assumptions import name_assumptions
from .flags import BERT, PLAIN_TRAINING, Flags, TrainingRun, find_missing
from .megatron import read_megatron_run

# Columns that stand for a flag.
COLUMNS = {
    "num_layers": "num-layers",
    "hidden": "hidden-size",
    "heads": "num-attention-heads",
    "seq": "seq-length",
    "mbs": "micro-batch-size",
    "gbs": "global-batch-size",
    "tp": "tensor-model-parallel-size",
    "pp": "pipeline-model-parallel-size",
    "cp": "context-parallel-size",
    "ep": "expert-model-parallel-size",
    "layers_per_vstage": "num-layers-per-virtual-pipeline-stage",
    "dist_opt": "use-distributed-optimizer",
    "seq_parallel": "sequence-parallel",
    "recompute": "recompute-granularity",
    "bf16": "bf16",
    "transformer_impl": "transformer-impl",
    "vocab_size": "vocab-size",
}
# Columns that are on or off, and the words for it; "none" is as an empty cell.
_SWITCHES = ("dist_opt", "seq_parallel", "bf16")
_SWITCH_WORDS = {
    **dict.fromkeys(("true", "1", "1.0", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "0.0", "no", "off"), False),
    "none": None,
}
# Ranks of a case that does not say, where its degrees allow it: one node.
DEFAULT_WORLD_SIZE = 8
DEGREES = (
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "context-parallel-size",
    "expert-model-parallel-size",
)


def read_case(row: Mapping[str, str]) -> TrainingRun:
    """Read the run of one row: its `arguments`, else its plain columns.

    Raises:
        UsageError: Something in the row is missing or impossible.
    """
    family = row.get("family", "").lower()
    missing = find_missing(family)
    if missing is not None:
        raise UsageError(
            f"models of the family {family!r} cannot be estimated: {missing}; expected gpt, moe or bert"
        )
    flags = _read_flags(row)
    given = Flags({"world_size": row.get("world_size") or None})
    world_size = given.find_count("world-size", 0) if given.has("world-size") else _assume_world_size(flags)
    platform = row.get("platform", "").lower()
    # The longest name that fits: gb200 is no b200.
    named: list[Gpu] = sorted((name for name in GPUS if name in platform), key=len)
    run = read_megatron_run(
        flags,
        world_size=world_size,
        gpu=named[-1] if named else "h100",
        name=row.get("case", ""),
    )
    return name_assumptions(
        run, flags, has_ranks=given.has("world-size") or flags.has("world-size"), has_gpu=bool(named)
    )


def _assume_world_size(flags: Flags) -> int:
    """Return the ranks of a case that does not say: one node, or the fewest that its degrees divide."""
    if flags.has("world-size"):
        return flags.get_count("world-size")
    degrees = [max(1, flags.find_count(name, 1)) for name in DEGREES]
    tensor, pipeline, context, expert = degrees
    shared = max(1, flags.find_count("expert-tensor-parallel-size", tensor)) if expert > 1 else 1
    least = math.lcm(tensor * pipeline * context, pipeline * expert * shared)
    return DEFAULT_WORLD_SIZE if DEFAULT_WORLD_SIZE % least == 0 else least


def _read_flags(row: Mapping[str, str]) -> Flags:
    columns: dict[str, object] = {flag: row[column] for column, flag in COLUMNS.items() if row.get(column)}
    text = (row.get("arguments") or "").strip()
    if not text:
        columns |= {COLUMNS[name]: _read_switch(name, row[name]) for name in _SWITCHES if row.get(name)}
        columns = {flag: value for flag, value in columns.items() if value is not None}
    columns[BERT] = row.get("family", "").lower().startswith("bert")
    if row.get("kv_groups"):
        columns |= {"group-query-attention": True, "num-query-groups": row["kv_groups"]}
    if not text:
        return Flags({"bf16": True, PLAIN_TRAINING: "bf16" not in columns, **columns})
    try:
        given = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"arguments are not a JSON object of flags: {error}") from None
    # A size that a tokenizer decides is no flag; the table may have it nevertheless.
    known = {name: columns.get(name) for name in ("vocab-size", BERT)}
    return Flags({**known, **given})


def _read_switch(column: str, cell: str) -> bool | None:
    word = cell.strip().lower()
    if word not in _SWITCH_WORDS:
        raise UsageError(f"{column} is {cell.strip()[:40]!r}; expected true or false")
    return _SWITCH_WORDS[word]


# What to change in a run that does not fit, found by trying: one change first, then two and three.

MOST_CHANGES = 3
# Where the run's own ranks are not enough, at most so many times as many are tried.
MOST_RANKS = 8


class FittingChange(msgspec.Struct, frozen=True, kw_only=True):
    """Flags that together make a run fit, and the memory it would then need, estimated."""

    flags: tuple[str, ...]
    """Flags of `vramscope estimate` in place of those that were given, such as `--zero 1`."""
    world_size: int
    peak_bytes: int


class _Choice(NamedTuple):
    """One value for everything that may change; the run's own values are a choice too."""

    zero: int
    is_sequence_parallel: bool
    recompute: Recompute
    sequences: int
    tensor: int
    pipeline: int


_FLAGS = {
    "zero": "--zero",
    "recompute": "--recompute",
    "sequences": "--micro-batch",
    "tensor": "--tp",
    "pipeline": "--pp",
}
# Breaks ties only: what costs less time is tried first.
_COSTS = {
    "zero": 1.0,
    "is_sequence_parallel": 0.5,
    "recompute": 3.0,
    "sequences": 2.0,
    "tensor": 4.0,
    "pipeline": 4.0,
}


def find_fitting_changes(
    run: TrainingRun,
    limit_bytes: float,
    measure: Callable[[Sequence[RankMemory]], int],
    *,
    most: int = 3,
) -> tuple[FittingChange, ...]:
    """Return the smallest changes with which the fullest rank stays within a limit.

    Fewest ranks first, then fewest changes: ZeRO stage, sequence parallelism, recompute, sequences of a
    micro-batch, TP, PP. The global batch stays. Changes that contain one already found are left out.
    `measure` returns the peak that counts, from the memory of all stages.
    """
    found: list[tuple[set[str], FittingChange]] = []
    for choice, changed in _order_choices(run):
        if any(known <= set(changed) for known, _ in found):
            continue
        tried = _apply(run, choice)
        try:
            peak = measure(estimate_stages(tried.shape, tried.layout, tried.setup))
        except UsageError:
            continue
        if peak <= limit_bytes:
            flags = _name_flags(run, tried, choice, changed)
            change = FittingChange(flags=flags, world_size=tried.layout.world_size, peak_bytes=peak)
            found.append((set(changed), change))
        if len(found) == most:
            break
    return tuple(change for _, change in found)


def _order_choices(run: TrainingRun) -> list[tuple[_Choice, tuple[str, ...]]]:
    now = _read_choice(run)
    ordered = []
    for choice in _list_choices(run, now):
        changed = tuple(name for name in now._fields if getattr(choice, name) != getattr(now, name))
        if 0 < len(changed) <= MOST_CHANGES and not (choice.is_sequence_parallel and choice.tensor == 1):
            ranks = _apply(run, choice).layout.world_size
            cost = sum(_COSTS[name] for name in changed)
            steps = choice.tensor * choice.pipeline + choice.zero - choice.sequences
            ordered.append(((ranks, len(changed), cost, steps), choice, changed))
    ordered.sort(key=lambda entry: entry[0])
    most = MOST_RANKS * run.layout.world_size
    return [(choice, changed) for (ranks, *_), choice, changed in ordered if ranks <= most]


def _read_choice(run: TrainingRun) -> _Choice:
    layout = run.layout
    setup = run.setup
    return _Choice(
        setup.zero_stage,
        layout.is_sequence_parallel,
        setup.recompute,
        setup.micro_batch_size,
        layout.tensor,
        layout.pipeline,
    )


def _list_choices(run: TrainingRun, now: _Choice) -> Iterator[_Choice]:
    stages = range(now.zero, 4) if run.layout.data > 1 else (now.zero,)
    recomputes: list[Recompute] = [now.recompute]
    if run.setup.attention == "unfused" and now.recompute == "none":
        recomputes.append("selective")
    if now.recompute != "full":
        recomputes.append("full")
    sequences = [size for size in range(1, now.sequences + 1) if now.sequences % size == 0]
    tensors = [now.tensor * 2**power for power in range(4)]
    layout = run.layout
    is_even = (layout.first_stage_layers, layout.last_stage_layers, layout.stage_layers) == (None, None, None)
    pipelines = [now.pipeline * 2**power for power in range(4 if is_even else 1)]
    parallels = {now.is_sequence_parallel, True}
    for values in product(stages, parallels, recomputes, sequences, tensors, pipelines):
        yield _Choice(*values)


def _apply(run: TrainingRun, choice: _Choice) -> TrainingRun:
    """Return the run with a choice: data ranks make room for TP and PP, and micro-batches for both."""
    layout = run.layout
    setup = run.setup
    ranks = layout.data * layout.tensor * layout.pipeline
    data, rest = divmod(ranks, choice.tensor * choice.pipeline)
    data = data if data and not rest else 1
    sequences = layout.data * setup.micro_batches * setup.micro_batch_size
    return msgspec.structs.replace(
        run,
        layout=msgspec.structs.replace(
            layout,
            tensor=choice.tensor,
            pipeline=choice.pipeline,
            data=data,
            is_sequence_parallel=choice.is_sequence_parallel,
        ),
        setup=msgspec.structs.replace(
            setup,
            zero_stage=choice.zero,
            keeps_gathered_weights=choice.zero > 1
            if choice.zero != setup.zero_stage
            else setup.keeps_gathered_weights,
            recompute=choice.recompute,
            micro_batch_size=choice.sequences,
            micro_batches=max(1, sequences // (data * choice.sequences)),
        ),
    )


def _name_flags(
    run: TrainingRun, tried: TrainingRun, choice: _Choice, changed: tuple[str, ...]
) -> tuple[str, ...]:
    flags = [f"{_FLAGS[name]} {getattr(choice, name)}" for name in changed if name in _FLAGS]
    flags += ["--sp"] if "is_sequence_parallel" in changed else []
    flags += [f"--dp {tried.layout.data}"] if tried.layout.data != run.layout.data else []
    return tuple(flags)
