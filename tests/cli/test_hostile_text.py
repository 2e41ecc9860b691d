"""Whatever files, settings, servers, commands and names hold, nothing that is printed steers a terminal."""

import json
import os
import re
import stat
import sys
from pathlib import Path

import msgspec
import pytest

from tests.bus.hubs import make_sample
from tests.cluster.remote import ListeningHub
from tests.exporters.statuses import make_device, make_finding, make_status
from tests.hostile import HOSTILE, OWN_SEQUENCES, PRINTED, list_forbidden, poison
from vramscope.engine.cluster.keys import keys_folder
from vramscope.engine.model import ProcessReading, RankSample
from vramscope.exporters.table import TableStyle, render_table

from .running import Outcome, environment, no_library, run
from .terminals import TerminalRun

ESCAPE = "\x1b]52;c;QUFB\x07\x9b5m\u202e"
MARK = "52;c;"


def _refuse_steering(outcome: Outcome, *, shown: str = MARK) -> None:
    """Check both streams of a run that has quoted the hostile text."""
    assert not list_forbidden(outcome.stdout)
    assert not list_forbidden(outcome.stderr)
    assert shown in outcome.stdout + outcome.stderr


def _write_status(folder: Path) -> Path:
    """Return a file of statuses of which every text is hostile."""
    device = make_device(processes=(ProcessReading(7, "user", "python", 5 << 30),), reason="x")
    status = poison(make_status(device, findings=(make_finding(),), notes=("note",)))
    content = json.loads(msgspec.json.encode(status))
    lines = []
    for seq in range(40):
        content["time"], content["seq"] = 1_700_000_000 + seq, seq
        content["schema"] = "vramscope.status/1"
        content["devices"][0]["memory"]["used_bytes"] = (10 << 30) + (seq << 26)
        lines.append(json.dumps(content))
    path = folder / "status.json"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("verb", ["profile", "oom", "leak", "fragment"])
def test_a_report_of_a_hostile_file(verb: str, form: str, tmp_path: Path) -> None:
    path = _write_status(tmp_path)
    outcome = run(verb, "--input", str(path), "--format", form)
    assert outcome.code == 0, outcome.stderr
    _refuse_steering(outcome)
    if form == "json":
        json.loads(outcome.stdout)


@pytest.mark.parametrize("has_color", [False, True])
def test_a_table_in_colour_has_no_sequence_but_its_own(has_color: bool) -> None:
    device = make_device(processes=(ProcessReading(7, "user", "python", 5 << 30),), reason="x")
    status = poison(make_status(device, findings=(make_finding(),), notes=("note",)), HOSTILE)
    text = render_table(status, TableStyle(width=200, has_color=has_color))
    assert not list_forbidden(re.sub(OWN_SEQUENCES, "", text) if has_color else text)
    assert "\x1b[5m" not in text
    assert "[bold]" in text


@pytest.mark.parametrize("flags", [("--once",), ("--once", "--json"), ("doctor",), ("doctor", "--json")])
def test_a_hostile_name_of_the_node(flags: tuple[str, ...], tmp_path: Path) -> None:
    outcome = run(*flags, **no_library(tmp_path), VRAMSCOPE_NODE=PRINTED)
    _refuse_steering(outcome, shown="" if "doctor" in flags else MARK)


@pytest.mark.parametrize(
    "words",
    [
        (ESCAPE,),
        ("--config", ESCAPE, "--once"),
        ("--hosts", ESCAPE, "--once"),
        ("--connect", f"tcp://{ESCAPE}:1", "--once"),
        ("--interval", ESCAPE, "--once"),
        ("replay", ESCAPE),
        ("inspect", ESCAPE),
        ("heatmap", ESCAPE, ESCAPE),
        ("leak", "--input", ESCAPE),
        ("oom", f"--{ESCAPE}"),
        ("--from-prometheus", f"http://{ESCAPE}", "--once"),
    ],
)
def test_hostile_words_of_the_command_line(words: tuple[str, ...]) -> None:
    outcome = run(*words)
    assert outcome.code != 0
    _refuse_steering(outcome, shown="")
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("line", ["interval = {}", "{} = 1", "theme = {}", "sort = {}"])
def test_hostile_settings(line: str, tmp_path: Path) -> None:
    (tmp_path / "vramscope.toml").write_text(f"{line.format(json.dumps(ESCAPE))}\n")
    _refuse_steering(run("--once", "--config", str(tmp_path / "vramscope.toml")))


def test_settings_that_are_no_toml(tmp_path: Path) -> None:
    (tmp_path / "vramscope.toml").write_bytes(b"interval = \x1b]52;c;QUFB\x07\n")
    _refuse_steering(run("--once", "--config", str(tmp_path / "vramscope.toml")), shown="")


def test_hostile_hosts(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"n1{ESCAPE}\nn 2 {ESCAPE}\n")
    _refuse_steering(run("--hosts", str(tmp_path / "hosts"), "--once"))


@pytest.mark.parametrize(("code", "stream", "answer"), [(0, 1, "7|PENDING||"), (1, 2, "slurm error: ")])
def test_a_hostile_answer_of_slurm(code: int, stream: int, answer: str, tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(f"{answer}{ESCAPE}")
    command = tmp_path / "squeue"
    command.write_text(f"#!/bin/sh\ncat '{tmp_path}/answer' >&{stream}\nexit {code}\n")
    command.chmod(stat.S_IRWXU)
    _refuse_steering(run("--slurm", "7", "--once", PATH=f"{tmp_path}:{os.environ['PATH']}"))


def test_a_hostile_stderr_of_ssh(tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(f"Permission denied {ESCAPE}\n")
    command = tmp_path / "ssh"
    command.write_text(f"#!/bin/sh\ncat '{tmp_path}/answer' >&2\nexit 255\n")
    command.chmod(stat.S_IRWXU)
    _refuse_steering(run("--ssh", "n1", "--once", PATH=f"{tmp_path}:{os.environ['PATH']}"))


@pytest.mark.parametrize(
    "variables",
    [{"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"PYTHONIOENCODING": "latin-1"}, {"LANG": "C", "LC_ALL": ""}],
)
@pytest.mark.parametrize("words", [("--once",), ("doctor",), ("leak", "--format", "text"), ("größe·",)])
def test_where_the_locale_has_only_ascii_all_that_is_printed_is(
    words: tuple[str, ...], variables: dict[str, str], tmp_path: Path
) -> None:
    if words[0] == "leak":
        words = (*words, "--input", str(_write_status(tmp_path)))
    outcome = run(*words, **no_library(tmp_path), **variables, VRAMSCOPE_NODE="näh·…")
    assert "internal error" not in outcome.stderr
    assert (outcome.stdout + outcome.stderr).isascii()


@pytest.mark.parametrize("variables", [{}, {"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}])
def test_the_name_of_a_file_that_is_no_text_is_printed_all_the_same(
    variables: dict[str, str], tmp_path: Path
) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9\x9b31m")
    outcome = run("inspect", name, **variables)
    assert outcome.code == 2
    assert "internal error" not in outcome.stderr
    _refuse_steering(outcome, shown="caf")


def test_an_agent_elsewhere_writes_nothing_of_its_own_to_the_terminal_of_a_viewer(tmp_path: Path) -> None:
    """The bytes that reach the terminal of the real live view of a hub that publishes hostile facts."""
    rank = RankSample(pid=7, device_uuid="GPU-a", job="job")
    sample = msgspec.structs.replace(make_sample(1), ranks=(rank,), notes=("note",))
    with ListeningHub(None, keys_folder()) as hub:
        hub.producer.push([poison(sample)])
        command = [sys.executable, "-m", "vramscope", "--connect", hub.address.text]
        variables = environment(TERM="xterm-256color", LANG="C.UTF-8", LC_ALL="C.UTF-8")
        with TerminalRun(command, variables) as terminal:
            terminal.wait_for(MARK.encode())
            terminal.type(b"i")
            terminal.wait_for(b"Esc closes")
            terminal.type(b"iq")
            terminal.wait_for_end()
    # The shape of the pointer is the one sequence of its own that ends in BEL.
    shown = terminal.shown.decode().replace("\x1b]22;default\x07", "")
    assert not {it for it in shown if not it.isprintable()} - set("\x1b\r\n\b\x0f")
    assert not re.findall(r"\x1b(?:]|\[5m|_|P)", shown)
