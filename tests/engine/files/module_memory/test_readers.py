"""Reading profiles: ours, memory.log as the original writes it, its charts; and what is none of them."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.modules import find_node, make_breakdown
from vramscope.engine.errors import InputFileError
from vramscope.engine.files.module_memory import find_profiles, read_module_memory
from vramscope.engine.model.sample import LayoutEntry
from vramscope.exporters.modules.page import join_kinds

from ...probe.module_memory.profiles import CHART, LAYOUT, STATE, write_lines, write_profile

MIB = 1 << 20


def test_exact_bytes_come_back(tmp_path: Path) -> None:
    memory = read_module_memory(write_profile(tmp_path, rank=3, tp=1, world_size=8, source="Megatron"))
    assert memory.rank is not None
    assert (memory.rank.rank, memory.rank.tp, memory.rank.dp, memory.device) == (3, 1, None, "cuda:0")
    breakdown = make_breakdown(memory)
    assert breakdown.find("params").measured_bytes == 512
    assert breakdown.find("activation").measured_bytes == 6144
    assert breakdown.find("grads").measured_bytes is None
    assert (breakdown.allocated_bytes, breakdown.unattributed_bytes) == (7000, None)
    assert make_breakdown(memory, 0).find("params").tree is None


def test_a_memory_log_of_the_original(tmp_path: Path) -> None:
    path = tmp_path / "rank3_dp1_wp0_tp1" / "memory.log"
    path.parent.mkdir()
    forward = STATE.format(time="38.25", activation="17638.00")
    path.write_text(f"{STATE.format(time='37.56', activation='0.00')}{LAYOUT}\n{forward}stray\n\n")
    memory = read_module_memory(path)
    assert [(moment.tag, moment.time_s) for moment in memory.moments] == [
        ("backward", 37.56),
        ("forward", 38.25),
    ]
    assert "1 record was left out: line 23: 'stray' is not a line of a memory.log" in memory.notes
    breakdown = make_breakdown(memory)
    assert breakdown.find("activation").computed_bytes == 17638 * MIB
    assert breakdown.find("os_state").computed_bytes == round(6923.03 * MIB)
    params = breakdown.find("params").tree
    assert params is not None
    weight = find_node(params, ("embedding", "weight"))
    assert weight is not None
    assert (weight.computed_bytes, weight.measured_bytes) == (806 * MIB, None)
    assert memory.moments[0].layouts["activation"][-1] == LayoutEntry("activations_1.", -1572864, None)


def test_an_excerpt_of_a_log_says_what_its_lines_leave_out(tmp_path: Path) -> None:
    path = tmp_path / "memory.log"
    path.write_text(STATE.format(time="37.56", activation="17638.00") + LAYOUT)
    memory = read_module_memory(path)
    params = make_breakdown(memory).find("params").tree
    assert params is not None
    assert params.computed_bytes == round(13965.51 * MIB)
    sizes = {node.name: round((node.computed_bytes or 0) / MIB, 2) for node in params.children}
    assert sizes == {"embedding": 806.0, "blocks": 0.02, "not listed": 13965.51 - 806.0 - 0.02}
    whole = join_kinds(memory, "summary_sunburst")
    assert whole is not None
    listed = {node.name: round((node.computed_bytes or 0) / MIB, 2) for node in whole.children}
    assert listed == {
        "parameters": 13965.51,
        "gradients": 13965.51,
        "optimizer parameters": 3461.52,
        "optimizer state": 6923.03,
        "activations": 17638.0,
    }


def test_an_excerpt_without_the_line_of_the_whole_takes_the_total_of_the_summary(tmp_path: Path) -> None:
    path = tmp_path / "memory.log"
    lines = LAYOUT.replace("layer: param_mem, layer_mem: 0.00 MB, total_mem: 13965.51 MB\n", "")
    path.write_text(STATE.format(time="37.56", activation="0.00") + lines)
    params = make_breakdown(read_module_memory(path)).find("params").tree
    assert params is not None
    assert params.computed_bytes == round(13965.51 * MIB)


def test_a_chart_of_the_original(tmp_path: Path) -> None:
    path = tmp_path / "params_memory_sunburst.html"
    path.write_text(CHART)
    memory = read_module_memory(path)
    params = make_breakdown(memory).find("params")
    assert params.computed_bytes == 806 * MIB
    assert params.tree is not None
    assert [node.name for node in params.tree.children] == ["embedding", "norm"]
    assert "rounded down" in memory.notes[-1]
    path.write_text(path.read_text().replace("params_memory_sunburst", "sales"))
    with pytest.raises(InputFileError, match="the chart is 'sales'; expected params_memory_sunburst"):
        read_module_memory(path)


def test_the_charts_of_a_folder_are_one_profile(tmp_path: Path) -> None:
    folder = tmp_path / "rank3_dp1_tp1"
    folder.mkdir()
    (folder / "params_memory_sunburst.html").write_text(CHART)
    grads = CHART.replace("params_memory", "grads_memory").replace("806", "400")
    (folder / "grads_memory_sunburst.html").write_text(grads)
    sums = [{"name": "params", "value": 800}, {"name": "os_state", "value": 70}]
    option = {"series": [{"name": "summary", "data": sums}]}
    page = f"<script>\n    var option_{'0b' * 16} = {json.dumps(option, indent=4)};\n</script>"
    (folder / "summary_sunburst.html").write_text(page)
    (folder / "report_sunburst.html").write_text("<p>of another tool</p>")
    assert find_profiles(tmp_path) == [folder] == find_profiles(folder)
    memory = read_module_memory(folder)
    assert memory.rank is not None
    assert memory.rank.rank == 3
    found = {kind: size.computed_bytes for kind, size in memory.moments[0].kinds.items()}
    assert found == {"params": 806 * MIB, "grads": 400 * MIB, "os_state": 70 * MIB}
    assert memory.notes[-1] == "no chart has os_params, activation"


def test_a_page_that_is_named_as_a_chart_and_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "params_memory_sunburst.html").write_text("<html></html>")
    with pytest.raises(InputFileError, match=r"and params_memory_sunburst\.html has no such chart; expected"):
        find_profiles(tmp_path)


def test_profiles_of_a_folder_are_in_the_order_of_ranks(tmp_path: Path) -> None:
    for rank in (10, 2):
        write_profile(tmp_path / f"rank{rank}_dp0_tp0", rank=rank)
    (tmp_path / "rank2_dp0_tp0" / "memory.log").write_text(STATE)
    (tmp_path / "rank0_dp0_tp0").mkdir()
    (tmp_path / "rank0_dp0_tp0" / "memory.log").write_text(STATE)
    found = [(path.parent.name, path.name) for path in find_profiles(tmp_path)]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputFileError, match="no profile by module in this folder"):
        find_profiles(tmp_path / "empty")
    exact = "module_memory.jsonl"
    assert found == [("rank0_dp0_tp0", "memory.log"), ("rank2_dp0_tp0", exact), ("rank10_dp0_tp0", exact)]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([{"schema": "vramscope.modules/2"}], "schema is 'vramscope.modules/2'; this vramscope reads"),
        ([{"schema": "vramscope.modules/1"}], "no usable moment; it is empty"),
        ([{"schema": "vramscope.modules/1"}, {"tag": 3}], "line 2: Expected `str`, got `int`"),
        (
            [
                {"schema": "vramscope.modules/1"},
                {"tag": "", "time_s": 0, "kinds": {}, "allocated_bytes": 1 << 60},
            ],
            "line 2: a size, time or path out of range",
        ),
        ([{"time": 1}], "no memory by module in it; expected memory.log of SimpleMemoryProfiler"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(
    tmp_path: Path, lines: list[dict[str, object]], why: str
) -> None:
    path = write_lines(tmp_path / "module_memory.jsonl", *lines)
    with pytest.raises(InputFileError) as caught:
        read_module_memory(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert why in str(caught.value)


@settings(max_examples=50)
@given(edits=st.lists(st.tuples(st.integers(0, 900), st.text(max_size=5), st.integers(0, 9)), max_size=6))
def test_a_damaged_log_is_read_or_refused(
    edits: list[tuple[int, str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = STATE.format(time="1.0", activation="0.00") + LAYOUT
    for at, new, removed in edits:
        text = text[:at] + new + text[at + removed :]
    path = tmp_path_factory.getbasetemp() / "damaged.log"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        memory = read_module_memory(path)
    except InputFileError:
        return
    make_breakdown(memory)
    assert all(note.isprintable() for note in memory.notes)
