"""Figures of a plan: an exact width, the same bytes every time, alike layers once."""

import re

import pytest

from vramscope import GraphAnalyzer, create_gpt_model_graph
from vramscope.analyzers.planning.partition import Device, Strategy, make_plan
from vramscope.engine.errors import UsageError
from vramscope.exporters.plan.figure import draw_graph, draw_stages, fold_layers


def test_the_stages_are_drawn_alike_every_time_under_the_capacity() -> None:
    analyzer = GraphAnalyzer(create_gpt_model_graph("gpt-1.5b"))
    device = Device(capacity_bytes=12 << 30)
    plan = make_plan(analyzer, [4], ["exact", "exact-1f1b", "uniform"], metric="memory", device=device)
    page = draw_stages(plan, analyzer)
    pdf = page.render("pdf")
    assert pdf == draw_stages(plan, analyzer).render("pdf")
    assert b"/Type3" not in pdf
    assert re.search(rb"/MediaBox \[ 0 0 504 ", pdf), "seven inches wide"
    panels = [axes for axes in page.axes if axes.patches]
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == [
        "exact (recommended): at most 9.3 GiB",
        "exact-1f1b (least memory): at most 8.7 GiB",
        "uniform: at most 10.0 GiB",
    ]
    fullest = max(patch.get_window_extent().y1 for patch in panels[0].patches)
    scale = panels[0].transData.transform([(0, max(plan.recommended.training_bytes or ()) / 2**30), (0, 12)])
    assert fullest == pytest.approx(scale[0][1])
    assert panels[0].lines[0].get_window_extent().y1 == pytest.approx(scale[1][1])


@pytest.mark.parametrize(
    "strategies", [["exact"], ["exact", "uniform"], ["exact", "uniform", "balanced_memory"]]
)
def test_nothing_of_a_plan_lies_outside_the_page(strategies: list[Strategy]) -> None:
    analyzer = GraphAnalyzer(create_gpt_model_graph("gpt-1.5b"))
    plan = make_plan(analyzer, [8], strategies, device=Device(capacity_bytes=80 << 30))
    page = draw_stages(plan, analyzer)
    inside = page.bbox.padded(0.5)
    drawn = [page.legends[0], *page.axes, *(axes.yaxis.label for axes in page.axes if axes.get_ylabel())]
    for artist in drawn:
        box = artist.get_tightbbox() if hasattr(artist, "get_tightbbox") else artist.get_window_extent()
        assert box is not None
        assert inside.contains(box.x0, box.y0), artist
        assert inside.contains(box.x1, box.y1), artist


def test_layers_that_are_alike_are_drawn_once() -> None:
    folded = fold_layers(create_gpt_model_graph("deepseek-v3", seq_length=64).layers)
    assert [len(each.layers) for each in folded] == [1, 3, 58, 1, 1]
    page = draw_graph(create_gpt_model_graph("t5-small"))
    told = " ".join(text.get_text() for text in page.axes[0].texts)
    assert "decoder block × 5" in told
    assert "a: 1.00" in told, "the encoder hands on to every block of the decoder"
    assert page.render("svg") == page.render("svg")


def test_what_a_figure_cannot_show_is_refused() -> None:
    graph = create_gpt_model_graph("gpt-1.5b")
    graph.layers = graph.layers[:2] * 40
    with pytest.raises(UsageError, match=r"at most 60 runs of alike layers, and gpt-1\.5b has 80"):
        draw_graph(graph)
