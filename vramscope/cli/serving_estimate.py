"""What `vramscope estimate --serve` reads and prints."""

from argparse import Namespace
from pathlib import Path

from vramscope.analyzers.planning.serving import (
    PRECISIONS,
    ServedModel,
    ServingReport,
    ServingSetup,
    choose_batches,
    describe_served_preset,
    estimate_serving,
    names_served_type,
    read_served_model,
)
from vramscope.engine.errors import InputFileError, Setting, SettingError, UsageError
from vramscope.engine.files.base.input_file import show_path
from vramscope.engine.files.run_config import read_run_config
from vramscope.engine.units import format_share
from vramscope.planning.model_graph import check_is_decoder, find_model_file

from .estimating import find_card
from .frame.emit import emit_fitted, emit_json
from .frame.flags import choose_fit_code
from .frame.settings import read_settings

# Tokens of a sequence where a model's description does not say how many it has positions for.
USUAL_SEQUENCE = 8192
USUAL_UTILIZATION = 0.9
CACHE_BYTES = {"fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4}


def print_serving(arguments: Namespace) -> int:
    report = make_serving(arguments)
    does_fit = None if report.pool is None else report.pool.does_fit
    if arguments.json:
        emit_json(report)
        return choose_fit_code(arguments, does_fit=does_fit)
    from vramscope.exporters.serving.estimate import describe_serving

    emit_fitted(read_settings(arguments), lambda width: describe_serving(report, width))
    return choose_fit_code(arguments, does_fit=does_fit)


def make_serving(arguments: Namespace) -> ServingReport:
    model, is_precision_assumed = _read_model(arguments)
    card = find_card(arguments.gpu)
    capacity = None if card is None else card.memory_bytes
    if arguments.capacity is not None:
        capacity = arguments.capacity
    setup, assumptions = _choose_setup(arguments, model, capacity)
    if is_precision_assumed:
        assumptions = (*assumptions, f"weights and activations in {PRECISIONS['bf16'].name}")
    return estimate_serving(
        model,
        setup,
        name=Path(arguments.model).name,
        capacity_bytes=capacity,
        context_bytes=arguments.context,
        gpu=None if card is None else card.kind,
        assumptions=assumptions,
    )


def _read_model(arguments: Namespace) -> tuple[ServedModel, bool]:
    """Return the model, and whether neither a flag nor its file says in which type it is served."""
    precision = None if arguments.precision is None else PRECISIONS[arguments.precision]
    path = find_model_file(arguments.model)
    if path is None:
        name = check_is_decoder(arguments.model.strip())
        return describe_served_preset(name, precision or PRECISIONS["bf16"]), precision is None
    config = read_run_config(path)
    if config.kind != "hugging_face":
        raise SettingError(
            f"{show_path(path)}: a configuration of training; ",
            Setting("--serve"),
            " expected the config.json of a model (Hugging Face), or a name",
        )
    try:
        model = read_served_model(config.values, precision)
    except UsageError as error:
        raise InputFileError(f"{show_path(path)}: {error}") from error
    return model, precision is None and not names_served_type(config.values)


def _choose_setup(
    arguments: Namespace, model: ServedModel, capacity_bytes: int | None
) -> tuple[ServingSetup, tuple[str, ...]]:
    """Return the setup, and what of it no flag gave."""
    assumptions = []
    sequence = arguments.seq
    if sequence is None:
        sequence = model.positions or USUAL_SEQUENCE
        why = "as many as the model has positions" if model.positions else "the model's positions are unknown"
        assumptions.append(f"{sequence:,} tokens in a sequence ({why})")
    elif sequence < 1:
        raise SettingError(Setting("--seq"), f" is {sequence}; expected at least 1 token")
    elif 0 < (most := model.shape.learned_positions) < sequence:
        raise SettingError(
            Setting("--seq"),
            f" is {sequence}, but the model learns {most} positions; expected at most {most} tokens",
        )
    batches = choose_batches(capacity_bytes)
    if arguments.batched_tokens is None:
        assumptions.append(f"{batches.tokens:,} tokens in a forward pass")
    if arguments.max_seqs is None:
        assumptions.append(f"{batches.sequences:,} sequences at once (vLLM's defaults for such a device)")
    if arguments.utilization is None:
        assumptions.append(f"{format_share(USUAL_UTILIZATION)} of the device for the server")
    setup = ServingSetup(
        tensor=1 if arguments.tp is None else arguments.tp,
        pipeline=1 if arguments.pp is None else arguments.pp,
        sequence=sequence,
        cache_bytes=model.cache_bytes if arguments.cache_type is None else CACHE_BYTES[arguments.cache_type],
        batched_tokens=arguments.batched_tokens or batches.tokens,
        sequences=arguments.max_seqs or batches.sequences,
        utilization=arguments.utilization or USUAL_UTILIZATION,
    )
    return setup, tuple(assumptions)
