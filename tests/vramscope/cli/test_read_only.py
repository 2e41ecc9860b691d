"""Where `read_only` is set no verb changes another process, whichever layer of the settings says so."""

import os
import sys
from pathlib import Path

import pytest

from ...engine.jobs.targets import running
from .running import call, run

CHANGING = (
    ("attach", "{pid}"),
    ("detach", "{pid}"),
    ("advise", "{pid}", "empty_cache"),
    ("advise", "{pid}", "empty_cache", "--connect", "127.0.0.1:1"),
    ("guard", "--connect", "127.0.0.1:1", "--insecure", "--prevent-oom"),
)


@pytest.mark.parametrize("words", CHANGING)
@pytest.mark.parametrize("layer", ["flag", "flag after the verb", "variable", "file"])
def test_what_changes_a_process_is_refused_in_a_line(words: tuple[str, ...], layer: str) -> None:
    told = [word.format(pid=os.getpid()) for word in words]
    variables: dict[str, str] = {}
    if layer == "flag":
        told, why = ["--read-only", *told], "--read-only forbids that: leave it out"
    elif layer == "flag after the verb":
        told, why = [*told, "--read-only"], "--read-only forbids that: leave it out"
    elif layer == "variable":
        variables, why = {"VRAMSCOPE_READ_ONLY": "1"}, "VRAMSCOPE_READ_ONLY forbids that"
    else:
        why = f"read_only in {write_settings('read_only = true')} forbids that"
    outcome = call(*told, **variables)
    assert (outcome.code, outcome.stdout) == (6, "")
    assert outcome.stderr.count("\n") == 1
    assert why in outcome.stderr
    assert words[0] in outcome.stderr


def write_settings(text: str) -> Path:
    """Write the settings of this user and return their file."""
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "vramscope" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(f"{text}\n")
    return path


def test_a_process_that_may_not_be_changed_is_not_stopped_for_a_moment(tmp_path: Path) -> None:
    with running("print('ready')\ninput()\n", tmp_path, python=sys.executable) as target:
        outcome = run("attach", str(target.pid), VRAMSCOPE_READ_ONLY="1")
        assert outcome.code == 6
        maps = Path(f"/proc/{target.pid}/maps").read_text()
    assert "vramscope" not in maps


def test_a_folder_cannot_lift_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_settings("read_only = true")
    (tmp_path / "vramscope.toml").write_text("read_only = false\n")
    monkeypatch.chdir(tmp_path)
    outcome = run("detach", "1")
    assert (outcome.code, f"read_only in {path}" in outcome.stderr) == (6, True)


def test_what_only_looks_goes_on() -> None:
    outcome = run(
        "guard", "--connect", "127.0.0.1:1", "--insecure", "--duration", "100ms", VRAMSCOPE_READ_ONLY="1"
    )
    assert outcome.code == 7
    assert "forbids" not in outcome.stderr
