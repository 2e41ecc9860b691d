"""What `vramscope phases` trains, tells meanwhile, and prints."""

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from vramscope.analyzers.planning.phases import AdviceTrial
from vramscope.engine.model.phase_memory import STEP_PHASES, PhaseRun, PhaseTraining
from vramscope.engine.settings import Settings
from vramscope.engine.units import format_bytes

from .frame.configuration import read_settings
from .frame.diagnostics import EXIT_INTERRUPTED, complain
from .frame.parser_flags import choose_fit_code
from .frame.printing import choose_style, emit
from .frame.progress import ProgressLine
from .phase_flags import read_training

PROGRAM = "vramscope phases"
_EXIT_FAILED = 1
_KEEP_EVERY_S = 1.0


def train_and_print(arguments: Namespace) -> int:
    """Train, print what was measured, and return the exit code.

    Raises:
        UsageError: It cannot be started.
        OutputFileError: What was measured cannot be written.
    """
    from vramscope.engine.files.base.output_file import check_writable
    from vramscope.phases.running import run_phases

    from .frame.termination import unwinding_on_signals
    from .phase_trials import refuse_ranks, try_changes

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
        progress.tell_device(runs[0])
        if arguments.try_advice:
            trials = try_changes(PROGRAM, training, arguments.device, runs)
    deliver(_describe(runs, trials, arguments.format, settings), arguments.output)
    has_run_out = any(run.end == "out_of_memory" for run in runs)
    return _choose_exit_code(runs) or choose_fit_code(arguments, does_fit=not has_run_out)


class PhaseProgress:
    """Tells how far a training is, and once on what it runs where that is not what was asked for.

    Args:
        training: What is trained.
        device: What was asked for.
    """

    def __init__(self, training: PhaseTraining, device: str) -> None:
        setup = 1 if training.privacy == "none" else 2
        self._total = setup + training.num_steps * len(STEP_PHASES)
        self._is_quiet = os.environ.get("LOCAL_RANK", "0") != "0"
        self._is_told = device != "cuda"
        self.bar = ProgressLine(PROGRAM, "phases")
        self.keep: Callable[[PhaseRun], None] | None = None
        """Writes what there is so far, so that a kill leaves it."""
        self._keep_due_s = 0.0

    def show(self, run: PhaseRun) -> None:
        """Show one more phase with the memory that it held."""
        if not self._is_quiet:
            self.tell_device(run)
            self.bar.show_count(len(run.phases), self._total, _describe_newest(run))
            now_s = time.monotonic()
            if self.keep is not None and now_s >= self._keep_due_s:
                self._keep_due_s = now_s + _KEEP_EVERY_S
                self.keep(msgspec.structs.replace(run, end="interrupted"))

    def tell_device(self, run: PhaseRun) -> None:
        """Say that it is no CUDA device, once."""
        if not self._is_told and run.device.kind != "cuda" and run.device.note is not None:
            complain(run.device.note, program=PROGRAM)
        self._is_told = True


def _describe_newest(run: PhaseRun) -> str:
    newest = run.phases[-1]
    peak = newest.peak.allocated_bytes
    after = newest.after.allocated_bytes
    held = "" if after is None else f" {format_bytes(after)}"
    return f"{newest.phase}{held}" + ("" if peak is None else f", peak {format_bytes(peak)}")


def deliver(content: str | bytes, output: Path | None) -> None:
    """Write what was measured to standard output, or into a file.

    Args:
        content: Text for people, or JSON.
        output: The file; None for standard output.

    Raises:
        OutputFileError: The file cannot be written.
    """
    if output is not None:
        from vramscope.engine.files.base.output_file import write_whole

        write_whole(content.encode("utf-8", "replace") if isinstance(content, str) else content, output)
    elif isinstance(content, str):
        emit(content)
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()


def _describe(
    runs: Sequence[PhaseRun], trials: Sequence[AdviceTrial], form: str, settings: Settings
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


def _choose_exit_code(runs: Sequence[PhaseRun]) -> int:
    """Return 0 where something was measured to its end: that memory ran out is a result."""
    ends = {run.end for run in runs}
    if "interrupted" in ends:
        return EXIT_INTERRUPTED
    if "failed" in ends and "out_of_memory" not in ends:
        errors = [run.error or "the training failed" for run in runs if run.end == "failed"]
        # The rank that went first, before those which waited for it.
        complain(min(errors, key=lambda error: "had ended before" in error), program=PROGRAM)
        return _EXIT_FAILED
    return 0
