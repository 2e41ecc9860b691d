"""Whatever files, settings, servers, commands and names hold, nothing that is printed steers a terminal."""

import io
import json
import os
import re
import stat
import sys
from pathlib import Path

import msgspec
import pytest

from tests import REPOSITORY
from tests.engine.agent.hubs import make_sample
from tests.engine.cluster.remote import ListeningHub
from tests.exporters.status.statuses import make_device, make_finding, make_status
from tests.hostile import HOSTILE, OWN_SEQUENCES, PRINTED, list_forbidden, poison
from vramscope.cli.application import run as run_here
from vramscope.cli.frame.emit import guarded_streams, write_over
from vramscope.cli.frame.errors import run_guarded
from vramscope.cli.frame.parse import list_verbs
from vramscope.engine.cluster.keys import keys_folder
from vramscope.engine.files.base.output_file import write_whole
from vramscope.engine.model import ProcessReading, RankSample
from vramscope.exporters.status.table import render_table
from vramscope.exporters.text import TableStyle

from .running import Outcome, call, environment, no_library, run
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
    outcome = call(verb, "--input", str(path), "--format", form)
    assert outcome.code == 0, outcome.stderr
    _refuse_steering(outcome)
    if form == "json":
        json.loads(outcome.stdout)


def _write_in_every_way() -> None:
    """Write what steers a terminal to both streams, as text and as bytes, whole and byte by byte."""
    data = PRINTED.encode()
    for stream in (sys.stdout, sys.stderr):
        print(PRINTED, file=stream)
        stream.write(f"\r\x1b[K{PRINTED}\n")
        stream.writelines([PRINTED, "\n"])
        stream.flush()
        stream.buffer.write(data)
        stream.buffer.writelines(bytes([byte]) for byte in data)
        stream.buffer.write(b"\x9b5m\x1b[5m\xff\n")
        stream.buffer.flush()


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_nothing_within_a_verb_writes_past_the_streams_that_are_guarded(
    locale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    written = io.BytesIO(), io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written[0], "utf-8"))
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(written[1], "utf-8"))
    with guarded_streams():
        _write_in_every_way()
    for each in written:
        text = each.getvalue().decode()
        assert not list_forbidden(text.replace("\t", ""))
        assert text.count("52;c;") == 5
        assert r"\u202e" in text


def test_bytes_that_need_nothing_are_written_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    data = '{"node":"größe","a":"\\u001b"}\n'.encode()
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "utf-8"))
    with guarded_streams():
        for at in range(len(data)):  # also where a character is cut in two
            sys.stdout.buffer.write(data[at : at + 1])
        sys.stdout.buffer.flush()
    assert written.getvalue() == data


def test_a_line_of_progress_is_one_line_and_clears_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    with guarded_streams():
        write_over(f"\r\x1b[K{PRINTED}")
    text = written.getvalue()
    assert text.startswith("\r\x1b[K")
    assert not list_forbidden(text.removeprefix("\r\x1b[K"))
    assert "\n" not in text


def test_the_report_of_an_internal_error_can_be_read_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["vramscope", HOSTILE])

    def fail() -> int:
        raise ValueError(HOSTILE)

    assert run_guarded(fail) == 1
    (report,) = tmp_path.rglob("*.txt")
    text = report.read_text(encoding="utf-8")
    assert not list_forbidden(text.replace("\t", ""))
    assert text.count(MARK) >= 2


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", "--factory", "made:make", "--input", "1x4"),
        ("phases", "--factory", "made:make", "--dp-mode", "none", "--device", "cpu", "--num-steps", "1"),
    ],
    ids=lambda words: words[0],
)
def test_the_traceback_of_a_factory(words: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / f"e{ESCAPE}"
    folder.mkdir()
    raised = f"näh {ESCAPE}"
    (folder / "made.py").write_text(f"def make():\n    raise ValueError({raised!a})\n")
    outcome = run(*words, PYTHONPATH=f"{REPOSITORY}{os.pathsep}{folder}", LC_ALL="C")
    assert "Traceback" in outcome.stderr
    assert "raise ValueError(" in outcome.stderr
    assert "made:make raised ValueError: n" in outcome.stderr
    assert "workloads" not in outcome.stderr, "our own frames are left out"
    assert outcome.stderr.count(MARK) >= 3
    _refuse_steering(outcome)
    assert outcome.stderr.isascii()


def test_a_batch_of_hostile_cases(tmp_path: Path) -> None:
    line = PRINTED.replace("\n", "").replace("\r", "").replace("\u2028", "")
    (tmp_path / "cases.csv").write_text(
        f"case,{line},num_layers,hidden,heads,seq,mbs,gbs,tp,pp,world_size,bf16\n"
        f"{line},{line},12,512,8,1024,1,8,1,1,8,True\n"
        f"c2,-1,{line},512,8,1024,1,8,1,1,8,True\n"
    )
    outcome = call("estimate", "--batch", str(tmp_path / "cases.csv"), "-o", str(tmp_path / "made.csv"))
    assert outcome.code == 0, outcome.stderr
    written = (tmp_path / "made.csv").read_text(encoding="utf-8")
    assert not list_forbidden(written)
    assert written.count(MARK) >= 4
    assert "c2,-1," in written


def test_the_files_of_a_plan_of_hostile_layers(tmp_path: Path) -> None:
    made = call("plan", "--model", "gpt-1.5b", "--stages", "2", "-o", f"{tmp_path}/first/")
    assert made.code == 0, made.stderr
    (graph,) = (tmp_path / "first").glob("*_model_graph.json")
    graph.write_text(graph.read_text().replace("word_embeddings", json.dumps(f"w{PRINTED}")[1:-1]))
    outcome = call("plan", "--model", str(graph), "--stages", "2", "--json", "-o", f"{tmp_path}/second/")
    assert outcome.code == 0, outcome.stderr
    _refuse_steering(outcome)
    for path in (tmp_path / "second").iterdir():
        assert not list_forbidden(path.read_text(encoding="utf-8")), path.name
    assert MARK in (tmp_path / "second" / "pipeline_strategy_report.txt").read_text(encoding="utf-8")


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
    outcome = call(*words)
    assert outcome.code != 0
    _refuse_steering(outcome, shown="")
    assert "Traceback" not in outcome.stderr


@pytest.mark.parametrize("line", ["interval = {}", "{} = 1", "theme = {}", "sort = {}"])
def test_hostile_settings(line: str, tmp_path: Path) -> None:
    (tmp_path / "vramscope.toml").write_text(f"{line.format(json.dumps(ESCAPE))}\n")
    _refuse_steering(call("--once", "--config", str(tmp_path / "vramscope.toml")))


def test_settings_that_are_no_toml(tmp_path: Path) -> None:
    (tmp_path / "vramscope.toml").write_bytes(b"interval = \x1b]52;c;QUFB\x07\n")
    _refuse_steering(call("--once", "--config", str(tmp_path / "vramscope.toml")), shown="")


def test_hostile_hosts(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"n1{ESCAPE}\nn 2 {ESCAPE}\n")
    _refuse_steering(call("--hosts", str(tmp_path / "hosts"), "--once"))


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


@pytest.mark.parametrize("verb", ["", *list_verbs()])
def test_where_the_locale_has_only_ascii_help_is(
    verb: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    assert run_here([verb, "--help"] if verb else ["--help"]) == 0
    shown = capfd.readouterr()
    assert "usage: " in shown.out
    assert shown.out.isascii()


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


def test_a_file_that_goes_to_a_pipe_keeps_its_bytes_and_a_terminal_gets_printable_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = []
    for is_terminal in (False, True):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        monkeypatch.setattr(stream, "isatty", lambda is_terminal=is_terminal: is_terminal)
        monkeypatch.setattr(sys, "stdout", stream)
        with guarded_streams():
            write_whole(f"PAR1 {ESCAPE}".encode(), Path("-"))
        written.append(stream.buffer.getvalue().decode())
    assert written[0] == f"PAR1 {ESCAPE}"
    assert not list_forbidden(written[1])
    assert MARK in written[1]
