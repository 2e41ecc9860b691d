"""Screens over files of others do all their work confined; `tests/engine/sandbox` tries to break out."""

import json
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import REPOSITORY
from vramscope.engine.sandbox import find_protection

from ...analyzers.planning.sweep.original import write_original
from ...analyzers.planning.theory.test_configs import HUGGING_FACE
from ...engine.files.traces import rank_name, trace, write_trace
from ...engine.probe.module_memory.profiles import write_profile
from ...tui.panes import PROGRAM, Pane, pane

SVG = b"<svg"


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Return a recorded run of one rank."""
    rows = [(0.5 * tick, 40_000.0 + 100 * (tick % 50), 30_000.0) for tick in range(240)]
    write_trace(tmp_path / "run", rank_name(0, "_wd1_tp1_pp1_l40_bs1"), trace(rows))
    return tmp_path / "run"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Return the current folder of the program, which is empty."""
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@contextmanager
def screen(words: str, here: Path, **variables: str) -> Iterator[Pane]:
    given = {"PYTHONPATH": str(REPOSITORY), "HOME": str(here.parent / "home"), "XDG_CONFIG_HOME": ""}
    with pane(f"cd {shlex.quote(str(here))}; {PROGRAM} {words}", {**given, **variables}) as opened:
        yield opened


def answer(opened: Pane, key: str, question: str, path: str) -> None:
    """Open a tool by its key, and type a path."""
    opened.press(key)
    opened.wait_for(question)
    if "e.g. " not in opened.look():
        opened.press("C-u")  # the last input
        opened.wait_for(question, "e.g. ")
    opened.press(*path)
    opened.wait_for(path)
    opened.press("Enter")


def test_a_replay_exports_here_and_saves_how_it_looks_and_nothing_else(run_folder: Path, here: Path) -> None:
    config = here.parent / "home/.config/vramscope/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("# mine\ninterval = 2.0\n")
    with screen(f"replay {run_folder} --capacity 80GiB", here) as opened:
        opened.wait_for("recorded trace", "q quit")
        opened.press("E")
        opened.wait_for("Wrote vramscope-")
        opened.press("T")
        opened.wait_for("Theme: light")
        opened.press("F12")
        opened.wait_for("Settings saved to ")
        opened.press("q")
        opened.wait_for("exit code 0")
    assert {path.suffix for path in here.iterdir()} == {".svg", ".json"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in here.iterdir())
    assert next(here.glob("*.svg")).read_bytes().startswith(SVG)
    saved = config.read_text()
    assert saved.startswith("# mine\n")
    assert {"interval": 2.0, "theme": "light"}.items() <= tomllib.loads(saved).items()


def test_a_replay_says_why_its_settings_are_not_saved(run_folder: Path, here: Path) -> None:
    with screen(f"replay {run_folder} --config {here}/mine.toml", here) as refused:
        refused.wait_for("mine.toml", "exit code 2")
    (here / "mine.toml").write_text("")
    with screen(f"replay {run_folder} --config {here}/mine.toml", here) as opened:
        opened.wait_for("recorded trace", "q quit")
        (here / "mine.toml").write_text("wrong = \n")
        opened.press("F12")
        opened.wait_for("Settings not saved: ", "mine.toml")


@pytest.mark.skipif(not find_protection().is_whole, reason="this kernel lacks Landlock or seccomp")
def test_over_a_replay_a_tool_opens_what_was_named_and_says_how_to_open_the_rest(
    run_folder: Path, here: Path
) -> None:
    (here / "elsewhere").mkdir()
    with screen(f"replay {run_folder}", here) as opened:
        opened.wait_for("recorded trace", "q quit")
        for key, question, verb in (
            ("5", "Sweeps over TP and PP", "vramscope sweep"),
            ("6", "Plan the stages", "vramscope plan"),
            ("7", "Memory by module", "vramscope modules"),
        ):
            answer(opened, key, question, "elsewhere")
            opened.wait_for("opens only the files", verb)
            opened.leave(question)
        answer(opened, "5", "Sweeps over TP and PP", "../run")
        opened.wait_for("Enter replay")


def test_over_a_replay_a_plan_of_a_known_model_is_shown_and_written(run_folder: Path, here: Path) -> None:
    with screen(f"replay {run_folder}", here) as opened:
        opened.wait_for("recorded trace", "q quit")
        opened.press("6")
        opened.wait_for("Plan the stages")
        opened.press(*"gpt-1.5b", "Enter")
        opened.wait_for("layers, 1,635,537,600 parameters")
        opened.press("E")
        opened.wait_for("Wrote ")
    [made] = here.iterdir()
    assert {"plan.svg", "plan.txt", "torchtitan.toml"} <= {it.name for it in made.iterdir()}


def test_a_plan_of_a_file_is_shown_and_written(here: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(HUGGING_FACE))
    with screen(f"plan --model {tmp_path}/config.json --stages 2 --screen", here) as opened:
        opened.wait_for("Enter open", "parameters")
        opened.press("E")
        opened.wait_for("Wrote ")
    [made] = here.iterdir()
    assert {"plan.svg", "plan.txt", "torchtitan.toml"} <= {it.name for it in made.iterdir()}


def test_a_sweep_replays_its_runs_and_is_drawn_here(here: Path, tmp_path: Path) -> None:
    write_original(tmp_path / "sweeps")
    with screen(f"sweep {tmp_path}/sweeps", here) as opened:
        opened.wait_for("E export", "485B")
        opened.press("E")
        opened.wait_for("Wrote vramscope-sweep-")
        opened.press("Enter")
        opened.wait_for("configuration 6 of 6")
        opened.press("{")
        opened.wait_for("configuration 5 of 6")
        opened.press("T")
        opened.wait_for("Theme: light")
        opened.press("F12")
        opened.wait_for("Settings saved to ")
        opened.press("q")
        opened.wait_for("Enter replay")
        opened.press("q")
        opened.wait_for("exit code 0")
    assert {path.suffix for path in here.iterdir()} >= {".png", ".pdf", ".svg"}
    assert 'theme = "light"' in (tmp_path / "home/.config/vramscope/config.toml").read_text()


def test_memory_by_module_is_drawn_into_a_new_folder(here: Path, tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "profiles")
    with screen(f"modules {profile} --screen", here) as opened:
        opened.wait_for("E export", "q quit")
        opened.press("E")
        opened.wait_for("Wrote blocks.csv, icicle.pdf")
    [made] = here.iterdir()
    assert (made / "icicle.svg").read_bytes()
