"""`vramscope plan`: a model's layers in pipeline stages."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vramscope.engine.errors import UsageError

from ..frame.emit import complain, emit_fitted, emit_json
from ..frame.flags import (
    Reading,
    add_figure_flag,
    add_fit_flag,
    add_format_flags,
    add_old_flag,
    build_look_flags,
    checked,
    choose_fit_code,
    parse_number,
    pick,
    refuse,
    whole,
)
from ..frame.parse import SubParsers, add_verb

if TYPE_CHECKING:
    from vramscope.analyzers.planning.partition import Plan
    from vramscope.analyzers.planning.theory.shape import Recompute

    from ..plan import Planned


SUMMARY = "split a model's layers into pipeline stages: the exact optimum, and what it is worth"
DESCRIPTION = """\
Split the layers of a model into pipeline stages so that the fullest stage holds least, and say what each
number of stages is worth: memory, bubble, communication. Nothing is run: the figures are computed."""
EPILOG = """\
examples:
  vramscope plan --model gpt-1.5b --stages 2,4,6,8
  vramscope plan --model llama3-8b --stages 2-8 --strategy exact-1f1b --capacity 80GiB --micro-batches 16
  vramscope plan --model ./config.json --stages 4 --strategy all --json
  vramscope plan --model gpt-1.5b --stages 2-8 --legacy -o plan
  vramscope plan --factory train:make_model --input 4x1024:int64 --stages 2,4
  vramscope plan --model llama3-8b --strategy all --capacity 80GiB --screen
  vramscope plan --model llama3-8b --micro-batches 16 --measured run.vscope --measured-split 8,8,8,8
  vramscope plan --model gpt3-175b --cluster 128x8xh100 --global-batch 1536

strategies: exact (least maximum of the metric), exact-1f1b (exact of --metric training), uniform,
  balanced_memory, balanced_compute, balanced_parameters (the rules of llm_parallel_strategy), all
exit codes: 0 planned, also where nothing fits, 3 nothing fits and --fail-on unfit is given, 2 usage, a model
  or file that cannot be used, 4 no driver or device for --cluster local, 7 no agent for --measured live"""


COUNT = whole(1, 10**15 - 1, "a whole number of at least 1 and a few digits", shown=40)
SMALL_COUNT = whole(1, 10**9 - 1, "a whole number of at least 1 and a few digits", shown=40)
SPEED = checked(parse_number, lambda number: 0 < number < 1e9, "a number above 0 and below 1,000,000,000")
SHARE = checked(
    parse_number, lambda share: 0 < share <= 1, "a number above 0 and at most 1, for example 0.9", shown=40
)


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, [build_look_flags(), *common], "plan", SUMMARY, DESCRIPTION, EPILOG)
    parser.add_argument(
        "--model",
        metavar="NAME|FILE",
        help="a known model, a config.json or its folder, YAML, a saved graph",
    )
    parser.add_argument(
        "--factory", metavar="MODULE:FUNCTION", help="makes a torch.nn.Module, traced without allocating it"
    )
    parser.add_argument(
        "--input",
        metavar="SHAPE[:TYPE]",
        action="append",
        help="of an argument of its forward pass, as 4x1024:int64",
    )
    parser.add_argument("--dtype", metavar="TYPE", help="of its weights and activations, as bfloat16")
    parser.add_argument("--stages", metavar="N,…|N-M", default="2-8", help="numbers of stages (default 2-8)")
    parser.add_argument("--strategy", metavar="NAME,…", default=None, help="how layers are split (exact)")
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="exact keeps least: training (the default: all a stage holds while it trains), memory (weights "
        "alone), compute or parameters",
    )
    add_joint_flags(parser)
    _add_training(parser)
    _add_measured(parser)
    _add_output(parser)


def _add_training(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    group.add_argument(
        "--seq", metavar="N", type=COUNT, help="tokens of a sequence (the longest of the model)"
    )
    add_old_flag(group, "--seq-length", use="--seq", dest="seq", type=COUNT)
    group.add_argument(
        "--micro-batch", metavar="N", type=COUNT, default=1, help="sequences of a micro-batch (1)"
    )
    group.add_argument(
        "--micro-batches", metavar="N", type=COUNT, default=8, help="micro-batches of a step (8)"
    )
    group.add_argument(
        "--states",
        metavar="NAME",
        default="mixed-adam",
        help="mixed-adam (18 bytes a parameter) or fp32-adam (16)",
    )
    group.add_argument("--capacity", metavar="SIZE", help="memory of a device, for example 80GiB")
    group.add_argument(
        "--tflops", metavar="N", type=SPEED, default=100.0, help="speed of a device, assumed (100)"
    )
    group.add_argument(
        "--link", metavar="N", type=SPEED, default=25.0, help="GB/s between stages, assumed (25)"
    )


def _add_measured(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("a job that ran, or runs")
    group.add_argument(
        "--measured",
        metavar="FILE|live",
        help="hold the plan against what the stages of a recorded job needed, and plan again",
    )
    group.add_argument(
        "--measured-split", metavar="N,…", help="transformer blocks of each stage of that job (as planned)"
    )


def _add_output(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    add_format_flags(
        group,
        text="text: print tables, the default",
        json="print one JSON object (vramscope.plan/1)",
        old=("--table", "--text"),
    )
    group.add_argument(
        "--screen",
        action="store_true",
        help="show it on a screen: bars under the capacity, compare two plans",
    )
    group.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        help="write graph, best partition, report and the files of training frameworks into this folder",
    )
    add_figure_flag(group, "draw the stages")
    add_figure_flag(group, "draw the layers, alike ones once", flag="--graph-figure")
    add_fit_flag(group)
    group.add_argument(
        "--legacy",
        action="store_true",
        help="figures, strategies and choice of llm_parallel_strategy (its GFLOPs: the embedding's in FLOP)",
    )


def run(arguments: Namespace) -> int:
    if arguments.fail_on is not None and arguments.capacity is None and arguments.cluster is None:
        raise UsageError("--fail-on unfit goes with --capacity SIZE or --cluster, into which it is to fit")
    if arguments.screen:
        from ..frame.settings import read_settings
        from ..plan_screen import show_arguments

        _refuse_with_screen(arguments)
        if arguments.cluster is None:
            refuse_joint_flags(arguments)
        return show_arguments(arguments, read_settings(arguments))
    if arguments.measured is not None or arguments.measured_split is not None:
        from ..plan import print_feedback

        return print_feedback(arguments)
    if arguments.cluster is not None:
        from ..plan import plan_jointly_and_print

        return plan_jointly_and_print(arguments)
    refuse_joint_flags(arguments)
    from ..plan import check_figures, plan_model, read_request

    check_figures(arguments)
    planned = plan_model(read_request(arguments))
    has_found = planned.plan.recommended_stages is not None
    if has_found:
        _write(planned, arguments)
    elif any(it is not None for it in (arguments.output, arguments.figure, arguments.graph_figure)):
        print("vramscope plan: nothing fits, so no file was written", file=sys.stderr)
    _print(planned.plan, arguments)
    return choose_fit_code(arguments, does_fit=has_found)


def _write(planned: "Planned", arguments: Namespace) -> None:
    from ..plan import draw_figures, encode_planned, write_plan

    paths = []
    left_out = []
    if arguments.output is not None:
        paths = write_plan(planned, arguments.output)
        left_out = encode_planned(planned).left_out
    paths += draw_figures(planned, arguments)
    for sentence in (*(f"wrote {path}" for path in paths), *left_out):
        complain(sentence, program="vramscope plan")


def _refuse_with_screen(arguments: Namespace) -> None:
    """Refuse what prints or writes: on the screen `E` exports, and the live view draws what is measured."""
    if arguments.measured is not None:
        raise UsageError("--measured does not go with --screen: over the live view or a replay, press 6")
    refuse(
        pick(arguments, ("json", "format", "output", "figure", "graph_figure")),
        "does not go with --screen: on the screen, E writes the files",
    )


def _print(plan: "Plan", arguments: Namespace) -> None:
    if arguments.json:
        emit_json(plan)
        return
    from vramscope.exporters.plan.partition import describe_plan

    from ..frame.settings import read_settings

    emit_fitted(read_settings(arguments), lambda width: describe_plan(plan, width))


def add_joint_flags(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("on a cluster: all degrees at once")
    group.add_argument(
        "--cluster", metavar="FILE|local|NxMxNAME", help="plan for these devices, for example 128x8xh100"
    )
    group.add_argument(
        "--global-batch", metavar="N", type=SMALL_COUNT, help="sequences of a step, over all ranks"
    )
    group.add_argument(
        "--max-tp", metavar="N", type=SMALL_COUNT, help="most tensor ranks (as many as a node has devices)"
    )
    group.add_argument(
        "--max-micro-batch", metavar="N", type=SMALL_COUNT, help="most sequences of a micro-batch (32)"
    )
    group.add_argument("--cp", metavar="N", type=SMALL_COUNT, help="context-parallel ranks (1)")
    group.add_argument(
        "--zero",
        metavar="N,…",
        type=Reading(_read_zero, shown=40),
        help="ZeRO stages to choose from (0,1,2,3)",
    )
    group.add_argument(
        "--recompute",
        metavar="NAME,…",
        type=Reading(_read_recomputes, shown=40),
        help="to choose from (none,selective,full)",
    )
    group.add_argument(
        "--memory-share", metavar="N", type=SHARE, help="of each device that may be filled (0.9)"
    )
    group.add_argument("--top", metavar="N", type=SMALL_COUNT, help="configurations to list (10)")
    group.add_argument(
        "--efficiency", metavar="N", type=SHARE, help="of the peak, by large matrix products (0.75)"
    )
    group.add_argument(
        "--calibrate-time", metavar="FILE", help="learn times: CSV of measured steps, or a Galvatron profile"
    )


JOINT_FLAGS = (
    "global_batch",
    "max_tp",
    "max_micro_batch",
    "cp",
    "zero",
    "recompute",
    "memory_share",
    "top",
    "efficiency",
    "calibrate_time",
)
"""Names of what is of no use without `--cluster`."""


def refuse_joint_flags(arguments: Namespace) -> None:
    refuse(pick(arguments, JOINT_FLAGS), "is of use with --cluster only; add for example --cluster 8xh100")


def _read_zero(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not {*parts} <= {"0", "1", "2", "3"}:
        raise UsageError("expected some of 0, 1, 2 and 3, for example 0,1")
    return tuple(sorted({int(part) for part in parts}))


def _read_recomputes(text: str) -> "tuple[Recompute, ...]":
    from vramscope.analyzers.planning.joint.space import RECOMPUTES

    parts = [part.strip() for part in text.split(",")]
    if not {*parts} <= {*RECOMPUTES}:
        raise UsageError(f"expected some of {', '.join(RECOMPUTES)}")
    return tuple(cast("list[Recompute]", dict.fromkeys(parts)))
