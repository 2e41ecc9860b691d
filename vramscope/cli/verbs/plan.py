"""`vramscope plan`: the layers of a model in pipeline stages, or all degrees on a cluster."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vramscope.engine.errors import UsageError

from ..frame.emit import complain, emit_fitted, emit_json
from ..frame.flags import (
    CAPACITY,
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


DESCRIPTION = (
    "Split a model into pipeline stages so that the fullest stage needs the least memory, or plan a whole "
    "cluster."
)
EXAMPLES = """\
vramscope plan --model gpt-1.5b --stages 2,4,6,8
vramscope plan --model llama3-8b --strategy exact-1f1b --capacity 80GiB
vramscope plan --model ./config.json --stages 4 --strategy all --json
vramscope plan --model gpt-1.5b --stages 2-8 --legacy -o plan
vramscope plan --factory train:make_model --input 4x1024:int64 --stages 2,4
vramscope plan --model llama3-8b --strategy all --capacity 80GiB --screen
vramscope plan --model llama3-8b --measured run.vscope \\
    --measured-split 8,8,8,8
vramscope plan --model gpt3-175b --cluster 128x8xh100 --global-batch 1536"""
NOTES = """\
Nothing runs: memory, bubble and communication of each number of stages are computed.

Strategies: exact (least maximum of the metric), exact-1f1b (exact with --metric training), uniform,
balanced_memory, balanced_compute, balanced_parameters (rules of llm_parallel_strategy), all."""
EXIT_CODES: dict[int | str, str] = {
    0: "planned, also if nothing fits",
    2: "wrong flags, or a model or file that cannot be used",
    3: "nothing fits, and --fail-on unfit is given",
    4: "--cluster local: no driver or device; or a package of an extra is not installed",
    7: "--measured live: no agent runs",
}


COUNT = whole(1, 10**15 - 1, "a whole number of at least 1 and a few digits", shown=40)
SMALL_COUNT = whole(1, 10**9 - 1, "a whole number of at least 1 and a few digits", shown=40)
SPEED = checked(parse_number, lambda number: 0 < number < 1e9, "a number above 0 and below 1,000,000,000")
SHARE = checked(
    parse_number, lambda share: 0 < share <= 1, "a number above 0 and at most 1, for example 0.9", shown=40
)


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers,
        [build_look_flags(), *common],
        "plan",
        DESCRIPTION,
        examples=EXAMPLES,
        notes=NOTES,
        exit_codes=EXIT_CODES,
        usage="vramscope plan (--model NAME|FILE | --factory MODULE:FUNCTION) [flags]",
    )
    parser.add_argument(
        "--model",
        metavar="NAME|FILE",
        help="a known model, a config.json or its folder, YAML, or a saved graph",
    )
    parser.add_argument(
        "--factory",
        metavar="MODULE:FUNCTION",
        help="a function that returns a torch.nn.Module; it is traced without memory",
    )
    parser.add_argument(
        "--input",
        metavar="SHAPE[:TYPE]",
        action="append",
        help="with --factory: an input of the forward pass, for example 4x1024:int64",
    )
    parser.add_argument(
        "--dtype", metavar="TYPE", help="type of weights and activations, for example bfloat16"
    )
    parser.add_argument("--stages", metavar="N,…|N-M", default="2-8", help="numbers of stages (default 2-8)")
    parser.add_argument(
        "--strategy", metavar="NAME,…", default=None, help="how to split layers (default exact)"
    )
    parser.add_argument(
        "--metric",
        metavar="NAME",
        help="what exact minimizes: training (all memory of a stage in training, the default), memory (only "
        "weights), compute or parameters",
    )
    add_joint_flags(parser)
    _add_training(parser)
    _add_measured(parser)
    _add_output(parser)


def _add_training(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    group.add_argument(
        "--seq",
        metavar="N",
        type=COUNT,
        help="tokens in a sequence (default: those of the model's file, else the most the model allows, up "
        "to 4096)",
    )
    add_old_flag(group, "--seq-length", use="--seq", dest="seq", type=COUNT)
    group.add_argument(
        "--micro-batch",
        metavar="N",
        type=COUNT,
        help="sequences in a micro-batch (default: those of the model's file, else 1)",
    )
    group.add_argument("--micro-batches", metavar="N", type=COUNT, help="micro-batches in a step (default 8)")
    group.add_argument(
        "--states",
        metavar="NAME",
        help="model states: mixed-adam (18 bytes a parameter, default) or fp32-adam (16)",
    )
    group.add_argument(
        "--capacity", metavar="SIZE", type=CAPACITY, help="memory of a device, for example 80GiB"
    )
    group.add_argument(
        "--tflops",
        metavar="N",
        type=SPEED,
        help="assumed speed of a device in TFLOP/s (default 100)",
    )
    group.add_argument(
        "--link",
        metavar="N",
        type=SPEED,
        help="assumed speed between stages in GB/s (default 25)",
    )


def _add_measured(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("a measured job")
    group.add_argument(
        "--measured",
        metavar="FILE|live",
        help="compare the plan with the memory of a recorded or running job, and plan again",
    )
    group.add_argument(
        "--measured-split",
        metavar="N,…",
        help="transformer blocks on each stage of that job (default: as planned)",
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
        help="open a screen: bars under the capacity, compare two plans",
    )
    group.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        type=Path,
        help="write graph, best split, report and files for training frameworks to this folder",
    )
    add_figure_flag(group, "draw the stages")
    add_figure_flag(group, "draw the layers, equal ones once", flag="--graph-figure")
    add_fit_flag(group)
    group.add_argument(
        "--legacy",
        action="store_true",
        help="compute, split and choose as llm_parallel_strategy (its GFLOPs count the embedding in FLOP)",
    )


def run(arguments: Namespace) -> int:
    if arguments.fail_on is not None and arguments.capacity is None and arguments.cluster is None:
        raise UsageError("--fail-on unfit needs the memory that it is to fit: --capacity SIZE or --cluster")
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
        print("vramscope plan: no file was written, because nothing fits", file=sys.stderr)
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
    if arguments.measured is not None:
        raise UsageError("--measured does not go with --screen: press 6 in the live view or a replay")
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
    group = parser.add_argument_group("on a cluster, all degrees at once")
    group.add_argument(
        "--cluster", metavar="FILE|local|NxMxNAME", help="plan for these devices, for example 128x8xh100"
    )
    group.add_argument(
        "--global-batch", metavar="N", type=SMALL_COUNT, help="sequences in a step, over all ranks"
    )
    group.add_argument(
        "--max-tp",
        metavar="N",
        type=SMALL_COUNT,
        help="most tensor-parallel ranks (default: devices of a node)",
    )
    group.add_argument(
        "--max-micro-batch",
        metavar="N",
        type=SMALL_COUNT,
        help="most sequences in a micro-batch (default 32)",
    )
    group.add_argument("--cp", metavar="N", type=SMALL_COUNT, help="context-parallel ranks (default 1)")
    group.add_argument(
        "--zero",
        metavar="N,…",
        type=Reading(_read_zero, shown=40),
        help="ZeRO stages to choose from (default 0,1,2,3)",
    )
    group.add_argument(
        "--recompute",
        metavar="NAME,…",
        type=Reading(_read_recomputes, shown=40),
        help="kinds of recomputation to choose from (default none,selective,full)",
    )
    group.add_argument(
        "--memory-share", metavar="N", type=SHARE, help="share of each device's memory to use (default 0.9)"
    )
    group.add_argument(
        "--top", metavar="N", type=SMALL_COUNT, help="number of configurations to list (default 10)"
    )
    group.add_argument(
        "--efficiency",
        metavar="N",
        type=SHARE,
        help="share of the peak speed that large matrix products reach (default 0.75)",
    )
    group.add_argument(
        "--calibrate-time",
        metavar="FILE",
        help="fit times to a CSV file of measured steps, or to a Galvatron profile",
    )


# Flags that need `--cluster`.
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


def refuse_joint_flags(arguments: Namespace) -> None:
    refuse(pick(arguments, JOINT_FLAGS), "needs --cluster; add for example --cluster 8xh100")


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
