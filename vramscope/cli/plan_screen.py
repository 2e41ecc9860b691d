"""The screen of `vramscope plan`: what it shows, and the files behind its export."""

from functools import partial

from vramscope.analyzers.partition import GraphAnalyzer
from vramscope.engine.settings import Settings
from vramscope.exporters.partition_table import describe_plan
from vramscope.tui.inspected import REPORT_WIDTH
from vramscope.tui.plan_app import show_plan
from vramscope.tui.planned import Planned
from vramscope.tui.planned_partition import present_plan

from .planning import Request, plan_model, write_plan


def present_stages(request: Request) -> Planned:
    """Return the plan of a request as the screen shows it.

    Raises:
        UsageError: The model is unknown, or nothing can be done with it.
        InputFileError: Its file cannot be read or understood.
    """
    planned = plan_model(request)
    analyzer = GraphAnalyzer(planned.graph, micro_batches=request.micro_batches, states=request.states)
    return present_plan(
        planned.plan,
        analyzer,
        report=describe_plan(planned.plan, REPORT_WIDTH),
        write=partial(write_plan, planned),
    )


def show_stages(request: Request, settings: Settings) -> int:
    """Show the plan of a request until the user quits, and return the exit code.

    Raises:
        UsageError: Nothing can be drawn here, or nothing can be done with the model.
        InputFileError: The model's file cannot be read or understood.
    """
    return show_plan(partial(present_stages, request), model=request.model, settings=settings)
