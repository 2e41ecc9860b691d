"""Figures of a plan: each in the file that was named for it, or all in a folder."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from vramscope.analyzers.planning.partition import GraphAnalyzer
from vramscope.engine.errors import UsageError

from .frame.diagnostics import complain
from .frame.figure_flag import FigureTarget
from .planning import Planned


def check_figures(arguments: Namespace) -> None:
    """Look at the places of figures before anything is computed; a folder is made where it is missing.

    Raises:
        OutputFileError: A file could not be written there.
    """
    for target in (arguments.figure, arguments.graph_figure):
        if target is not None:
            target.check()


def draw_figures(planned: Planned, arguments: Namespace) -> list[Path]:
    """Draw the stages and the graph where that was asked for; return the files.

    Raises:
        UsageError: There is more than a figure can show.
        OutputFileError: A file cannot be written.
    """
    figure: FigureTarget | None = arguments.figure
    graph: FigureTarget | None = arguments.graph_figure
    paths: list[Path] = []
    if figure is not None:
        paths += _draw_stages(planned, figure)
    if graph is not None:
        paths += _draw_graph(planned, graph)
    elif figure is not None and figure.is_folder:
        try:
            paths += _draw_graph(planned, figure)
        except UsageError as error:
            complain(f"the graph is not drawn: {error}", program="vramscope plan")
    return paths


def _draw_stages(planned: Planned, target: FigureTarget) -> Iterator[Path]:
    from vramscope.exporters.figures.page import save_figure
    from vramscope.exporters.plan.figure import draw_stages

    request = planned.request
    analyzer = GraphAnalyzer(planned.graph, micro_batches=request.micro_batches, states=request.states)
    page = draw_stages(planned.plan, analyzer)
    for path in target.list_files("stages"):
        save_figure(page, path)
        yield path


def _draw_graph(planned: Planned, target: FigureTarget) -> Iterator[Path]:
    from vramscope.exporters.figures.page import save_figure
    from vramscope.exporters.plan.figure import draw_graph

    page = draw_graph(planned.graph)
    for path in target.list_files("graph"):
        save_figure(page, path)
        yield path
