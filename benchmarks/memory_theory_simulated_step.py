"""A step of Megatron-LM's own code for `vramscope estimate --factory`: see memory_theory_simulated.py.

The case is in VRAMSCOPE_BENCH_CASE. Megatron-LM runs as it is: its arguments, process groups, data-parallel
wrapper, optimizer, schedules and `train_step`. What is replaced belongs to packages and kernels that a
machine without a GPU lacks: modules of Triton, helpers of data sets that a compiler builds, norms with
sequence parallelism (Apex has them), and the choice of experts, which is even.
"""

import contextlib
import functools
import json
import logging
import os
import sys
import typing
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

CASE = "VRAMSCOPE_BENCH_CASE"
# They import Triton, and nothing of them runs in these cases.
_LEFT_OUT = ("megatron.core.ssm.ops", "megatron.core.transformer.moe.ops.paged_stash")


class _Empty(ModuleType):
    """A module whose names are all None."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _LeavingOut(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith(_LEFT_OUT) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def make_step() -> Callable[[], None]:
    """Return one step of the case; each writes the bytes allocated behind it, and at its peak."""
    case = json.loads(os.environ[CASE])
    _prepare(Path(case["checkout"]), case["family"])
    sys.argv = ["pretrain", *list_words(case["flags"])]
    with contextlib.redirect_stdout(None):
        return _build(case["family"], Path(case["output"]))


def list_words(flags: dict[str, object]) -> list[str]:
    """Return flags as Megatron-LM's command line has them."""
    words: list[str] = []
    for name, value in flags.items():
        values = value if isinstance(value, list) else [] if value is True else [value]
        words += [f"--{name}", *map(str, values)]
    return words


def _prepare(checkout: Path, family: str) -> None:
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    if not hasattr(typing, "override"):
        setattr(typing, "override", lambda function: function)  # noqa: B010 - Python 3.11 lacks it
    sys.path[:0] = [str(checkout), str(checkout / "examples" / family)]
    sys.meta_path.insert(0, _LeavingOut())


def _build(family: str, output: Path) -> Callable[[], None]:
    initialize: Any = import_module("megatron.training.initialize")
    training = import_module("megatron.training.training")
    initialize._compile_dependencies = lambda: None
    import_module("megatron.core.transformer.torch_norm").WrappedTorchNorm.__new__ = _make_norm
    router: Any = import_module("megatron.core.transformer.moe.router")
    router.topk_routing_with_score_function = functools.partial(
        _route_evenly, router.topk_routing_with_score_function
    )
    script, provider = _find_script(family)
    args = import_module("megatron.training.arguments").parse_and_validate_args()
    initialize.initialize_megatron()
    groups = import_module("megatron.core.process_groups_config").ProcessGroupCollection
    kind = import_module("megatron.core.enums").ModelType.encoder_or_decoder
    model, optimizer, scheduler = training.setup_model_and_optimizer(
        kind, provider, pg_collection=groups.use_mpu_process_groups()
    )
    for chunk in model:
        chunk.train()
    config = import_module("megatron.core.utils").get_model_config(model[0])
    run = import_module("megatron.core.pipeline_parallel").get_forward_backward_func()
    wrap = import_module("megatron.core.rerun_state_machine").RerunDataIterator
    batches = wrap(_make_batches(family, args))
    peak = 0
    original = optimizer.step

    def step_optimizer() -> Any:
        # Up to here: without Apex the optimizer is PyTorch's own, whose temporaries are as large as all
        # parameters; Apex's and Transformer Engine's have none.
        nonlocal peak
        peak = torch.cuda.max_memory_allocated()
        return original()

    optimizer.step = step_optimizer

    def step() -> None:
        torch.cuda.reset_peak_memory_stats()
        with contextlib.redirect_stdout(None):
            training.train_step(script.forward_step, batches, model, optimizer, scheduler, config, run)
        output.write_text(json.dumps([torch.cuda.memory_allocated(), peak]))

    return step


def _find_script(family: str) -> tuple[ModuleType, Callable[..., Any]]:
    if family == "bert":
        specs = import_module("megatron.core.models.bert.bert_layer_specs")
        # The script imports this name, which needs Transformer Engine, with `--spec local` too.
        specs.__dict__["bert_layer_with_transformer_engine_spec"] = specs.bert_layer_local_spec
        script = import_module("pretrain_bert")
        return script, script.model_provider
    script = import_module("pretrain_gpt")
    return script, functools.partial(script.model_provider, import_module("gpt_builders").gpt_builder)


def _make_norm(_: object, config: Any, hidden_size: int, eps: float = 1e-5, **__: object) -> Any:
    kind = torch.nn.LayerNorm if config.normalization == "LayerNorm" else torch.nn.RMSNorm
    norm = kind(hidden_size, eps=eps)
    for parameter in norm.parameters():
        parameter.sequence_parallel = config.sequence_parallel
    norm.returns_residual = False
    return norm


def _route_evenly(original: Callable[..., Any], logits: Any, topk: int, **options: object) -> Any:
    """Route each token to the next experts, so that all get as many rows, and their number is known."""
    tokens, experts = logits.shape
    numbers = torch.arange(tokens * topk, device=logits.device).view(tokens, topk)
    chosen = numbers % experts
    probabilities, routing = original(logits, topk, precomputed_indices=chosen, **options)
    ones = torch.ones(tokens, topk, device=logits.device, dtype=torch.bool)
    known = torch.zeros(tokens, experts, device=logits.device, dtype=torch.bool).scatter_(1, chosen, ones)
    routing.copy_(known)
    return probabilities, routing


def _make_batches(family: str, args: Any) -> Iterator[dict[str, Any]]:
    rows = args.micro_batch_size
    tokens = args.seq_length
    while True:
        ids = torch.zeros(rows, tokens, dtype=torch.long)
        if family == "bert":
            yield {
                **dict.fromkeys(("text", "types", "labels", "loss_mask"), ids),
                "is_random": torch.zeros(rows, dtype=torch.long),
                "padding_mask": torch.ones_like(ids),
            }
            continue
        yield {
            "tokens": ids,
            "labels": ids.clone(),
            "loss_mask": torch.ones(rows, tokens),
            "position_ids": torch.arange(tokens).expand(rows, tokens).contiguous(),
            "attention_mask": torch.zeros(rows, 1, tokens, tokens, dtype=torch.bool),
        }
