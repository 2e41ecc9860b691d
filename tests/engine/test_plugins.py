"""Plug-ins come from entry points; a broken one becomes a sentence, never a crash."""

import sys
from pathlib import Path

import pytest

from vramscope.engine.errors import UsageError
from vramscope.engine.plugins import (
    choose_analyzers,
    find_entry_points,
    make_analyzers,
    make_plugins,
    make_sources,
)


def install(folder: Path, name: str, entry_points: str, module: str) -> None:
    """Put a distribution with one module into a folder, as pip would."""
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entry_points)
    (folder / f"{name}.py").write_text(module)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return folder


def test_the_analyzers_of_vramscope_itself_are_found_installed_or_not() -> None:
    plugins = make_analyzers()
    assert plugins.notes == []
    assert {"capacity", "pressure"} <= {analyzer.name for analyzer in plugins.made}


def test_an_editable_installation_older_than_the_source_tree_lacks_nothing(site: Path) -> None:
    old = "[vramscope.analyzers]\npressure = vramscope.analyzers.pressure:PressureAnalyzer\n"
    install(site, "vramscope", old, "")
    (site / "vramscope.py").unlink()
    found = {point.name: point.metadata for point in find_entry_points("vramscope.analyzers")}
    assert found["pressure"] is not None
    assert "capacity" in found


def test_a_source_of_another_distribution_is_made(site: Path) -> None:
    module = "class Fans:\n    name = 'fans'\n"
    install(site, "other_source", "[vramscope.sources]\nfans = other_source:Fans\n", module)
    plugins = make_sources()
    assert "fans" in [source.name for source in plugins.made]
    assert plugins.notes == []


def test_each_call_makes_new_objects(site: Path) -> None:
    install(site, "fresh_source", "[vramscope.sources]\nfresh = fresh_source:Fresh\n", "class Fresh: pass\n")
    assert make_plugins("vramscope.sources").made[0] is not make_plugins("vramscope.sources").made[0]


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("raise SystemExit('no')\n", "SystemExit: no"),
        ("def Broken():\n    raise ValueError('no card')\n", "ValueError: no card"),
        ("", "AttributeError"),
    ],
)
def test_a_broken_plug_in_is_named_with_its_distribution_and_error(
    site: Path, module: str, told: str, request: pytest.FixtureRequest
) -> None:
    name = f"broken_{abs(hash(request.node.name))}"
    own = len(make_sources().made)
    install(site, name, f"[vramscope.sources]\nbroken = {name}:Broken\n", module)
    plugins = make_sources()
    assert len(plugins.made) == own
    (note,) = plugins.notes
    assert note.startswith(f"source plug-in broken ({name}:Broken, of {name} 1.2) was left out: ")
    assert told in note


def test_a_broken_plug_in_does_not_keep_the_others_away(site: Path) -> None:
    install(site, "bad_one", "[vramscope.analyzers]\na_bad = bad_one:Bad\n", "1/0\n")
    plugins = make_analyzers()
    assert "pressure" in [analyzer.name for analyzer in plugins.made]
    assert len(plugins.notes) == 1


def test_analyzers_are_chosen_by_name_and_one_that_is_none_is_told_with_the_nearest() -> None:
    chosen = choose_analyzers("leak, pressure")
    assert [it.name for it in make_analyzers(chosen).made] == ["leak", "pressure"]
    for typed, told in (
        ("pressure,leek", "unknown analyzer 'leek': did you mean leak?"),
        ("", "known are capacity,"),
    ):
        with pytest.raises(UsageError, match="--analyzers") as found:
            choose_analyzers(typed)
        assert told in str(found.value)


def test_a_name_that_two_distributions_offer_is_taken_once(tmp_path: Path, site: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    sys.path.append(str(second))  # the fixture's list, which goes with the test
    install(site, "first_fan", "[vramscope.sources]\nfan = first_fan:Fan\n", "class Fan: pass\n")
    install(second, "second_fan", "[vramscope.sources]\nfan = second_fan:Fan\n", "class Fan: pass\n")
    offered = [entry_point.value for entry_point in find_entry_points("vramscope.sources")]
    assert [value for value in offered if value.endswith(":Fan")] == ["first_fan:Fan"]
