"""`E` on the fleet writes what is seen of all nodes: a picture, a table of devices, and all of it as JSON."""

import csv
import json
from pathlib import Path

import jsonschema

from tests import REPOSITORY
from tests.analyzers.fleet.nodes import make_node
from tests.analyzers.fleet.several import SeveralNodes, make_nodes_app, wait_for_text
from tests.tui.looks import notices
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.exporters.schema import build_schema, render_schema


async def test_the_fleet_is_exported_as_it_is_seen(tmp_path: Path) -> None:
    lost = Snapshot(node="n3", connection="lost", reason="the connection is cut")
    feed = SeveralNodes(make_node("n1", 2, level="low"), make_node("n2", 2, level="low", oom=1), lost)
    app = make_nodes_app(feed, export_folder=tmp_path)
    async with app.run_test(size=(100, 24)) as pilot:
        await wait_for_text(pilot, "2 of 3 nodes")
        await pilot.press("E", "slash", *"tp:1", "enter")
        await wait_for_text(pilot, "devices 2 of 4")
        await pilot.press("E")
        assert notices(app)[0].count("vramscope-") == 3
    whole, filtered = sorted(tmp_path.glob("*.csv"), key=lambda path: len(path.name))
    rows = list(csv.DictReader(whole.read_text("utf-8").splitlines()))
    assert {(row["node"], row["label"]) for row in rows} == {(n, g) for n in ("n1", "n2") for g in ("0", "1")}
    [grave] = [row for row in rows if row["level"] == "critical"]
    assert (grave["node"], grave["rank"], grave["jobs"], grave["oom_in_s"]) == ("n2", "1", "gpt-485b", "76.0")
    seen = json.loads(filtered.with_suffix(".json").read_text("utf-8"))
    jsonschema.Draft202012Validator(build_schema("fleet")).validate(seen)
    assert [device["node"] for device in seen["devices"]] == ["n2", "n1"]
    assert {node["name"]: node["reason"] for node in seen["nodes"]}["n3"] == "the connection is cut"
    assert "n3" in whole.with_suffix(".svg").read_text("utf-8")


def test_the_schema_in_the_documents_is_that_of_the_program() -> None:
    assert (REPOSITORY / "docs" / "fleet.schema.json").read_text("utf-8") == render_schema("fleet")
