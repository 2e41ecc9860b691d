"""The prompt: the same verbs from a terminal and from a pipe; a bad line is said, and it goes on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vramscope.cli.verbs.interactive import LEAVING, VERBS, LineEditor

from ....pretend_nvml.driver import PretendDriver
from ..running import GIB, environment
from ..terminals import TerminalRun
from .running import read_report, write_series

COMMAND = [sys.executable, "-m", "vramscope", "interactive"]


def run_script(script: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run lines from a pipe in a folder."""
    return subprocess.run(
        COMMAND,
        input=script,
        capture_output=True,
        encoding="utf-8",
        cwd=folder,
        env=environment(),
        timeout=60,
        check=False,
    )


def test_lines_of_a_pipe_are_done_one_after_the_other(
    tmp_path: Path, pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=GIB)
    done = run_script("# a comment\n\nhelp\nprofile --duration 1\noom --duration 1\nexit\nleak\n", tmp_path)
    assert done.returncode == 0
    assert "memory-debug" not in done.stdout
    assert "memory that grows without end" in done.stdout
    assert done.stdout.count("no findings") == 2
    read_report(tmp_path / "interactive_profile.json", "profile")
    read_report(tmp_path / "interactive_oom.json", "oom")
    assert not (tmp_path / "interactive_leak.json").exists()


def test_bad_lines_are_said_and_the_next_is_done(tmp_path: Path) -> None:
    script = "porfile\noom --threshold 200\nleak 'open\nprofile --input no.csv\nhelp\n"
    done = run_script(script, tmp_path)
    assert done.returncode == 2
    said = done.stderr.splitlines()
    assert len(said) == 4
    assert "did you mean profile?" in said[0]
    assert "--threshold 200" in said[1]
    assert "no closing quotation" in said[2]
    assert "no.csv" in said[3]
    assert "profile" in done.stdout


def test_files_are_read_and_reported_as_by_the_verbs(tmp_path: Path) -> None:
    write_series(tmp_path / "series.csv", seconds=9)
    done = run_script(
        "profile --input series.csv\nprofile --input series.csv --format json -o own.json\n", tmp_path
    )
    assert done.returncode == 0
    assert done.stderr.count("wrote the report to ") == len(done.stderr.splitlines()) == 2
    text, _, report = done.stdout.partition("{")
    assert "no findings" in text
    assert json.loads(f"{{{report}")["evidence"]["samples"] == 9
    for name in ("interactive_profile.json", "own.json"):
        assert read_report(tmp_path / name, "profile")["evidence"]["samples"] == 9


def test_ctrl_c_ends_a_verb_and_not_the_prompt(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pretend_driver: PretendDriver,
    pretend_environment: dict[str, str],
    private_environment: Path,
) -> None:
    pretend_driver.add_device(used_bytes=12 * GIB)
    monkeypatch.chdir(tmp_path)
    with TerminalRun(COMMAND, environment(TERM="xterm")) as terminal:
        terminal.wait_for(b"memory-debug> ")
        terminal.type(b"profile --duration 1h --interval 0.2\r")
        terminal.wait_for(b"12.0/80.0 GiB")
        terminal.type(b"\x03")
        terminal.wait_for(b"no findings")
        terminal.wait_for(b"memory-debug> ", after=b"no findings")
        terminal.wait_until_it_reads()
        terminal.shown = b""
        terminal.type(b"\x03")
        terminal.wait_for(b"memory-debug> ")
        terminal.shown = b""
        terminal.type(b"hel\t\r")
        terminal.wait_for(b"memory that grows without end")
        terminal.type(b"exit\r")
        assert terminal.wait_for_end() == 0
    read_report(tmp_path / "interactive_profile.json", "profile")
    history = private_environment / "home/.local/state/vramscope/interactive_history"
    assert "profile --duration 1h --interval 0.2" in history.read_text()


@pytest.mark.parametrize(
    ("line", "word", "offered"),
    [
        ("", "le", ["leak"]),
        ("", "", sorted((*VERBS, "help", *LEAVING))),
        ("oom ", "--mon", ["--monitor"]),
        ("leak ", "--enable", ["--enable-tracking"]),
        ("profile --input ", "ser", ["series.csv"]),
        ("profile --input ", "sub", ["sub/"]),
        ("profile --input ", "sub/a", ["sub/a.csv"]),
        ("exit ", "--", []),
    ],
)
def test_tab_completes_verbs_flags_and_paths(
    line: str, word: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("series.csv", "other.csv", "sub/a.csv"):
        (tmp_path / name).touch()
    assert LineEditor(VERBS, ("help", *LEAVING)).offer(line, word) == offered
