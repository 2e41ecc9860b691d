"""What `vramscope plan --cluster` was asked for, the plan, and how it is printed."""

import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from vramscope.analyzers.planning.joint import JointPlan
from vramscope.analyzers.planning.joint.space import RECOMPUTES
from vramscope.analyzers.planning.theory.shape import Recompute
from vramscope.engine.errors import NothingFitsError, UsageError
from vramscope.exporters.plan.joint import report_joint_plan
from vramscope.planning.joint import plan_cluster

from .frame.configuration import read_settings
from .frame.diagnostics import complain
from .frame.parser_flags import choose_fit_code

MOST_DIGITS = 9
"""Of a number on the command line."""
OF_STAGES = {
    "stages": "2-8",
    "strategy": None,
    "metric": None,
    "micro_batch": "1",
    "micro_batches": "8",
    "states": "mixed-adam",
    "tflops": "100",
    "link": "25",
    "capacity": None,
    "legacy": False,
    "factory": None,
    "input": None,
    "dtype": None,
    "figure": None,
    "graph_figure": None,
    "measured": None,
    "measured_split": None,
}
"""Flags of plans by stages that say nothing here, and what they are where they were not given."""
_OF_SCREEN = "whose plans are drawn on --screen: E writes the picture"
_OF_MODULE = "whose memory theory needs a model's sizes: give --model NAME|FILE"
WHY_NOT = {
    "figure": _OF_SCREEN,
    "graph_figure": "which splits no graph: leave out --cluster to draw that",
    "factory": _OF_MODULE,
    "input": _OF_MODULE,
    "dtype": _OF_MODULE,
}
"""Of flags that have a reason of their own, what to do instead."""


def plan_jointly_and_print(arguments: Namespace) -> int:
    """Plan, print, write files, and return the exit code.

    Raises:
        UsageError: A flag cannot be used.
        InputFileError: A file cannot be read or understood.
        OutputFileError: A file cannot be written.
    """
    try:
        plan = make_joint_plan(arguments)
    except NothingFitsError as error:
        return say_nothing_fits(error, arguments)
    if arguments.output is not None:
        for line in write_outputs(plan, arguments.output):
            complain(line, program="vramscope plan")
    report = report_joint_plan(plan)
    if arguments.json:
        from vramscope.exporters.json_lines import write_line

        write_line(report, sys.stdout.buffer)
        return 0
    from vramscope.exporters.plan.joint import describe_joint_plan

    from .frame.printing import choose_style, emit

    style = choose_style(read_settings(arguments))
    text = describe_joint_plan(report, style.width)
    emit(text, is_ascii=style.is_ascii)
    return 0


class NothingFitsReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope plan --cluster --json` prints where nothing fits."""

    schema: str = "vramscope.nothing_fits/1"
    fits: bool = False
    reason: str
    """What would fit."""


def say_nothing_fits(error: NothingFitsError, arguments: Namespace) -> int:
    """Print what would fit, and return the exit code."""
    if arguments.json:
        from vramscope.exporters.json_lines import write_line

        write_line(NothingFitsReport(reason=str(error)), sys.stdout.buffer)
    else:
        from vramscope.exporters.text import wrap

        from .frame.printing import choose_style, emit

        style = choose_style(read_settings(arguments))
        text = "\n".join(wrap(f"Nothing fits: {error}", style.width)) + "\n"
        emit(text, is_ascii=style.is_ascii)
    if arguments.output is not None:
        print("vramscope plan: nothing fits, so no file was written", file=sys.stderr)
    return choose_fit_code(arguments, does_fit=False)


def make_joint_plan(arguments: Namespace) -> JointPlan:
    """Return the plan that the flags ask for.

    Raises:
        UsageError: A flag cannot be used.
        NothingFitsError: No configuration fits into the devices.
        InputFileError: A file cannot be read or understood.
    """
    _check(arguments)
    options: dict[str, Any] = {
        "seq_length": _read(arguments, "seq", _read_count),
        "max_tensor": _read(arguments, "max_tp", _read_count),
        "max_micro_batch": _read(arguments, "max_micro_batch", _read_count),
        "context": _read(arguments, "cp", _read_count),
        "zero_stages": _read(arguments, "zero", _read_stages),
        "recomputes": _read(arguments, "recompute", _read_recomputes),
        "memory_share": _read(arguments, "memory_share", _read_share),
        "top": _read(arguments, "top", _read_count),
        "efficiency": _read(arguments, "efficiency", _read_share),
        "measured_times": arguments.calibrate_time,
    }
    return plan_cluster(
        arguments.model,
        arguments.cluster,
        global_batch=_read_count("--global-batch", arguments.global_batch),
        **{name: value for name, value in options.items() if value is not None},
    )


def write_outputs(plan: JointPlan, folder: Path) -> list[str]:
    """Write the fastest configuration as the files of training frameworks; return a line about each.

    Raises:
        OutputFileError: The folder or a file cannot be written.
    """
    from vramscope.engine.files.base.output_file import write_files
    from vramscope.exporters.plan.outputs import take_configuration

    from .plan_outputs import encode_outputs

    outputs = encode_outputs(take_configuration(plan.configurations[0]))
    written = write_files(outputs.contents, folder)
    return [*(f"wrote {path}" for path in written), *outputs.left_out]


def _check(arguments: Namespace) -> None:
    given = [name for name, usual in OF_STAGES.items() if getattr(arguments, name, usual) != usual]
    if given:
        flag = given[0].replace("_", "-")
        why = WHY_NOT.get(given[0], "which searches by itself: leave one out")
        raise UsageError(f"--{flag} does not go with --cluster, {why}")
    if arguments.model is None:
        raise UsageError("no model: give --model NAME|FILE for the --cluster")
    if arguments.global_batch is None:
        raise UsageError(
            "--cluster needs --global-batch: sequences of a step over all ranks, for example 1024"
        )


def _read(arguments: Namespace, name: str, read: Callable[[str, str], object]) -> object:
    """Return the value of a flag; None where it was not given."""
    text = getattr(arguments, name)
    return None if text is None else read(f"--{name.replace('_', '-')}", text)


def _read_count(flag: str, text: str) -> int:
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
        raise UsageError(f"{flag} {text[:40]}: expected a whole number of at least 1 and a few digits")
    return int(text)


def _read_share(flag: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"{flag} {text[:40]}: expected a number above 0 and at most 1, for example 0.9")
    return share


def _read_stages(flag: str, text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not {*parts} <= {"0", "1", "2", "3"}:
        raise UsageError(f"{flag} {text[:40]}: expected some of 0, 1, 2 and 3, for example 0,1")
    return tuple(sorted({int(part) for part in parts}))


def _read_recomputes(flag: str, text: str) -> tuple[Recompute, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not {*parts} <= {*RECOMPUTES}:
        raise UsageError(f"{flag} {text[:40]}: expected some of {', '.join(RECOMPUTES)}")
    return tuple(cast("list[Recompute]", dict.fromkeys(parts)))
