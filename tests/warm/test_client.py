"""What stands for `python` runs a command line as Python does, in a fork of a process that has loaded all."""

import json
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.waiting import wait_until
from tests.warm.server import Request, write_client
from tests.warm.starter import write_warm_python


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_warm_python(tmp_path_factory.mktemp("warm"), "vramscope")


def test_words_folder_variables_streams_and_open_files_are_those_of_who_starts_it(
    python: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("NAME = 'mine'\n")
    (tmp_path / "script.py").write_text(
        "import mine, os, sys\n"
        "os.write(int(sys.argv[1]), b'told')\n"
        "print(mine.NAME, os.getcwd(), os.environ['MARK'], sys.argv[1:], sys.executable, sys.stdin.read())\n"
        "print('wrong', file=sys.stderr)\n"
        "sys.exit(7)\n"
    )
    readable, writable = os.pipe()
    ended = subprocess.run(
        [python, str(tmp_path / "script.py"), str(writable)],
        cwd="/",
        env={**os.environ, "MARK": "set"},
        input="read",
        capture_output=True,
        text=True,
        pass_fds=[writable],
        check=False,
    )
    os.close(writable)
    with os.fdopen(readable) as told:
        assert told.read() == "told"
    assert ended.stdout == f"mine / set ['{writable}'] {python} read\n"
    assert (ended.stderr, ended.returncode) == ("wrong\n", 7)


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-"])
def test_a_stream_that_is_closed_is_none(redirection: str, python: str, tmp_path: Path) -> None:
    streams = "sys.stdin, sys.stdout, sys.stderr"
    code = f"import sys; open('said', 'w').write(str([it is None for it in ({streams})]))"
    subprocess.run(["/bin/sh", "-c", f'"$0" -c "$1" {redirection}', python, code], cwd=tmp_path, check=True)
    closed = [redirection == it for it in ("<&-", ">&-", "2>&-")]
    assert (tmp_path / "said").read_text() == str(closed)


def has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_an_end_by_a_signal_is_passed_on_both_ways(python: str) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([python, "-c", code], check=False).returncode == -signal.SIGKILL
    waiting = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    for number in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen([python, "-c", waiting], stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                pid = int(process.stdout.readline())
                assert pid != process.pid
                process.send_signal(number)
                assert process.wait(timeout=30) == -number
            finally:
                process.kill()
            wait_until(partial(has_ended, pid), what="the end of the fork")


def test_who_asks_and_ends_before_it_reads_the_answer_leaves_the_server_to_the_others(
    python: str, tmp_path: Path
) -> None:
    name = Path(python).read_text().split()[-3]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(f"\0{name}")
        reply, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = Request(
            ["-c", "import signal; signal.pause()"], str(tmp_path), dict(os.environ), python=python
        )
        with given:
            descriptors = [given.fileno(), *request.descriptors]
            socket.send_fds(server, [json.dumps(vars(request)).encode()], descriptors)
        pid = int(reply.recv(32, socket.MSG_PEEK))
        reply.close()  # with the pid unread
        wait_until(partial(has_ended, pid), what="the end of the fork")
    with subprocess.Popen([python, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE) as process:
        assert int(process.communicate()[0]) != process.pid, "python itself ran: the server has ended"


def test_an_option_that_a_fork_cannot_have_starts_python_itself(python: str) -> None:
    code = "import sys; print(sys.flags.isolated, 'vramscope' in sys.modules, sys.executable)"
    ended = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("1 False ")
    assert ended.stdout.strip() != f"1 False {python}"


def test_where_nobody_serves_python_itself_runs(tmp_path: Path) -> None:
    python = write_client(tmp_path, f"nobody-{os.getpid()}")
    ended = subprocess.run([python, "-c", "import sys; sys.exit(5)"], check=False)
    assert ended.returncode == 5


def test_what_asks_a_server_closes_its_connection_before_python_ends() -> None:
    asking = "from tests.warm import starter; starter._find_server('nothing', '')"
    variables = {**os.environ, "PYTEST_XDIST_TESTRUNUID": f"closing-{os.getpid()}"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"\0vramscope-tests-closing-{os.getpid()}-nothing-0")
        listening.listen()
        done = subprocess.run(
            [sys.executable, "-W", "always::ResourceWarning", "-c", asking],
            cwd=REPOSITORY,
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        )
    assert done.stderr == ""
