"""The front door: verbs, flags, exit codes, and what a user reads when something is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vramscope
from tests import REPOSITORY
from vramscope.cli.frame.parse import list_verbs, parse
from vramscope.engine.errors import UsageError

from .running import call, environment, no_library, run
from .test_stream import agent


def test_the_version_is_printed() -> None:
    outcome = run("--version")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, f"vramscope {vramscope.__version__}\n", "")


def test_it_runs_uninstalled_from_the_root_of_the_repository() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vramscope", "--version"],
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert done.stdout.startswith(b"vramscope ")


@pytest.mark.parametrize("verb", list_verbs())
def test_every_verb_has_help(verb: str) -> None:
    outcome = run(verb, "--help")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert f"usage: vramscope {verb}" in outcome.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--nonsense"], "unknown option --nonsense; see `vramscope help flags`"),
        (["--intervall", "3"], "unknown option --intervall; did you mean --interval?"),
        (["--intervall=3"], "unknown option --intervall; did you mean --interval?"),
        (["--intervall", "3", "agent"], "unknown option --intervall; did you mean --interval?"),
        (["replay", "--sped", "3", "/nope"], "unknown option --sped; did you mean --speed?"),
        (["replay", "--sped"], "unknown option --sped; did you mean --speed?"),
        (
            ["agent", "--replay-intervals", "x"],
            "unknown option --replay-intervals; see `vramscope agent --help`",
        ),
        (
            ["agent", "--read-only"],
            "--read-only is not a flag of `vramscope agent`; see `vramscope agent --help`",
        ),
        (["--", "--ascii"], "-- is not a flag of `vramscope`; see `vramscope --help`"),
        (["agnet"], "unknown verb 'agnet'; did you mean `vramscope agent`?"),
        (["zzz"], "unknown verb 'zzz'; `vramscope --help` lists the verbs"),
        (["agent", "--nonsense"], "unknown option --nonsense; see `vramscope agent --help`"),
        (["--ssh=--"], "--ssh=--: expected a value, not `--`"),
        (["--interval=--"], "--interval=--: expected a value"),
        (["agent", "--listen=--"], "--listen=--: expected a value"),
        (["record", "-o=--"], "-o=--: expected a value"),
        (["--theme", "ligth"], "--theme ligth: did you mean light?"),
        (["agnet", "oom"], "unknown verb 'agnet'; did you mean `vramscope agent`?"),
        (["--theme", "pink"], "--theme pink: expected dark, light, high-contrast, mono"),
        (["diff", "a", "b", "c"], "too many arguments: c; see `vramscope diff --help`"),
        (["guard", "--prevent-oom", "x"], "too many arguments: x; see `vramscope guard --help`"),
        (["replay"], "the following arguments are required: FILE|DIR; see `vramscope replay --help`"),
    ],
)
def test_words_that_mean_nothing_are_told(words: list[str], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words)
    assert told in caught.value.describe("flag")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--interval", "soon", "--json"], "--interval soon: expected seconds or a duration such as 500ms"),
        (["--interval", "0", "--json"], "--interval 0: expected seconds"),
        (["--duration", "10"], "--duration needs --json"),
        (["--duration", "x", "--json"], "--duration x: not a duration"),
        (["--duration", "0", "--json"], "--duration 0: expected a time above zero"),
        (["--once", "--duration", "5"], "--duration does not go with --once"),
        (["--once", "agent"], "--once shows this node and does not go with the verb agent"),
        (["--once", "--config", "/nowhere.toml"], "/nowhere.toml: cannot be read: no such file or directory"),
        (["replay", "/nowhere/at/all"], "/nowhere/at/all"),
        (["replay", ".", "--speed", "0"], "--speed 0: expected a number from 0.001 to 10000"),
        (["replay", ".", "--speed", "nan"], "--speed nan: expected a number from"),
        (["replay", ".", "--capacity", "much"], "--capacity much: not a size"),
        (["replay", ".", "--capacity", "0"], "--capacity 0: expected a size above zero"),
        (["replay", ".", "--capacity", "80"], "--capacity 80: a number without a unit is in bytes; 80GiB is"),
        (["demo", "--capacity", "81920"], "81920MiB is likely meant"),
        (
            ["estimate", "--model", "llama2-7b", "--capacity", "80"],
            "--capacity 80: a number without a unit is in bytes; 80GiB is",
        ),
        (["estimate", "--model", "llama3-8b", "--serve", "--capacity", "79.5"], "79.5GiB is likely meant"),
        (
            ["plan", "--model", "llama2-7b", "--capacity", "80"],
            "--capacity 80: a number without a unit is in bytes; 80GiB is",
        ),
        (["sweep", ".", "--capacity", "80"], "--capacity 80: a number without a unit is in bytes; 80GiB is"),
        (["replay", ".", "--interval", "often"], "--interval often: not a duration"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(words: list[str], told: str) -> None:
    outcome = call(*words)
    assert outcome.code == 2
    assert outcome.stdout == ""
    assert told in outcome.stderr
    assert outcome.stderr.startswith("vramscope: ")
    assert len(outcome.stderr.splitlines()) == 1


def test_without_a_terminal_the_live_view_says_what_to_use() -> None:
    outcome = run()
    assert outcome.code == 2
    assert "vramscope --once" in outcome.stderr


def test_flags_count_before_and_after_the_verb() -> None:
    assert parse(["agent", "--interval", "3"]).interval == "3"
    assert parse(["--interval", "3", "agent"]).interval == "3"
    assert parse(["--interval", "3", "agent", "--interval", "4"]).interval == "4"


def test_what_is_not_given_is_not_set() -> None:
    assert not hasattr(parse([]), "interval")
    assert not hasattr(parse(["agent"]), "interval")


def test_only_the_verbs_that_are_meant_are_loaded() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from vramscope.cli.frame.parse import parse; parse(sys.argv[1:]);"
            "print(*[name for name in sys.modules if name.startswith('vramscope.cli.verbs.')])",
            "agent",
        ],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=30,
    )
    assert done.stdout.split() == ["vramscope.cli.verbs.agent"]


@pytest.mark.parametrize("kind", ["file", "link", "open"])
def test_a_runtime_folder_that_is_not_private_is_exit_code_6(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if kind == "file":
        folder.touch()
    elif kind == "link":
        folder.symlink_to(tmp_path)
    else:
        folder.mkdir()
        folder.chmod(0o755)
    for verb in ("agent", "worker"):
        outcome = run(verb, "--runtime-dir", str(folder))
        assert outcome.code == 6
        assert outcome.stderr.startswith(f"vramscope: runtime folder {folder} is ")
        assert len(outcome.stderr.splitlines()) == 1


def test_a_worker_without_an_agent_is_exit_code_7() -> None:
    outcome = run("worker")
    assert outcome.code == 7
    assert outcome.stderr.startswith("vramscope: no agent serves ")
    assert len(outcome.stderr.splitlines()) == 1


def test_a_second_agent_is_refused_and_the_first_is_named() -> None:
    with agent() as first:
        outcome = run("agent")
        assert first.poll() is None
    assert outcome.code == 2
    assert f"process {first.pid}" in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


def test_the_settings_of_the_current_folder_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vramscope.toml").write_text("ascii = true\ncolour = false\n")
    monkeypatch.chdir(tmp_path)
    outcome = run("--once")
    assert outcome.code == 2
    assert outcome.stderr == (
        f'vramscope: {tmp_path}/vramscope.toml:2: unknown setting "colour"; did you mean "color"?\n'
    )
    (tmp_path / "vramscope.toml").write_text("ascii = true\n")
    assert run("--once", **no_library(tmp_path)).stdout.isascii()


class TestInternalErrors:
    """A mistake of ours: one line with where the report is, and the traceback only for who asks."""

    @pytest.fixture
    def broken(self, tmp_path: Path) -> dict[str, str]:
        """Make the first import of the headless path fail."""
        (tmp_path / "sitecustomize.py").write_text(
            "import vramscope.cli.frame.settings as c\n"
            "def fail(arguments): raise ZeroDivisionError('our mistake')\n"
            "c.read_settings = fail\n"
        )
        return {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}

    def run_broken(self, broken: dict[str, str], **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "vramscope", "--once"],
            env={**os.environ, **broken, **variables},
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=30,
        )

    def test_the_line_names_a_report_that_holds_the_traceback(self, broken: dict[str, str]) -> None:
        done = self.run_broken(broken)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith("vramscope: internal error: ZeroDivisionError: our mistake; the report is in ")
        report = Path(line.rpartition(" ")[2])
        assert report.is_relative_to(os.environ["XDG_STATE_HOME"])
        assert "Traceback" in report.read_text()

    def test_the_traceback_is_printed_for_who_asks(self, broken: dict[str, str]) -> None:
        done = self.run_broken(broken, VRAMSCOPE_DEBUG="1")
        assert done.returncode == 1
        assert done.stderr.startswith("Traceback")

    def test_where_no_report_can_be_written_the_line_says_how_to_see_more(
        self, broken: dict[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "file").touch()
        done = self.run_broken(broken, XDG_STATE_HOME=str(tmp_path / "file"))
        assert done.returncode == 1
        assert done.stderr.endswith("our mistake; set VRAMSCOPE_DEBUG=1 for the traceback\n")

    def test_old_reports_go(self, broken: dict[str, str], private_environment: Path) -> None:
        folder = private_environment / "home/.local/state/vramscope/errors"
        folder.mkdir(parents=True)
        for number in range(30):
            (folder / f"20200101-0000{number:02d}-1.txt").touch()
        self.run_broken(broken)
        names = sorted(path.name for path in folder.iterdir())
        assert len(names) == 10
        assert names[-1] > "2021"
