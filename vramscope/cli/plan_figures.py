"""Figures of a plan, each in the file that was named for it."""

from argparse import Namespace
from pathlib import Path

from vramscope.analyzers.partition import GraphAnalyzer

from .planning import Planned


def check_figures(arguments: Namespace) -> None:
    """Look at the names of figures before anything is computed.

    Raises:
        UsageError: A name ends in no known format.
    """
    if not (given := _list_flags(arguments)):
        return
    from vramscope.exporters.figures.saving import find_format

    for flag, path in given:
        find_format(flag, path)


def draw_figures(planned: Planned, arguments: Namespace) -> list[Path]:
    """Draw the stages and the graph where that was asked for; return the files.

    Raises:
        UsageError: There is more than a figure can show.
        OutputFileError: A file cannot be written.
    """
    if not (given := _list_flags(arguments)):
        return []
    from vramscope.exporters.figures.plan_graph import draw_graph
    from vramscope.exporters.figures.plan_stages import draw_stages
    from vramscope.exporters.figures.saving import find_format, save_figure

    request = planned.request
    analyzer = GraphAnalyzer(planned.graph, micro_batches=request.micro_batches, states=request.states)
    paths = []
    for flag, path in given:
        page = draw_stages(planned.plan, analyzer) if flag == "--figure" else draw_graph(planned.graph)
        save_figure(page, path, find_format(flag, path))
        paths.append(path)
    return paths


def _list_flags(arguments: Namespace) -> list[tuple[str, Path]]:
    given = (("--figure", arguments.figure), ("--graph-figure", arguments.graph_figure))
    return [(flag, path) for flag, path in given if path is not None]
