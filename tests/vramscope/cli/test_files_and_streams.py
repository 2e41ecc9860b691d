"""Every verb: paths that no file can have, outputs that cannot be written, and streams that are closed."""

import json
import os
import subprocess
import sys
from argparse import Action, _SubParsersAction
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.warm.starter import write_warm_python
from vramscope.cli.application import run as run_here
from vramscope.cli.frame.parse import build_parser, list_verbs
from vramscope.engine.recording import Recording

from ...engine.recording.samples import make_sample, write
from .running import environment, run

CASES = (
    "case,num_layers,hidden,heads,seq,mbs,gbs,tp,pp,world_size,bf16,"
    "mem_allocated_last_bytes,mem_max_allocated_peak_bytes\n"
)


def list_paths(verb: str) -> Iterator[Action]:
    """Yield the arguments of a verb that are paths."""
    for action in build_parser([verb])._actions:
        if isinstance(action, _SubParsersAction):
            yield from (it for it in action.choices[verb]._actions if it.type is Path)


PATHS = [(verb, action) for verb in list_verbs() for action in list_paths(verb)]


@pytest.mark.parametrize("text", ["", "x" * 256, "/".join(["x" * 200] * 30)], ids=["empty", "name", "path"])
@pytest.mark.parametrize(
    ("verb", "action"), PATHS, ids=[f"{verb}-{'/'.join(it.option_strings) or it.dest}" for verb, it in PATHS]
)
def test_a_path_that_no_file_can_have_is_refused_by_every_verb(
    verb: str, action: Action, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"{action.option_strings[-1]}={text}"] if action.option_strings else [text]
    needed = sum(1 for it in list_paths(verb) if not it.option_strings)
    code = 125 if verb == "run" else 2
    assert run_here([verb, *words * (1 if action.option_strings else needed)]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert len(err) < 400
    assert ("not an empty text" if not text else "a path of") in err


def test_such_a_path_is_refused_without_a_verb_too(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--config", "--runtime-dir", "--auth-file", "--hosts"):
        assert run_here([flag, "", "--once"]) == 2
        assert "expected a path, not an empty text" in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with an input for each verb that writes files."""
    write(tmp_path / "run.vscope", [make_sample(tick) for tick in range(30)])
    rows = "".join(f"c{n},2,{256 * n},4,128,1,1,1,1,1,1,{n * 10**8},{n * 2 * 10**8}\n" for n in range(1, 9))
    (tmp_path / "cases.csv").write_text(CASES + rows)
    return tmp_path


WRITING = {
    "calibrate": ["calibrate", "cases.csv", "-o"],
    "estimate": ["estimate", "--batch", "cases.csv", "-o"],
    "export": ["export", "run.vscope", "--csv", "-o"],
    "export jsonl": ["export", "run.vscope", "--jsonl", "-o"],
    "export prometheus": ["export", "run.vscope", "--prometheus", "-o"],
    "profile": ["profile", "--input", "run.vscope", "--output"],
    "oom": ["oom", "--input", "run.vscope", "--output"],
    "leak": ["leak", "--input", "run.vscope", "--output"],
    "fragment": ["fragment", "--input", "run.vscope", "--output"],
    "import": ["import", "run.vscope", "-o"],
    "record": ["record", "--duration", "100ms", "-o"],
    "diff": ["diff", "run.vscope", "run.vscope", "--figure"],
}
WHOLE = set(WRITING) - {"import", "record"}
"""Verbs that replace a file; the others refuse one that is there, or go on with it."""


def name_output(name: str, stem: str) -> str:
    """Return the name of a file that a verb may write: a figure's is refused where text is written."""
    return f"{stem}.{'png' if WRITING[name][-1] == '--figure' else 'out'}"


@pytest.mark.parametrize("name", WRITING)
def test_an_output_that_cannot_be_written_is_one_line(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    taken, loop, to_nothing, to_mine, out = (
        name_output(name, stem) for stem in ("taken", "loop", "to-nothing", "to-mine", "out")
    )
    (folder / taken).mkdir()
    (folder / loop).symlink_to(loop)
    (folder / to_nothing).symlink_to("target")
    (folder / to_mine).symlink_to("cases.csv")
    before = sorted(it.name for it in folder.iterdir())
    content = (folder / "cases.csv").read_bytes()
    outputs = [loop, to_nothing, to_mine, f"missing/{out}", f"cases.csv/{out}"]
    if name != "diff":  # figures go into folders too, and have names that end in pdf, png or svg
        outputs += [taken, "/dev/full"]
    for output in outputs:
        code = run_here([*WRITING[name], output])
        err = capsys.readouterr().err
        assert code == 2, (output, err)
        assert "internal" not in err, output
        assert err.splitlines()[-1].startswith("vramscope: "), output
    assert sorted(it.name for it in folder.iterdir()) == before
    assert (folder / "cases.csv").read_bytes() == content


@pytest.mark.parametrize("name", WRITING)
def test_files_are_for_their_owner_and_a_mode_that_was_chosen_stays(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    path, umask = folder / name_output(name, "out"), os.umask(0)
    try:
        run_here([*WRITING[name], str(path)])
        assert path.stat().st_mode & 0o777 == 0o600
        if name in WHOLE:
            path.chmod(0o640)
            before = path.stat().st_ino
            run_here([*WRITING[name], str(path)])
            assert path.stat().st_mode & 0o777 == 0o640
            assert path.stat().st_ino != before
    finally:
        os.umask(umask)
    assert not list(folder.glob(".*"))


def test_a_name_of_255_bytes_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for name in sorted(WHOLE - {"diff"}):
        assert run_here([*WRITING[name], "x" * 255]) == 0, name
    assert run_here(["import", "run.vscope", "-o", "y" * 255]) == 0
    with Recording(folder / ("y" * 255)) as recording:
        assert recording.sample_count == 30


PRINTING = {
    "no verb": ["--once"],
    "json": ["--json", "--duration", "100ms"],
    "version": ["--version"],
    "help": ["--help"],
    "calibrate": ["calibrate", "cases.csv"],
    "completion": ["completion", "bash"],
    "diff": ["diff", "run.vscope", "run.vscope"],
    "doctor": ["doctor"],
    "estimate": ["estimate", "--batch", "cases.csv"],
    "export": ["export", "run.vscope", "--csv"],
    "fragment": ["fragment", "--input", "run.vscope"],
    "leak": ["leak", "--input", "run.vscope", "--format", "json"],
    "plan": ["plan", "--model", "gpt-1.5b", "--stages", "2"],
    "profile": ["profile", "--input", "run.vscope"],
}


ALL = """
import json, os, sys
import vramscope.cli.application
from vramscope.__main__ import main
codes = {}
for name, words in json.loads(os.environ["ALL"]).items():
    out = os.pipe() if "READER" in os.environ else ()
    pid = os.fork()
    if not pid:
        if out:
            os.close(out[0])
            os.dup2(out[1], 1)
        if "APART" in os.environ:
            apart = os.open(f"{name}.err", os.O_WRONLY | os.O_CREAT)
            os.dup2(apart, 2)
            os.close(apart)  # it may have the number of a closed stream
        sys.argv = ["vramscope", *words]
        sys.exit(main())
    if out:
        os.close(out[1])
        os.read(out[0], 1)
        os.close(out[0])
    codes[name] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
with open("codes.json", "w") as out:
    json.dump(codes, out)
"""
"""Runs each verb in a fork that has this one's streams: as of an interpreter started with them closed.

With READER, its standard output is a pipe that is read for one byte.
"""


@pytest.fixture
def run_all(folder: Path) -> Callable[..., dict[str, tuple[int, str]]]:
    """Return what runs all of `PRINTING` under a redirection; it returns their exit codes and complaints."""
    (folder / "all.py").write_text(ALL)

    warm_python = write_warm_python(folder, "vramscope")

    def run_all(redirection: str, *flags: str, python: str = warm_python) -> dict[str, tuple[int, str]]:
        given = environment(ALL=json.dumps(PRINTING), **dict.fromkeys(flags, "1"))
        subprocess.run(
            ["/bin/sh", "-c", f'"$@" {redirection}', "sh", python, "all.py"],
            cwd=folder,
            env=given,
            timeout=120,
            check=False,
        )
        codes = json.loads((folder / "codes.json").read_text())
        (folder / "codes.json").unlink()
        said = dict.fromkeys(PRINTING, "")
        for path in folder.glob("*.err"):
            said[path.stem] = path.read_text(encoding="utf-8")
            path.unlink()
        return {name: (codes[name], said[name]) for name in PRINTING}

    return run_all


@pytest.mark.parametrize(
    ("redirection", "reason"),
    [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")],
)
def test_a_stdout_that_cannot_be_written_ends_no_verb_in_an_internal_error(
    redirection: str, reason: str, run_all: Callable[..., dict[str, tuple[int, str]]]
) -> None:
    # Where it was closed, Python itself has to begin without it.
    python = {"python": sys.executable} if redirection == ">&-" else {}
    ended = run_all(redirection, "APART", **python)
    assert {name: (code, err.splitlines()[-1]) for name, (code, err) in ended.items()} == dict.fromkeys(
        PRINTING, (1, f"vramscope: cannot write the output: {reason}")
    )
    assert not [err for _, err in ended.values() if "internal" in err]


def test_other_closed_streams_change_the_outcome_of_no_verb(
    run_all: Callable[..., dict[str, tuple[int, str]]],
) -> None:
    usual = run_all(">/dev/null", "APART")
    codes = {name: code for name, (code, _) in usual.items()}
    assert run_all("<&- 2>&- >/dev/null") == {name: (codes[name], "") for name in PRINTING}
    full = run_all(">/dev/null 2>/dev/full")
    assert {name: code for name, (code, _) in full.items()} == codes
    left = run_all("| cat", "APART", "READER")
    assert {name: err for name, (_, err) in left.items()} == {name: err for name, (_, err) in usual.items()}


def test_an_output_may_be_a_stream(folder: Path) -> None:
    printed = run("export", str(folder / "run.vscope"), "--csv")
    assert run("export", str(folder / "run.vscope"), "--csv", "-o", "/dev/stdout").stdout == printed.stdout
