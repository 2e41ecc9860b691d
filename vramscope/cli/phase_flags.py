"""Flags that say what is trained by phase, under our names and under the original's with underscores."""

from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Callable

from vramscope.engine.errors import UsageError
from vramscope.engine.model.phase_memory import PRIVACY_MODES, PhaseTraining

from .frame.flag_words import add_old_flag

_DEFAULTS = PhaseTraining()
DEFAULT_SIZE = "small"
"""Preset of one run by phase, as of the script that `vramscope phases` carries on."""
_HUGGING_FACE = "hf:"


def add_model_flags(parser: ArgumentParser, *, default_size: str = DEFAULT_SIZE) -> None:
    """Add the flags that say which model is trained; `default_size` is the preset where none is named."""
    group = parser.add_argument_group("model")
    words = f"a LLaMA: tiny, small, medium, 1b or 3b (default {default_size})"
    add_flag(group, "--model-size", metavar="NAME", help=words)
    parser.set_defaults(default_size=default_size)
    group.add_argument("--model", metavar="hf:DIR", help="a folder with config.json, made by transformers")
    group.add_argument("--factory", metavar="MODULE:FUNCTION", help="your own, made by this function")


def add_training_flags(parser: ArgumentParser) -> None:
    """Add the flags that say how it is trained; length, steps and mode of privacy are the verb's own."""
    group = parser.add_argument_group("training")
    for name, metavar, kind, text in (
        ("batch-size", "N", int, "sequences of a step"),
        ("learning-rate", "X", float, "of the optimizer"),
        ("noise-multiplier", "X", float, "of DP-SGD"),
        ("max-grad-norm", "X", float, "to which the gradient of a sample is clipped"),
        ("warmup", "N", int, "steps before the first that is told"),
        ("seed", "N", int, "of weights, tokens and noise"),
    ):
        default = getattr(_DEFAULTS, _name_field(name))
        add_flag(
            group,
            f"--{name}",
            metavar=metavar,
            type=kind,
            default=default,
            help=f"{text} (default {default:g})",
        )
    group.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default="sgd", help="(default sgd)")
    group.add_argument(
        "--precision",
        choices=("fp32", "bf16", "amp"),
        default="fp32",
        help="amp: fp32 weights under autocast",
    )
    group.add_argument(
        "--checkpoint", action="store_true", help="keep inputs of layers only, and compute again"
    )
    group.add_argument("--fix", action="store_true", help="let Opacus replace modules that it cannot train")


def add_privacy_flag(group: _ArgumentGroup) -> None:
    """Add the flag that says how Opacus takes gradients by sample."""
    add_flag(
        group,
        "--dp-mode",
        choices=PRIVACY_MODES,
        default=_DEFAULTS.privacy,
        help="how Opacus clips: by hooks (default), torch.func, ghost clipping, or no privacy",
    )


def add_flag(group: _ArgumentGroup, flag: str, **options: object) -> None:
    """Add a flag, and the same with underscores, which the help does not show."""
    add: Callable[..., object] = group.add_argument
    add(flag, **options)
    name = flag[2:].replace("-", "_")
    if f"--{name}" != flag:
        given = {key: value for key, value in options.items() if key not in ("default", "help")}
        add_old_flag(group, f"--{name}", use=flag, dest=name, **given)


def read_training(arguments: Namespace, **changes: object) -> PhaseTraining:
    """Return the training that the flags of this file ask for.

    Args:
        arguments: With what `add_model_flags` and `add_training_flags` add.
        changes: Fields of `PhaseTraining` that other flags say.

    Raises:
        UsageError: `--model` is no `hf:DIR`.
    """
    given: dict[str, object] = {
        "model_size": _choose_preset(arguments),
        "factory": arguments.factory,
        "hugging_face": _read_folder(arguments.model),
        "batch_size": arguments.batch_size,
        "learning_rate": arguments.learning_rate,
        "noise_multiplier": arguments.noise_multiplier,
        "max_grad_norm": arguments.max_grad_norm,
        "warmup_steps": arguments.warmup,
        "seed": arguments.seed,
        "optimizer": arguments.optimizer,
        "precision": arguments.precision,
        "is_checkpointed": arguments.checkpoint,
        "is_fixed": arguments.fix,
    }
    make: Callable[..., PhaseTraining] = PhaseTraining
    return make(**{**given, **changes})


def _choose_preset(arguments: Namespace) -> str | None:
    size: str | None = arguments.model_size
    has_other = arguments.factory is not None or arguments.model is not None
    return str(arguments.default_size) if size is None and not has_other else size


def _read_folder(model: str | None) -> str | None:
    if model is None:
        return None
    folder = model.removeprefix(_HUGGING_FACE)
    if folder == model or not folder:
        raise UsageError(
            f"--model {model}: expected hf:DIR, a folder with config.json; presets go by --model-size"
        )
    return folder


def _name_field(flag: str) -> str:
    return "warmup_steps" if flag == "warmup" else flag.replace("-", "_")
