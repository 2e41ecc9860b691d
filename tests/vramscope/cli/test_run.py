"""`vramscope run`: the job gets the terminal, the signals and the last word; we get the probe into it."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests import REPOSITORY
from vramscope.engine.paths import SHIM

from .running import environment, run
from .terminals import TerminalRun

VRAMSCOPE = (sys.executable, "-m", "vramscope")
QUIET = (*VRAMSCOPE, "run", "--no-hub", "--quiet", "--")
"""This process becomes the job."""
RUN = (*VRAMSCOPE, "run", "--no-hub", "--")
"""It waits for the job."""
both = pytest.mark.parametrize("command", [QUIET, RUN], ids=["becomes", "waits"])
SAID = re.compile(
    rb"vramscope run: ended after [\d.]+ s(?P<how>.*); "
    rb"no process of the job used a GPU through PyTorch or JAX\n"
)


def execute(*command: str, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        command,
        env=environment(**variables),
        capture_output=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("code", [0, 1, 3, 125, 255])
def test_the_exit_code_is_that_of_the_job(code: int) -> None:
    outcome = run("run", "--no-hub", "--", "sh", "-c", f"exit {code}")
    assert (outcome.code, outcome.stdout) == (code, "")
    said = SAID.fullmatch(outcome.stderr.encode())
    assert said is not None
    assert said["how"].decode() == (f" with exit code {code}" if code else "")
    outcome = run("run", "--no-hub", "--quiet", "--", "sh", "-c", f"exit {code}")
    assert (outcome.code, outcome.stdout, outcome.stderr) == (code, "", "")


@both
def test_a_signal_that_ends_the_job_is_seen_by_its_shell(command: tuple[str, ...]) -> None:
    inner = " ".join((*command, "sh", "-c", "'kill -TERM $$'"))
    done = execute("sh", "-c", f"{inner}; echo $?")
    assert done.stdout == b"143\n"
    assert (b" by SIGTERM; " in done.stderr) == (command is RUN)
    assert execute(*command, "sh", "-c", "kill -9 $$").returncode == -signal.SIGKILL


STOPPING = """
import os, signal
os.kill(os.getpid(), signal.SIGTSTP)
print("continued", flush=True)
signal.pause()
"""


def test_a_job_that_stops_is_seen_to_stop_and_goes_on_and_a_signal_to_us_alone_reaches_it() -> None:
    # Its own process group, as a shell gives it one: else nobody could continue it, and nothing would stop.
    job = subprocess.Popen(
        [*RUN, sys.executable, "-c", STOPPING],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    assert job.stdout is not None
    try:
        _, status = os.waitpid(job.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        os.kill(job.pid, signal.SIGCONT)
        assert job.stdout.readline() == b"continued\n"
        os.kill(job.pid, signal.SIGUSR1)
        _, said = job.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == -signal.SIGUSR1
    assert b" by SIGUSR1; " in said


def test_a_job_does_not_outlive_who_waits_for_it() -> None:
    job = subprocess.Popen(
        [*RUN, sys.executable, "-c", "import os, signal; print(os.getpid(), flush=True); signal.pause()"],
        env=environment(),
        stdout=subprocess.PIPE,
    )
    assert job.stdout is not None
    watched = os.pidfd_open(int(job.stdout.readline()))
    try:
        job.kill()
        job.communicate(timeout=60)
        assert select.select([watched], [], [], 60.0)[0] == [watched]
    finally:
        os.close(watched)


def test_a_command_that_is_not_there_is_127_and_one_that_cannot_run_126(tmp_path: Path) -> None:
    outcome = run("run", "--no-hub", "--", "no-such-command")
    assert (outcome.code, outcome.stdout) == (127, "")
    assert outcome.stderr == "vramscope: cannot run no-such-command: No such file or directory\n"
    plain = tmp_path / "train.py"
    plain.write_text("print(1)\n")
    outcome = run("run", "--no-hub", "--", str(plain))
    assert (outcome.code, outcome.stderr) == (126, f"vramscope: cannot run {plain}: Permission denied\n")


def test_a_card_is_simulated_by_its_name() -> None:
    program = "import os; print(os.environ['VRAMSCOPE_SIMULATE'])"
    outcome = run("run", "--no-hub", "--simulate", "RTX 4090", "--fake", "--", sys.executable, "-c", program)
    assert outcome.code == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    card = (found["total_bytes"], found["kind"], found["capability"], found["multiprocessors"])
    assert card == (24564 << 20, "RTX 4090", [8, 9], 128)
    assert "simulating 1 card of 24.0 GiB (RTX 4090)" in outcome.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run",), "CMD is missing"),
        (("run", "--"), "CMD is missing"),
        (("run", "--simulat", "24GiB", "--", "true"), "did you mean --simulate?"),
        (("run", "--fake", "--", "true"), "--fake needs --simulate GPU"),
        (("run", "--device-count", "2", "true"), "--device-count needs --simulate GPU"),
        (("run", "--simulate", "much", "--", "true"), "--simulate much: "),
        (("run", "--simulate", "zzz", "--", "true"), "rtx5080, rtx5090\n"),  # none of AMD's
        (
            ("run", "--simulate", "mi300", "--", "true"),
            "--simulate mi300: device 'mi300' is unknown: known are",
        ),
        (("run", "--simulate", "24Gi8", "--", "true"), "--simulate 24Gi8: not a size"),
        (("run", "--simulate", "mi300x", "--", "true"), "is not a GPU of CUDA"),
        (("run", "--simulate", "1GiB", "--device-count", "0", "--fake", "--", "true"), "expected 1 to 64"),
        (
            ("run", "--simulate", "256MiB", "--fake", "--", "true"),
            "expected more than the 512 MiB context of each process",
        ),
        (("run", "--job", "", "--", "true"), "--job '': expected 1 to 64 printable characters"),
        (("run", "--job", "a\nb", "--", "true"), "expected 1 to 64 printable characters"),
    ],
)
def test_what_is_wrong_with_our_own_words_is_125_in_one_line(words: tuple[str, ...], said: str) -> None:
    outcome = run(*words)
    assert (outcome.code, outcome.stdout) == (125, "")
    assert said in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_card_that_this_host_cannot_stand_for_is_refused_before_anything_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    outcome = run("run", "--no-hub", "--simulate", "900TiB", "--", "touch", str(mark))
    assert (outcome.code, outcome.stdout) == (125, "")
    assert "add --fake, which stores nothing" in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert not mark.exists()


def test_what_is_simulated_is_said_in_one_line_and_told_to_the_job() -> None:
    outcome = run(
        *("run", "--no-hub", "--job", "gpt", "--simulate", "24GiB", "--device-count", "2", "--fake", "--"),
        *("sh", "-c", 'printf %s "$VRAMSCOPE_SIMULATE"'),
        PYTORCH_ALLOC_CONF="expandable_segments:True",
    )
    assert outcome.stderr == (
        "vramscope simulate: simulating 2 cards of 24.0 GiB each without storage, so values are not "
        "computed; 0.5 GiB of each stands for the CUDA context; memory is modelled, not measured\n"
        + outcome.stderr.splitlines(keepends=True)[1]
    )
    config = json.loads(outcome.stdout)
    assert config["total_bytes"] == 24 << 30
    assert (config["devices"], config["is_fake"], config["job"]) == (2, True, "gpt")
    assert config["allocator_settings"] == "expandable_segments:True"
    assert (Path(config["simulation_path"]) / "__init__.py").exists()


def test_where_peaks_cannot_be_kept_that_is_said_and_the_job_runs(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    outcome = run("run", "--no-hub", "--runtime-dir", str(tmp_path), "--", "echo", "done")
    assert (outcome.code, outcome.stdout) == (0, "done\n")
    first, last = outcome.stderr.splitlines()
    assert first.startswith("vramscope run: peak memory will not be printed: runtime folder")
    assert first.endswith("run chmod 700 on it")
    assert re.fullmatch(r"vramscope run: ended after [\d.]+ s", last)


def test_the_words_after_the_command_are_its_own() -> None:
    echo = (sys.executable, "-c", "import sys; print(*sys.argv[1:])")
    outcome = run("run", "--no-hub", *echo, "--json", "-h", "--", "agent", "--bogus")
    assert (outcome.code, outcome.stdout) == (0, "--json -h -- agent --bogus\n")
    outcome = run("run", "--no-hub", "--job", "agent", "--", "printf", "%s", "--version")
    assert (outcome.code, outcome.stdout) == (0, "--version")


def test_the_environment_of_the_job_is_that_of_the_shell_and_ours(private_environment: Path) -> None:
    here = {
        name: value for name, value in environment().items() if name not in ("LC_ALL", "LANG", "LC_CTYPE")
    }
    done = subprocess.run([*RUN, "env", "-0"], env=here, capture_output=True, check=True, timeout=60)
    got = dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0") if entry)
    summary = Path(got.pop("VRAMSCOPE_SUMMARY_DIR"))
    assert summary.parent == private_environment / "run/vramscope"
    assert not summary.exists()
    job = got.pop("VRAMSCOPE_JOB")
    assert len(job) == 6
    assert got.pop("VRAMSCOPE_PROBE") == str(REPOSITORY / "engine/probe")
    assert got.pop("VRAMSCOPE_RUNTIME_DIR") == str(private_environment / "run/vramscope")
    assert got.pop("PYTHONPATH") == f"{SHIM}:{REPOSITORY}"
    here.pop("PYTHONPATH")
    assert got == here


def test_a_job_within_a_job_has_the_shim_once() -> None:
    done = execute(*RUN, *RUN, "sh", "-c", 'printf %s "$PYTHONPATH"')
    assert done.stdout.decode().split(":").count(str(SHIM)) == 1


def test_vramscope_works_within_a_job() -> None:
    done = execute(*QUIET, *VRAMSCOPE, "doctor", "--json")
    assert b"VRAMSCOPE_JOB" not in done.stdout
    assert done.stderr == b""


@both
def test_a_script_without_a_first_line_runs_by_the_shell_as_env_does(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    script = tmp_path / "job"
    script.write_text('echo "$0 $1"\n')
    script.chmod(0o755)
    done = execute(*command, str(script), "a b")
    assert (done.returncode, done.stdout) == (0, f"{script} a b\n".encode())


@both
def test_a_full_pipe_ends_the_job_as_it_does_without_us(command: tuple[str, ...]) -> None:
    done = execute("sh", "-c", f"{' '.join(command)} yes | head -n 1")
    assert done.stdout == b"y\n"
    assert (b" by SIGPIPE; " in done.stderr) == (command is RUN)
    ignored = execute(*command, "grep", "SigIgn", "/proc/self/status").stdout
    assert ignored == execute("grep", "SigIgn", "/proc/self/status").stdout


def test_output_passes_byte_for_byte() -> None:
    code = "import os, sys; sys.stdout.buffer.write(bytes(range(256)) * 300); os.write(2, b'\\xff\\n')"
    plain = execute(sys.executable, "-c", code)
    ours = execute(*QUIET, sys.executable, "-c", code)
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)


# Its signals are blocked from its start: one that comes before it waits is not lost.
TERMINAL_JOB = """
import os, signal, sys
numbers = (signal.SIGINT, signal.SIGTSTP, signal.SIGTERM, signal.SIGQUIT)
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
in_front = os.tcgetpgrp(0) == os.getpgrp()
print(*(os.isatty(stream) for stream in (0, 1, 2)), in_front, os.getpid() == os.getsid(0), flush=True)
print("read", repr(input()), flush=True)
while (number := signal.sigwait(numbers)) != signal.SIGTERM:
    print("got", signal.Signals(number).name, flush=True)
sys.exit(7)
"""


@both
def test_the_terminal_and_its_signals_are_the_jobs(command: tuple[str, ...]) -> None:
    with TerminalRun([*command, sys.executable, "-c", TERMINAL_JOB], environment()) as terminal:
        terminal.wait_for(b"True True True True %s\r\n" % str(command is QUIET).encode())
        terminal.type(b"hello\n")
        terminal.wait_for(b"read 'hello'\r\n")
        for keys, name in ((b"\x03", b"SIGINT"), (b"\x1a", b"SIGTSTP"), (b"\x1c", b"SIGQUIT")):
            terminal.type(keys)
            terminal.wait_for(b"got " + name + b"\r\n")
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.wait_for_end() == 7
        assert terminal.shown.startswith(b"True")
