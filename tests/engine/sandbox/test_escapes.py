"""Nobody gets out of a process that reads files of others: each way is tried in the process itself."""

import json
import os
import pickle
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pytest

from tests import REPOSITORY
from tests.components import require_package
from tests.engine.recording.test_hostile_files import recorded
from vramscope.cli.frame.sandbox import _READERS
from vramscope.cli.live import find_by_words, plan_words, read_by_words
from vramscope.engine.errors import VramscopeError
from vramscope.engine.sandbox import find_protection
from vramscope.tui.plan.planned import JobDefaults

from .escapes import ESCAPED, Hole

pytestmark = pytest.mark.skipif(
    not find_protection().is_whole, reason="this kernel lacks Landlock (whole since 6.2) or seccomp"
)
REFUSED = {"EPERM", "EACCES"}
ANYWHERE = {
    "open another file",
    "list a folder",
    "write a file",
    "read a neighbour of the output",
    "list the folder of the output",
    "write into a neighbour of the output",
    "make a neighbour of the output",
    "make a file below the folder of the output",
    "make a folder next to the output",
    "link a neighbour of the output",
    "ask for a neighbour of the output",
    "ask for a file below the folder of the output",
    "ask for a new file next to the output",
    "ask for a folder next to the output",
    "ask for a hidden file",
    "save a command among the settings",
    "remove an empty folder of temporary files",
    "change Matplotlib's settings",
    "make a socket",
    "make a socket of this machine",
    "send a datagram",
    "run a program",
    "signal another process",
}
"""What any process may do that is not confined; the rest depends on the machine and on who runs it."""


class Place(NamedTuple):
    """Where the process is, and what is none of its business."""

    secret: Path
    folder: Path
    # Of its input and output, in which no other file is its business.
    own: Path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    secret = tmp_path / "secret"
    secret.write_text("key")
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("removable", "movable"):
        (folder / name).write_text("")
    own = tmp_path / "own"
    (own / ".ssh").mkdir(parents=True)
    for name in ("profile", "other"):
        (own / name).write_text("mine")
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home/.cache/matplotlib").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as post:
        post.bind(str(folder / "post"))
        yield Place(secret, folder, own)


def try_in(
    place: Place, program: str, *arguments: str, stdin: BinaryIO | int = subprocess.DEVNULL
) -> list[dict[str, str]]:
    """Run a program that tries to escape, and return what came of each way, for each of its processes."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdin=stdin,
        capture_output=True,
        cwd=REPOSITORY,
        timeout=60,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith(b"{")]
    assert lines, done.stderr
    return [json.loads(line) for line in lines]


def list_escaped(found: dict[str, str]) -> dict[str, str]:
    return {name: came for name, came in found.items() if came not in REFUSED}


def test_a_process_that_is_not_confined_gets_everywhere(place: Place) -> None:
    [found] = try_in(
        place,
        "import sys; from tests.engine.sandbox.escapes import try_all; try_all(*sys.argv[1:])",
        *map(str, place),
    )
    assert {name for name, came in found.items() if came == ESCAPED} >= ANYWHERE


# In place of the verb runs what a stranger would run who came in by its file; each in a fork of its own.
BROKEN_VERBS = """
import os, sys
from tests.engine.sandbox.escapes import try_all
from vramscope.cli import application
from vramscope.__main__ import main
secret, folder, home, *commands = sys.argv[1:]
application.run_verb = lambda arguments: bool(try_all(secret, folder, home)) - 1
os.chdir(home)
for command in commands:
    if command.startswith("SCREEN "):
        command = command.removeprefix("SCREEN ")
        sys.stdout.isatty = lambda: True
    child = os.fork()
    if not child:
        sys.argv = ["vramscope", *command.split()]
        sys.exit(main())
    os.waitpid(child, 0)
"""
COMMANDS = [
    "import FILE -o OWN/out.vscope",
    "diff FILE FILE --json",
    "inspect FILE --json",
    "export FILE --csv",
    "export FILE --figure OWN/figures/",
    "oom --input FILE -o OWN/report.json",
    "oom --input FILE --every 1m --archive OWN/reports/new",
    "leak --input FILE",
    "fragment --input FILE",
    "profile --input FILE",
    "modules FILE",
    "phases --read FILE",
    "heatmap --memory-dir FILE --json",
    "sweep FILE --json",
    "replay FILE --compare",
    "calibrate FILE",
    "estimate --model FILE --json",
    "estimate --model FILE --serve",
    "estimate --batch FILE -o OWN/out.csv",
    "export FILE --csv -o OWN/out.csv",
    "export FILE --csv -o -",
    "export RUNNING --csv",
    "export FILE --figure OWN/",
    "heatmap --memory-dir FILE --output OWN/heat",
    "SCREEN inspect FILE",
    "SCREEN diff FILE FILE",
    "SCREEN modules FILE",
    "SCREEN replay FILE",
    "SCREEN replay RUNS",
    "SCREEN sweep RUNS",
    "heatmap --batch BATCH",
    "plan --model FILE",
    "plan --model FILE --stages 2 -o OWN/plans --figure OWN/stages.svg --graph-figure OWN/graphs/",
    "plan --model FILE --cluster CLUSTER --calibrate-time FILE --global-batch 8",
    "plan --model FILE --measured RUNNING",
    "SCREEN plan --model FILE --screen",
]


def test_each_verb_that_reads_files_of_others_is_confined_before_it_reads(place: Place) -> None:
    file = place.own / "run.csv"
    file.write_text("time_s,device,allocated_bytes\n")
    # As a stranger would write it: with the marks of a recording whose writer is at work.
    running = place.own / "running.vscope"
    for path in (running, *(Path(f"{running}{it}") for it in ("-wal", "-shm"))):
        path.write_bytes(b"SQLite format 3\0\x10\0\2\2")
    (place.own / "runs").mkdir()
    batch, cluster = place.own / "batch.toml", place.own / "cluster.toml"
    batch.write_text('memory_dir = "runs"\noutput = "figures/heat"\n')
    cluster.write_text('galvatron = "runs"\n[[nodes]]\ndevice = "h100"\ndevices = 8\n')
    names = {"BATCH": batch, "CLUSTER": cluster}
    names |= {"FILE": file, "OWN": place.own, "RUNNING": running, "RUNS": place.own / "runs"}

    def fill_in(word: str) -> str:
        return re.sub("[A-Z]{3,}", lambda it: str(names.get(it[0], it[0])), word)

    commands = [" ".join(map(fill_in, command.split())) for command in COMMANDS]
    before = {it.name for it in place.own.iterdir()}
    results = try_in(place, BROKEN_VERBS, *map(str, place), *commands)
    assert len(results) == len(COMMANDS)
    escaped = {command: list_escaped(found) for command, found in zip(COMMANDS, results, strict=True)}
    assert {command: ways for command, ways in escaped.items() if ways} == {}
    assert place.secret.read_text() == "key"
    assert [it.read_text() for it in (place.own / "profile", place.own / "other")] == ["mine", "mine"]
    # Neither the verb nor its helper leaves anything.
    assert {it.name for it in place.own.iterdir()} == before


# A hole in what reads a file that names further files: each way is tried while it is read.
BROKEN_NAMING = """
import sys
from tests.engine.sandbox.escapes import try_all
from vramscope.cli import application, sweeps
from vramscope.engine.files import cluster_file
from vramscope.__main__ import main
*place, command = sys.argv[1:]
cluster_file.read_cluster_file = sweeps.read_batch = lambda path: try_all(*place)
application.run_verb = lambda arguments: 0
sys.argv = ["vramscope", *command.split()]
sys.exit(main())
"""


@pytest.mark.parametrize("command", ["heatmap --batch FILE", "plan --model gpt-1.5b --cluster FILE"])
def test_a_file_that_names_further_files_is_read_confined(command: str, place: Place) -> None:
    file = place.own / "naming.toml"
    file.write_text("")
    results = try_in(place, BROKEN_NAMING, *map(str, place), command.replace("FILE", str(file)))
    assert list(map(list_escaped, results)) == [{}]
    assert place.secret.read_text() == "key"


def test_every_such_verb_is_tried() -> None:
    assert {command.removeprefix("SCREEN ").split()[0] for command in COMMANDS} == set(_READERS)


@pytest.mark.parametrize(
    "command", ["oom --duration 1s", "estimate --factory a:b", "modules", "doctor", "plan --factory a:b"]
)
def test_a_verb_that_does_more_than_that_keeps_what_it_has(command: str, place: Place) -> None:
    words = command.replace("FILE", str(place.own))
    [found] = try_in(place, BROKEN_VERBS, *map(str, place), words)
    assert {name for name, came in found.items() if came == ESCAPED} >= ANYWHERE


# Read by each Python; in the processes that the program starts, a stranger runs in place of the verb.
BROKEN_CHILD = """
import os, sys
if "-P" in sys.orig_argv:
    # The view shows nothing of what its children print.
    os.dup2(os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
    from vramscope.cli import application, mcp_server
    from tests.engine.sandbox.escapes import try_all
    def take_over(*arguments, **given):
        return bool(try_all(*os.environ["PLACE"].split(":"))) - 1
    application.run_verb = take_over
    from vramscope.cli import plan, sweeps
    from vramscope.cli.verbs import modules
    sweeps.find_wanted = modules.read_profiled = plan.read_request = take_over
    for tool in ("inspect", "diff", "estimate"):
        setattr(mcp_server.MemoryTools, tool, take_over)
"""


def break_children(place: Place, log: Path) -> dict[str, str]:
    """Return the variables of a program that goes on, in whose children a stranger runs and logs."""
    holed = place.secret.with_name("holed")
    holed.mkdir()
    (holed / "sitecustomize.py").write_text(BROKEN_CHILD)
    return {
        **os.environ,
        "PYTHONPATH": f"{holed}:{REPOSITORY}",
        "PLACE": ":".join(map(str, place)),
        "LOG": str(log),
    }


def read_ways(log: Path) -> list[dict[str, str]]:
    """Return what was no refusal, for each process."""
    lines = log.read_text().splitlines()
    return [list_escaped(json.loads(line)) for line in lines if line.startswith("{")]


@pytest.mark.parametrize("verb", ["oom", "leak", "fragment", "profile"])
def test_a_prompt_reads_files_in_a_confined_process(verb: str, place: Place, tmp_path: Path) -> None:
    (place.own / "run.csv").write_text("time_s,device,allocated_bytes\n")
    subprocess.run(
        [sys.executable, "-m", "vramscope", "interactive"],
        input=f"{verb} --input run.csv\n".encode(),
        capture_output=True,
        cwd=place.own,
        env=break_children(place, tmp_path / "log"),
        timeout=60,
        check=False,
    )
    assert read_ways(tmp_path / "log") == [{}]
    assert place.secret.read_text() == "key"


def plan_by_words(words: str) -> object:
    return plan_words(words, JobDefaults())


@pytest.mark.parametrize("ask", [find_by_words, read_by_words, plan_by_words])
def test_tools_of_the_live_view_read_files_in_a_confined_process(
    ask: Callable[[str], object], place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in break_children(place, tmp_path / "log").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(VramscopeError):
        ask(str(place.own / "runs"))
    assert read_ways(tmp_path / "log") == [{}]
    assert place.secret.read_text() == "key"


async def test_an_assistant_gets_files_read_by_confined_processes(place: Place, tmp_path: Path) -> None:
    require_package("mcp")
    from mcp import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    (place.own / "run.csv").write_text("time_s,device,allocated_bytes\n")
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "vramscope", "mcp"],
        env=break_children(place, tmp_path / "log"),
        cwd=place.own,
    )
    with Path(os.devnull).open("w") as log:
        async with stdio_client(program, log) as streams, ClientSession(*streams) as session:
            await session.initialize()
            for tool, given in (
                ("inspect", {"file": "run.csv"}),
                ("diff", {"a": "run.csv", "b": str(place.own / "run.csv")}),
                ("estimate", {"model": "run.csv"}),
            ):
                assert (await session.call_tool(tool, given)).is_error
    assert read_ways(tmp_path / "log") == [{}, {}, {}]
    assert place.secret.read_text() == "key"


HOLED_DECODER = """
import pickle, sys
import tests.engine.sandbox.escapes
from vramscope.engine.files.memory_snapshot import decoder
decoder._PlainUnpickler.find_class = pickle.Unpickler.find_class
decoder._is_large = lambda stream: sys.argv[3] == "large"
assert "numpy" not in sys.modules
def convert_at_once(stream):
    assert "numpy" in sys.modules
decoder._convert_at_once = convert_at_once
decoder.main()
"""


@pytest.mark.parametrize("size", ["small", "large"])
def test_whoever_comes_through_the_unpickler_stays_in_the_decoder(size: str, place: Place) -> None:
    file = place.own / "snapshot.pickle"
    file.write_bytes(pickle.dumps(Hole(*place)))
    with file.open("rb") as stdin:
        [found] = try_in(place, HOLED_DECODER, str(1 << 30), "60", size, stdin=stdin)
    assert list_escaped(found) == {}
    assert place.secret.read_text() == "key"


def test_the_sandbox_can_be_switched_off(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMSCOPE_SANDBOX", "off")
    [found] = try_in(place, BROKEN_VERBS, *map(str, place), f"inspect {place.own}/f")
    assert {name for name, came in found.items() if came == ESCAPED} >= ANYWHERE


READING = """
import sys
from pathlib import Path
from vramscope.engine.recording import Recording
from vramscope.engine.sandbox import confine
file, scratch = map(Path, sys.argv[1:])
confine([file], [], scratch=scratch)
with Recording(file) as recording:
    print(len(list(recording.samples())))
print(file.read_bytes()[:6])
try:
    (file.parent / "other").read_bytes()
except PermissionError:
    print("alone")
try:
    file.write_bytes(b"")
except PermissionError:
    print("unchanged")
(scratch / "part").write_bytes(b"")
(scratch / "part").unlink()
"""


def test_a_confined_process_reads_its_file_and_no_neighbour(tmp_path: Path) -> None:
    file, scratch = tmp_path / "run.vscope", tmp_path / "scratch"
    file.write_bytes(recorded())
    (tmp_path / "other").write_text("")
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", READING, file, scratch],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[1:] == ["b'SQLite'", "alone", "unchanged"]
    assert int(done.stdout.split()[0]) > 0
    assert list(scratch.iterdir()) == []
