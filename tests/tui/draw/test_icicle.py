"""An icicle in cells: rows of one width, blocks in order and apart, each over what it holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vramscope.analyzers.modules import BreakdownNode, lay_out_icicle
from vramscope.tui.draw.blocks import draw_icicle
from vramscope.tui.draw.glyphs import ASCII, UNICODE, Glyphs
from vramscope.tui.draw.spans import line_text, line_width


def node(name: str, own: int, *children: BreakdownNode) -> BreakdownNode:
    size = own + sum(child.computed_bytes or 0 for child in children)
    return BreakdownNode(name, size, size, children)


def number(children: list[BreakdownNode]) -> list[BreakdownNode]:
    """Return nodes of different names, as those of one module are."""
    return [replace(child, name=f"{place}{child.name}") for place, child in enumerate(children)]


TREES = st.recursive(
    st.builds(node, st.text(max_size=12), st.integers(0, 1 << 40)),
    lambda inner: st.builds(
        lambda name, own, children: node(name, own, *number(children)),
        st.text(max_size=12),
        st.integers(0, 1 << 40),
        st.lists(inner, max_size=5),
    ),
    max_leaves=20,
)


@given(tree=TREES, width=st.integers(1, 150), glyphs=st.sampled_from([UNICODE, ASCII]))
def test_blocks_fill_rows_in_order_and_lie_below_their_parents(
    tree: BreakdownNode, width: int, glyphs: Glyphs
) -> None:
    cells = lay_out_icicle(tree, "computed")
    drawn = draw_icicle(cells, width, glyphs)
    assert all(line_width(line) == width for line in drawn.lines)
    if glyphs is ASCII:
        assert all(line_text(line).isascii() for line in drawn.lines)
    assert len(drawn.boxes) + drawn.narrow == len(cells)
    for one, other in zip(drawn.boxes, drawn.boxes[1:], strict=False):
        assert one.row < other.row or one.end <= other.first
    for box in drawn.boxes:
        assert 0 <= box.first < box.end <= width
        assert abs((box.end - box.first) - (box.cell.end - box.cell.start) * width) <= 1
    at = {box.cell.path: box for box in drawn.boxes}
    for path, box in at.items():
        above = at.get(path[:-1])
        if path and above is not None:
            assert above.first <= box.first
            assert box.end <= above.end


@pytest.mark.parametrize(
    ("glyphs", "rows"),
    [
        (UNICODE, ["█model █████████████████", "█attention ██▓mlp ▓▎    "]),
        (ASCII, ["#model #################", "#attention ##%mlp %     "]),
    ],
    ids=["unicode", "ascii"],
)
def test_names_stand_in_blocks_and_the_last_one_ends_within_a_cell(glyphs: Glyphs, rows: list[str]) -> None:
    tree = node("model", 400, node("attention", 1120), node("mlp", 520), node("norm", 2))
    drawn = draw_icicle(lay_out_icicle(tree, "computed"), 24, glyphs)
    assert [line_text(line) for line in drawn.lines] == rows
    assert drawn.narrow == 1


def test_the_chosen_block_is_marked_without_colour() -> None:
    tree = node("model", 0, node("a", 50), node("b", 50))
    drawn = draw_icicle(lay_out_icicle(tree, "computed"), 20, UNICODE, chosen=("b",))
    assert [line_text(line) for line in drawn.lines][1].index(UNICODE.selected) == 10
