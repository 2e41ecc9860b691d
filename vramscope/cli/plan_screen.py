"""The screen of `vramscope plan`: what it shows, and the files behind its export."""

import shlex
from argparse import Namespace
from functools import partial
from pathlib import Path

from vramscope.analyzers.planning.partition import GraphAnalyzer
from vramscope.engine.errors import NothingFitsError, UsageError
from vramscope.engine.settings import Settings
from vramscope.exporters.plan.partition import describe_plan
from vramscope.tui.plan.planned import JobDefaults, Planned
from vramscope.tui.plan.planned_partition import present_plan
from vramscope.tui.plan.screen import show_plan
from vramscope.tui.screens.dialogs import REPORT_WIDTH

from .frame.emit import can_draw
from .frame.flags import choose_fit_code
from .plan import Request, plan_model, read_request, write_plan

JOINT_PLAN = "joint_plan.json"
# Strategies of the screen unless `--strategy` is given; of two with the same score, the first wins.
#
# `exact-1f1b` is `exact` with `--metric training`, and is added for any other metric.
ALL_STRATEGIES = "exact,uniform,balanced_memory,balanced_compute,balanced_parameters"


def present_stages(request: Request) -> Planned:
    planned = plan_model(request)
    analyzer = GraphAnalyzer(planned.graph, micro_batches=request.micro_batches, states=request.states)
    return present_plan(
        planned.plan,
        analyzer,
        report=describe_plan(planned.plan, REPORT_WIDTH),
        metric=planned.request.metric or analyzer.usual_metric,
        write=partial(write_plan, planned),
    )


def show_arguments(arguments: Namespace, settings: Settings) -> int:
    if not can_draw(settings):
        raise UsageError("--screen needs a terminal that can draw; leave it out for tables, or use --json")
    if arguments.cluster is None:
        request = read_screen_request(arguments)
        make = partial(present_stages, request)
    else:
        make = partial(present_joint, arguments)
    shown: list[Planned] = []

    def keep() -> Planned:
        shown.append(make())
        return shown[-1]

    try:
        code = show_plan(keep, model=arguments.model or arguments.factory, settings=settings)
    except NothingFitsError as error:
        from .plan import say_nothing_fits

        return say_nothing_fits(error, arguments)
    does_fit = shown[0].best is not None if shown else None
    return code or choose_fit_code(arguments, does_fit=does_fit)


def present_joint(arguments: Namespace) -> Planned:
    from vramscope.engine.files.base.output_file import write_files
    from vramscope.exporters.json_lines import encode_line
    from vramscope.exporters.plan.joint import describe_joint_plan, report_joint_plan
    from vramscope.exporters.plan.outputs import take_configuration
    from vramscope.tui.plan.planned_joint import present_joint_plan

    from .plan import encode_outputs, make_joint_plan

    plan = make_joint_plan(arguments)
    report = report_joint_plan(plan)

    def write(folder: Path) -> list[Path]:
        outputs = encode_outputs(take_configuration(plan.configurations[0]))
        return write_files({**outputs.contents, JOINT_PLAN: encode_line(report)}, folder)

    return present_joint_plan(report, text=describe_joint_plan(report, REPORT_WIDTH), write=write)


def read_screen_request(arguments: Namespace) -> Request:
    """Return the request, with all strategies unless `--strategy` is given."""
    if arguments.strategy is None and not arguments.legacy:
        is_other = arguments.metric not in (None, "training")
        arguments.strategy = f"{ALL_STRATEGIES},exact-1f1b" if is_other else ALL_STRATEGIES
    return read_request(arguments)


def split_words(words: str) -> list[str]:
    """Return the command line of a typed line: a model, then flags of `vramscope plan`.

    Args:
        words: As on a command line; a number of stages may follow the model.
    """
    try:
        model, *flags = shlex.split(words)
    except ValueError as error:
        raise UsageError(f"{words}: expected a model, then flags of `vramscope plan`") from error
    if not {"-h", "--help"}.isdisjoint(flags):
        raise UsageError("for the flags, run `vramscope plan --help` in a shell")
    if flags and flags[0][0].isdecimal():
        flags.insert(0, "--stages")
    return ["plan", "--model", model, *flags]


def present_words(words: str, defaults: JobDefaults) -> Planned:
    """Return the plan of a typed line."""
    from .frame.parse import parse

    line = split_words(words)
    arguments = parse(line)
    if arguments.cluster is not None:
        return present_joint(arguments)
    given = {flag.partition("=")[0] for flag in line}
    if "--stages" not in given and defaults.stages is not None:
        arguments.stages = str(defaults.stages)
    if "--capacity" in given or arguments.legacy or defaults.capacity_bytes is None:
        return present_stages(read_screen_request(arguments))
    request = read_screen_request(arguments)
    device = request.device._replace(capacity_bytes=defaults.capacity_bytes)
    return present_stages(request._replace(device=device))
