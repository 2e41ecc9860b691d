"""`vramscope phases`: memory by phase of a training step."""

import os
import sys
import time
from argparse import ArgumentParser, Namespace, _ArgumentGroup
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramscope.engine.errors import UsageError
from vramscope.engine.model.phase_memory import PRIVACY_MODES, STEP_PHASES, PhaseTraining
from vramscope.engine.settings import Settings
from vramscope.engine.units import format_bytes

from ..frame.emit import choose_style, complain, emit
from ..frame.errors import EXIT_INTERRUPTED
from ..frame.flags import add_fit_flag, add_format_flags, add_old_flag, build_look_flags, choose_fit_code
from ..frame.parse import SubParsers, add_verb
from ..frame.progress import ProgressLine
from ..frame.settings import read_settings

if TYPE_CHECKING:
    from vramscope.analyzers.planning.phases import AdviceTrial
    from vramscope.engine.model.phase_memory import PhaseRun


DESCRIPTION = (
    "Train a language model for some steps, and show memory before, after and at the peak of each phase."
)
EXAMPLES = """\
vramscope phases --model-size medium --batch-size 4 --seq 512
vramscope phases --model-size 3b --dp-mode ghost --device simulate:24GiB
vramscope phases --factory train:make_model --dp-mode none --optimizer adamw
torchrun --nproc-per-node 2 -m vramscope phases --strategy ddp
vramscope phases --json > run.json
vramscope phases --read run.json"""
NOTES = """\
Phases are forward, loss, backward, optimizer and zeroing the gradients. The report also says what to change
and what that would save.

It trains with differential privacy by Opacus; --dp-mode none trains without. It needs PyTorch, and Opacus
unless --dp-mode none: pip install 'vramscope[train]'. Another process trains; without CUDA it trains on a
simulated GPU, and the report says so."""
EXIT_CODES: dict[int | str, str] = {
    0: "measured, also if memory ran out",
    1: "the training failed",
    2: "wrong flags, or a model that cannot be trained",
    3: "memory ran out, and --fail-on unfit is given",
    4: "a package of an extra is not installed",
    130: "interrupted; what was measured is printed",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parents = [build_look_flags(), *common]
    parser = add_verb(
        subparsers, parents, "phases", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    add_model_flags(parser)
    steps = parser.add_argument_group("steps")
    add_flag(steps, "--seq", metavar="N", type=int, default=128, help="tokens in a sequence (default 128)")
    for old in ("--seq-length", "--seq_length"):
        add_old_flag(steps, old, use="--seq", dest="seq", type=int)
    add_flag(steps, "--num-steps", metavar="N", type=int, default=3, help="steps to measure (default 3)")
    add_privacy_flag(steps)
    steps.add_argument(
        "--device",
        metavar="DEVICE",
        default="cuda",
        help="cuda (default), cpu, simulate, or a card to simulate: simulate:24GiB, simulate:h100",
    )
    steps.add_argument(
        "--strategy", choices=("ddp", "fsdp2"), help="under torchrun: how ranks share the model"
    )
    add_training_flags(parser)
    _add_output(parser)


def _add_output(parser: ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    add_format_flags(
        output,
        text="original: as printed by the script that this verb replaces (default text)",
        json="short for --format json",
        more=("original",),
    )
    output.add_argument(
        "--try-advice",
        action="store_true",
        help="train again with each of the best changes, and show the peaks",
    )
    add_fit_flag(output)
    output.add_argument("-o", "--output", metavar="FILE", type=Path, help="write the report to this file")
    output.add_argument(
        "--read", metavar="FILE", type=Path, nargs="+", help="train nothing; show reports written earlier"
    )


def run(arguments: Namespace) -> int:
    if arguments.json:
        arguments.format = "json"
    if arguments.read is not None:
        if arguments.fail_on is not None:
            raise UsageError("--fail-on does not go with --read, which trains nothing")

        return print_read(arguments)

    return train_and_print(arguments)


_DEFAULTS = PhaseTraining()
# Default of the script that `vramscope phases` replaces.
DEFAULT_SIZE = "small"
_HUGGING_FACE = "hf:"


def add_model_flags(parser: ArgumentParser, *, default_size: str = DEFAULT_SIZE) -> None:
    """Add the flags that choose the model; `default_size` is the preset where no model is named."""
    group = parser.add_argument_group("model")
    words = f"a LLaMA model: tiny, small, medium, 1b or 3b (default {default_size})"
    add_flag(group, "--model-size", metavar="NAME", help=words)
    parser.set_defaults(default_size=default_size)
    group.add_argument("--model", metavar="hf:DIR", help="a model of transformers: folder with config.json")
    group.add_argument(
        "--factory", metavar="MODULE:FUNCTION", help="your own model, returned by this function"
    )


def add_training_flags(parser: ArgumentParser) -> None:
    """Add the flags of the training, except length, steps and mode of privacy, which each verb has itself."""
    group = parser.add_argument_group("training")
    for name, metavar, kind, text in (
        ("batch-size", "N", int, "sequences in a step"),
        ("learning-rate", "X", float, "learning rate of the optimizer"),
        ("noise-multiplier", "X", float, "noise multiplier of DP-SGD"),
        ("max-grad-norm", "X", float, "largest gradient norm of a sample; more is clipped"),
        ("warmup", "N", int, "steps before the first one measured"),
        ("seed", "N", int, "random seed for weights, tokens and noise"),
    ):
        default = getattr(_DEFAULTS, "warmup_steps" if name == "warmup" else name.replace("-", "_"))
        add_flag(
            group,
            f"--{name}",
            metavar=metavar,
            type=kind,
            default=default,
            help=f"{text} (default {default:g})",
        )
    group.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default="sgd", help="default sgd")
    group.add_argument(
        "--precision",
        choices=("fp32", "bf16", "amp"),
        default="fp32",
        help="default fp32; amp: fp32 weights under autocast",
    )
    group.add_argument(
        "--checkpoint", action="store_true", help="activation checkpointing: keep only inputs of layers"
    )
    group.add_argument("--fix", action="store_true", help="let Opacus replace modules that it cannot train")


def add_privacy_flag(group: _ArgumentGroup) -> None:
    add_flag(
        group,
        "--dp-mode",
        choices=PRIVACY_MODES,
        default=_DEFAULTS.privacy,
        help="how Opacus clips: hooks (default), torch.func, ghost clipping, or no privacy",
    )


def add_flag(group: _ArgumentGroup, flag: str, **options: object) -> None:
    """Add a flag, and its old spelling with underscores."""
    add: Callable[..., object] = group.add_argument
    add(flag, **options)
    name = flag[2:].replace("-", "_")
    if f"--{name}" != flag:
        given = {key: value for key, value in options.items() if key not in ("default", "help")}
        add_old_flag(group, f"--{name}", use=flag, dest=name, **given)


def read_training(arguments: Namespace, **changes: object) -> PhaseTraining:
    """Return the training that the flags above ask for."""
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
            f"--model {model}: expected hf:DIR, a folder with config.json; for presets use --model-size"
        )
    return folder


PROGRAM = "vramscope phases"
_EXIT_FAILED = 1
_KEEP_EVERY_S = 1.0


def train_and_print(arguments: Namespace) -> int:
    from vramscope.engine.files.base.output_file import check_writable
    from vramscope.phases.running import run_phases

    from ..frame.errors import unwinding_on_signals

    training = read_training(
        arguments,
        seq_length=arguments.seq,
        num_steps=arguments.num_steps,
        privacy=arguments.dp_mode,
        strategy=arguments.strategy,
    )
    if arguments.try_advice:
        refuse_ranks(training)
    if arguments.output is not None:
        check_writable(arguments.output)
    settings = read_settings(arguments)
    trials: tuple[AdviceTrial, ...] = ()
    progress = PhaseProgress(training, arguments.device)
    if arguments.output is not None:
        progress.keep = lambda run: deliver(
            _describe((run,), (), arguments.format, settings), arguments.output
        )
    with unwinding_on_signals():
        with progress.bar:
            runs = run_phases(training, arguments.device, on_phase=progress.show)
        if not runs:
            return 0  # another rank of this node prints them all
        progress.print_device(runs[0])
        if arguments.try_advice:
            trials = try_changes(PROGRAM, training, arguments.device, runs)
    deliver(_describe(runs, trials, arguments.format, settings), arguments.output)
    has_run_out = any(run.end == "out_of_memory" for run in runs)
    return _choose_exit_code(runs) or choose_fit_code(arguments, does_fit=not has_run_out)


class PhaseProgress:
    """Shows the progress of a training, and once the device if it is not the one asked for."""

    def __init__(self, training: PhaseTraining, device: str) -> None:
        setup = 1 if training.privacy == "none" else 2
        self._total = setup + training.num_steps * len(STEP_PHASES)
        self._is_quiet = os.environ.get("LOCAL_RANK", "0") != "0"
        self._is_printed = device != "cuda"
        self.bar = ProgressLine(PROGRAM, "phases")
        # Writes the report so far, so that it survives a kill.
        self.keep: Callable[[PhaseRun], None] | None = None
        self._keep_due_s = 0.0

    def show(self, run: "PhaseRun") -> None:
        if not self._is_quiet:
            self.print_device(run)
            self.bar.show_count(len(run.phases), self._total, _describe_newest(run))
            now_s = time.monotonic()
            if self.keep is not None and now_s >= self._keep_due_s:
                self._keep_due_s = now_s + _KEEP_EVERY_S
                self.keep(msgspec.structs.replace(run, end="interrupted"))

    def print_device(self, run: "PhaseRun") -> None:
        """Print once that the device is not CUDA."""
        if not self._is_printed and run.device.kind != "cuda" and run.device.note is not None:
            complain(run.device.note, program=PROGRAM)
        self._is_printed = True


def _describe_newest(run: "PhaseRun") -> str:
    newest = run.phases[-1]
    peak = newest.peak.allocated_bytes
    after = newest.after.allocated_bytes
    held = "" if after is None else f" {format_bytes(after)}"
    return f"{newest.phase}{held}" + ("" if peak is None else f", peak {format_bytes(peak)}")


def deliver(content: str | bytes, output: Path | None) -> None:
    if output is not None:
        from vramscope.engine.files.base.output_file import write_whole

        write_whole(content.encode("utf-8", "replace") if isinstance(content, str) else content, output)
    elif isinstance(content, str):
        emit(content)
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


def _describe(
    runs: "Sequence[PhaseRun]", trials: "Sequence[AdviceTrial]", form: str, settings: Settings
) -> str | bytes:
    from vramscope.engine.text import make_ascii
    from vramscope.exporters.json_lines import encode_line
    from vramscope.exporters.phases.report import describe_as_original, report_phases
    from vramscope.exporters.phases.text import describe_phases

    if form == "json":
        return encode_line(report_phases(runs, trials))
    if form == "original":
        return "\n".join(map(describe_as_original, runs))
    style = choose_style(settings)
    text = describe_phases(runs, style.width, trials)
    return make_ascii(text) if style.is_ascii else text


def _choose_exit_code(runs: "Sequence[PhaseRun]") -> int:
    """Return the exit code; running out of memory is a result, and so 0."""
    ends = {run.end for run in runs}
    if "interrupted" in ends:
        return EXIT_INTERRUPTED
    if "failed" in ends and "out_of_memory" not in ends:
        errors = [run.error or "the training failed" for run in runs if run.end == "failed"]
        # The error of the rank that failed first, not of those that waited for it.
        complain(min(errors, key=lambda error: "had ended before" in error), program=PROGRAM)
        return _EXIT_FAILED
    return 0


def print_read(arguments: Namespace) -> int:
    """Print the files of `--read` in the wanted format, and return the exit code.

    Args:
        arguments: With `read`, the paths; `format`, one of text, json and original, None for text; and
            `output`, a path.
    """
    from ..frame.settings import read_settings

    content: str | bytes

    if arguments.format == "json":
        content = _encode(arguments.read)
    elif arguments.format == "original":
        content = _describe_as_original(arguments.read)
    else:
        content = _describe_files(arguments.read, read_settings(arguments))
    deliver(content, arguments.output)
    return 0


def print_phase_file(path: Path, settings: Settings) -> None:
    emit(_describe_files([path], settings))


def print_phase_file_as_json(path: Path) -> None:
    """Print one JSON object for each training of ours, or one for a whole file of another profiler."""
    sys.stdout.buffer.write(_encode([path]))
    sys.stdout.buffer.flush()


def _describe_files(paths: Sequence[Path], settings: Settings) -> str:
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.files.phases import read_phase_file
    from vramscope.engine.text import make_ascii
    from vramscope.exporters.phases.text import describe_phase_file

    style = choose_style(settings)
    heads = [f"{show_path(path)}\n" if len(paths) > 1 else "" for path in paths]
    texts = [describe_phase_file(read_phase_file(path), style.width) for path in paths]
    text = "\n".join(head + each for head, each in zip(heads, texts, strict=True))
    return make_ascii(text) if style.is_ascii else text


def _encode(paths: Sequence[Path]) -> bytes:
    from vramscope.engine.files.phases import read_phase_file
    from vramscope.exporters.json_lines import encode_line
    from vramscope.exporters.phases.report import report_phase_records, report_phases

    lines = []
    for file in [read_phase_file(path) for path in paths]:
        lines += [encode_line(report_phases(runs)) for runs in file.trainings]
        lines += [encode_line(report_phase_records(file))] if file.records else []
    return b"".join(lines)


def _describe_as_original(paths: Sequence[Path]) -> str:
    from vramscope.engine.files.base.input_file import show_path
    from vramscope.engine.files.phases import read_phase_file
    from vramscope.exporters.phases.report import describe_as_original

    texts = []
    for path in paths:
        file = read_phase_file(path)
        if file.records:
            raise UsageError(
                f"--format original: {show_path(path)} is from another profiler; expected output of "
                "`vramscope phases --json`; leave out --format for tables"
            )
        texts += [describe_as_original(run) for runs in file.trainings for run in runs]
    return "\n".join(texts)


def refuse_ranks(training: PhaseTraining) -> None:
    """Refuse `--try-advice` where several processes train."""
    if training.strategy is not None:
        raise UsageError("--try-advice does not go with --strategy: it trains in one process")


def try_changes(
    program: str, training: PhaseTraining, device: str, runs: "Sequence[PhaseRun]"
) -> "tuple[AdviceTrial, ...]":
    """Return what the advised changes measured; nothing where the run was interrupted or has no advice."""
    from vramscope.analyzers.planning.phases import advise_phases
    from vramscope.phases.running import run_phases
    from vramscope.phases.seqlen import choose_changes, try_advice

    advice = advise_phases(runs)
    if advice is None or any(run.end in {"interrupted", "failed"} for run in runs):
        return ()
    begun = 0
    total = len(choose_changes(advice))
    with ProgressLine(program, "changes tried") as progress:

        def train(changed: PhaseTraining, on: str) -> "tuple[PhaseRun, ...]":
            nonlocal begun
            progress.show_count(begun, total)
            begun += 1
            return run_phases(changed, on)

        return try_advice(training, device, advice, run=train)
