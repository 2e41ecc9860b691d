"""Trees as drawings: where cells lie, what a page weighs, and that it works in a browser by keys alone."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.modules import BreakdownNode, lay_out_icicle, make_breakdown
from vramscope.cli.verbs.modules import read_named, write_charts
from vramscope.engine.files.module_memory import read_module_memory
from vramscope.exporters.modules.page import render_sunburst, write_sunbursts

from ...engine.probe.module_memory.profiles import make_large_tree, write_profile

MOST_PAGE_BYTES = 1_000_000
TREES = st.recursive(
    st.builds(BreakdownNode, st.just("leaf"), st.integers(0, 10**12), st.none() | st.integers(-5, 10**12)),
    lambda nodes: st.builds(
        BreakdownNode,
        st.just("node"),
        st.integers(0, 10**12),
        st.none(),
        st.lists(nodes, max_size=4).map(tuple),
    ),
    max_leaves=20,
)
KEYS = """
<script>
function press(key) {
  var event = new KeyboardEvent("keydown", { key: key, bubbles: true });
  document.getElementById("sunburst").dispatchEvent(event);
}
function rows() {
  var found = Array.from(document.querySelectorAll("#rows tr"));
  return found.map(function (row) { return row.innerText.trim(); });
}
var seen = [rows()];
press("ArrowRight"); press("ArrowRight"); press("Enter"); seen.push(rows());
press("ArrowRight"); seen.push(document.getElementById("tip").innerText);
press("Backspace"); seen.push(rows().length);
document.querySelectorAll("#bases button")[1].click(); seen.push(rows());
seen.push(document.querySelectorAll("#sunburst path").length);
document.documentElement.dataset.seen = JSON.stringify(seen);
</script>
"""


@settings(max_examples=50)
@given(tree=TREES)
def test_cells_lie_within_their_parents_and_beside_their_siblings(tree: BreakdownNode) -> None:
    cells = lay_out_icicle(tree, "computed")
    assert bool(cells) == bool(tree.computed_bytes)
    rows: dict[int, float] = {}
    above: dict[int, tuple[float, float]] = {0: (0.0, 1.0)}
    for cell in cells:
        assert cell.start >= rows.get(cell.depth, 0.0)
        assert above[cell.depth][0] <= cell.start <= cell.end <= above[cell.depth][1]
        assert cell.size_bytes > 0
        rows[cell.depth] = cell.end
        above[cell.depth + 1] = (cell.start, cell.end)


def test_a_page_of_a_large_model_is_small_and_needs_nothing_else() -> None:
    page = render_sunburst("Memory", ["all of it"], make_large_tree(), "measured").decode()
    assert len(page.encode()) <= MOST_PAGE_BYTES
    assert not re.search(r"""(?:src|href)=|@import|url\(|fetch\(|XMLHttp|import\(""", page)
    assert re.findall(r"https?://[^\s\"']+", page) == ["http://www.w3.org/2000/svg"]


def test_charts_of_a_profile_and_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = write_profile(tmp_path / "run" / "rank0_dp0_tp0", rank=0)
    names = [path.name for path in write_charts(read_named(one), tmp_path / "one")]
    pages = ["params_memory_sunburst.html", "activation_memory_sunburst.html", "summary_sunburst.html"]
    assert names == [*pages, "summary_icicle.pdf", "summary_icicle.svg"]
    page = (tmp_path / "one" / "summary_sunburst.html").read_text(encoding="utf-8")
    assert "Memory by module: all kinds, rank 0" in page
    assert "<b>" not in page
    data = re.search(r'id="data">(.*?)</script>', page)
    assert data is not None
    tree = json.loads(data.group(1))["tree"]
    assert tree[:3] == ["all kinds", 4396, 6656]
    assert (tmp_path / "one" / "summary_icicle.svg").read_text(encoding="utf-8").startswith("<?xml")
    write_profile(tmp_path / "run" / "rank1_dp0_tp0", rank=1)
    monkeypatch.setattr("vramscope.exporters.modules.figure.draw_icicle", lambda *given: None)
    folders = [path.parent.name for path in write_charts(read_named(tmp_path / "run"), tmp_path / "two")]
    assert folders == ["rank0_dp0_tp0"] * 5 + ["rank1_dp0_tp0"] * 5


def test_a_page_in_a_browser_by_keys(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    memory = read_module_memory(write_profile(tmp_path))
    write_sunbursts(memory, make_breakdown(memory), tmp_path)
    page = (tmp_path / "summary_sunburst.html").read_text(encoding="utf-8")
    (tmp_path / "keys.html").write_text(page.replace("</body>", f"{KEYS}</body>"), encoding="utf-8")
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'user'}",
        "--dump-dom",
    )
    result = subprocess.run(
        [browser, *options, f"file://{tmp_path / 'keys.html'}"],
        capture_output=True,
        encoding="utf-8",
        timeout=110,
        check=False,
    )
    found = re.search(r'data-seen="([^"]*)"', result.stdout)
    assert found is not None, result.stderr[-2000:]
    top, inside, tip, rows, computed, arcs = json.loads(html.unescape(found.group(1)))
    assert [row.split("\t") for row in top] == [
        ["parameters", "512 B", "300 B", "7.7 %"],
        ["activations", "6,144 B", "4,096 B", "92.3 %"],
    ]
    assert [row.split("\t")[0] for row in inside] == ["activations_0", "(outside of modules)"]
    assert tip.splitlines()[1:3] == ["measured 4,096 B", "computed 4,096 B"]
    assert (rows, arcs) == (2, 8)
    assert computed[0].split("\t")[-1] == "6.8 %"
