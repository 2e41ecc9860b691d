"""Two profiles held against each other: which module is which, what is told, what is drawn."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.probe.module_memory.profiles import write_lines
from vramscope.analyzers.modules import (
    BreakdownNode,
    compare_trees,
    find_node,
    lay_out_icicle,
    list_unmatched,
    make_span_tree,
)
from vramscope.cli.frame.parse import parse
from vramscope.cli.verbs.modules import run
from vramscope.engine.errors import InputFileError, UsageError

LEAVES = st.builds(BreakdownNode, st.sampled_from("abc"), st.none(), st.none() | st.integers(0, 100))
TREES = st.recursive(
    LEAVES,
    lambda nodes: st.builds(
        BreakdownNode,
        st.sampled_from("abc"),
        st.none(),
        st.integers(0, 300),
        st.lists(nodes, max_size=3).map(tuple),
    ),
    max_leaves=8,
)


def write_rank(folder: Path, entries: dict[str, int], rank: int | None = None, saved: int = 0) -> Path:
    """Write a profile of one moment with parameters by path, and what was saved by one module."""
    layouts = {"params": [[f"param_mem.{path}", size, size] for path, size in entries.items()]}
    kinds = {"params": {"computed_bytes": sum(entries.values()), "measured_bytes": sum(entries.values())}}
    if saved:
        layouts["activation"] = [["activations_0.up", saved, saved], ["(outside of modules)", 0, 0]]
        kinds["activation"] = {"computed_bytes": saved, "measured_bytes": saved}
    head = {"schema": "vramscope.modules/1", "device": "cuda:0", "is_simulated": True, "rank": rank}
    moment = {"tag": "step 1", "time_s": 1, "kinds": kinds, "layouts": layouts}
    return write_lines(folder / "module_memory.jsonl", head, moment)


@pytest.mark.parametrize(
    "prefix",
    ["module.", "_orig_mod.", "_module.", "_orig_mod.module.", "module._fsdp_wrapped_module._orig_mod."],
)
def test_a_wrapped_model_is_the_same_model(
    prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = write_rank(tmp_path / "plain", {"up.weight": 400, "head.weight": 100}, saved=64)
    wrapped = write_rank(tmp_path / "wrapped", {f"{prefix}up.weight": 500, f"{prefix}head.weight": 100})
    run(parse(["modules", str(plain), str(wrapped), "--json"]))
    told = json.loads(capsys.readouterr().out)
    assert told["difference_bytes"] == 100 - 64
    assert (told["only_in_first"], told["only_in_second"]) == (["activations"], [])
    parameters, activations = told["tree"]["children"]
    assert [(it["name"], it["first_bytes"], it["second_bytes"]) for it in parameters["children"]] == [
        ("up", 400, 500),
        ("head", 100, 100),
    ]
    assert [child["name"] for child in activations["children"]][:1] == ["up"], "of its only chunk"


def test_a_module_that_is_called_module_is_no_wrapper(tmp_path: Path) -> None:
    def make(*names: str) -> BreakdownNode:
        parts = tuple(BreakdownNode(name, 8, 8, (BreakdownNode("w", 8, 8),)) for name in names)
        return BreakdownNode("all", 8, 8, (BreakdownNode("parameters", 8, 8, parts),))

    tree = compare_trees(make("module", "head"), make("head"), "measured")
    (first, second) = list_unmatched(tree)
    assert [row.path for row in first] == [("module",)]
    assert second == []


@given(TREES, TREES)
def test_blocks_have_room_for_the_larger_of_both_and_for_what_is_in_them(
    first: BreakdownNode, second: BreakdownNode
) -> None:
    tree = compare_trees(first, second, "measured")
    for cell in lay_out_icicle(make_span_tree(tree), "measured"):
        node = find_node(tree, cell.path)
        assert node is not None
        assert cell.size_bytes >= max(node.first_bytes or 0, node.second_bytes or 0)


def test_what_differs_is_told_drawn_and_tabled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write_rank(tmp_path / "one", {"up.weight": 4 << 20, "old.weight": 1 << 20})
    other = write_rank(tmp_path / "other", {"up.weight": 6 << 20, "new.weight": 2 << 20})
    output = tmp_path / "difference"
    run(parse(["modules", str(one), str(other), "--figure", f"{output}/", "--format", "text", "--ascii"]))
    text = capsys.readouterr().out
    assert "+3 MiB: 5 MiB in the first, 8 MiB in the second, measured; most of parameters" in text
    assert "(simulated device)" in " ".join(text.split())
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines.index("parameters up.weight 4 MiB 6 MiB +2 MiB +50.0 %") < lines.index(
        "parameters old 1 MiB none -1 MiB -100 %"
    )
    assert "parameters new none 2 MiB +2 MiB" in lines
    assert "only in the first: parameters old" in lines
    rows = {row["path"]: row for row in csv.DictReader((output / "differences.csv").read_text().splitlines())}
    assert rows["all kinds/parameters/up/weight"]["difference_bytes"] == str(2 << 20)
    assert rows["all kinds/parameters/new"]["only_in"] == "second"
    drawn = (output / "difference_icicle.svg").read_text()
    assert "simulated device" in drawn
    assert (output / "difference_icicle.pdf").read_bytes().startswith(b"%PDF")


def test_ranks_are_compared_by_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, ranks in (("one", (0, 1)), ("other", (1, 2)), ("third", (5, 6))):
        for rank in ranks:
            write_rank(tmp_path / name / f"rank{rank}_dp{rank}_tp0", {"w": 10 + rank}, rank)
    run(parse(["modules", str(tmp_path / "one"), str(tmp_path / "other"), "--json"]))
    told = capsys.readouterr()
    (line,) = told.out.splitlines()
    assert json.loads(line)["first"]["rank"]["rank"] == json.loads(line)["second"]["rank"]["rank"] == 1
    assert "rank 0 is left out: the other run has no such rank" in told.err
    assert "rank 2 is left out: the other run has no such rank" in told.err
    with pytest.raises(InputFileError, match="no rank in common"):
        run(parse(["modules", str(tmp_path / "one"), str(tmp_path / "third")]))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "expected FILE or DIR, or --pid PID or --job NAME"),
        (["a", "b", "c"], "expected one, or two to compare; --screen"),
        (["a", "--pid", "1"], "does not go with --pid or --job"),
        (["--pid", "1", "--job", "x"], "--pid does not go with --job"),
        (["--pid", "1", "--screen"], "press 7"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_a_sentence(words: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        run(parse(["modules", *words]))
