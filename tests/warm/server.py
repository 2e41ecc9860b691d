"""Loads once what many programs need, and runs each program it is asked for in a fork of itself.

A program of its own: its standard input is the socket on which the workers of pytest connect and ask.
"""

import atexit
import contextlib
import gc
import importlib
import importlib.abc
import importlib.util
import itertools
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NoReturn

MAX_REQUEST_BYTES = 1 << 17
MAX_DESCRIPTORS = 64
RUN_BY_OTHERS = ("probe", "simulation", "workloads")
"""Rooms of ours that run in the process that trains."""


@dataclass(frozen=True)
class Request:
    """A program to run: its words behind `python`, its folder and all its variables."""

    words: list[str]
    folder: str
    variables: dict[str, str]
    descriptors: tuple[int, ...] = (0, 1, 2)
    """Numbers that what is passed has in the program: its streams, and files that it finds open."""
    python: str | None = None
    """Where the words are those of `python`: the program that stands for it, see `client.py`."""


class Server:
    """Forks for each request, sends the pid and later the exit code.

    Args:
        listening: Where who asks connects.
    """

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._asking: dict[int, socket.socket] = {}  # by descriptor: connections
        self._running: dict[
            int, tuple[int, socket.socket]
        ] = {}  # by pidfd: the child, and where its end is sent
        self._lent: dict[
            int, int
        ] = {}  # by descriptor of where its end is sent: a child that ends with who asked
        self._poll = select.poll()
        self._poll.register(listening, select.POLLIN)

    def serve(self) -> Request | None:
        """Return None once nobody is connected, and in each child the request that it is to fulfil."""
        while True:
            for ready, _ in self._poll.poll():
                if ready == self._listening.fileno():
                    connection, _ = self._listening.accept()
                    self._asking[connection.fileno()] = connection
                    self._poll.register(connection, select.POLLIN)
                elif ready in self._running:
                    self._tell_end(ready)
                elif ready in self._lent:
                    self._poll.unregister(ready)
                    os.kill(self._lent.pop(ready), signal.SIGKILL)
                elif ready in self._asking:
                    request = self._answer(ready)
                    if request is not None or not self._asking:
                        return request

    def _answer(self, ready: int) -> Request | None:
        """Fork for what is asked; return it in the child, and None here."""
        message, given, _, _ = socket.recv_fds(self._asking[ready], MAX_REQUEST_BYTES, MAX_DESCRIPTORS)
        if not message:
            self._poll.unregister(ready)
            self._asking.pop(ready).close()
            return None
        reply_descriptor, *streams = given
        request = Request(**json.loads(message))
        pid = os.fork()
        if not pid:
            os.close(reply_descriptor)
            told = [reply for _, reply in self._running.values()]
            for other in (self._listening, *self._asking.values(), *told):
                other.close()
            for other_process in self._running:
                os.close(other_process)
            _become(request, streams)
            return request
        for stream in streams:
            os.close(stream)
        reply = socket.socket(fileno=reply_descriptor)
        with contextlib.suppress(ConnectionError):  # who asked has ended already
            reply.send(str(pid).encode())
        descriptor = os.pidfd_open(pid)
        self._running[descriptor] = pid, reply
        self._poll.register(descriptor, select.POLLIN)
        if request.python is not None:
            self._lent[reply.fileno()] = pid
            self._poll.register(reply, 0)  # its end alone
        return None

    def _tell_end(self, ready: int) -> None:
        self._poll.unregister(ready)
        os.close(ready)
        pid, reply = self._running.pop(ready)
        _, status = os.waitpid(pid, 0)
        if self._lent.pop(reply.fileno(), None) is not None:
            self._poll.unregister(reply)
        # Nobody waits for it any more; the connection is reset where who asked ended with the pid unread.
        with reply, contextlib.suppress(ConnectionError):
            reply.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: Request, streams: list[int]) -> None:
    """Take on what a process started for this request would have been given."""
    # Out of the way first: what comes may have the number that another one is to get.
    free = 1 + max([*streams, *request.descriptors])
    for place, descriptor in zip(request.descriptors, streams, strict=True):
        os.dup2(descriptor, free + place)
        os.close(descriptor)
    for place in request.descriptors:
        os.dup2(free + place, place)
        os.close(free + place)
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if number not in request.descriptors:
            os.close(number)
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
            continue
        former = getattr(sys, name)
        by_line = 1 if name == "stderr" or os.isatty(number) else -1
        stream = open(  # noqa: SIM115 - for as long as the process lives
            number, mode, by_line, encoding=former.encoding, errors=former.errors, closefd=False
        )
        setattr(sys, name, stream)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.variables)


def run_script(words: list[str]) -> NoReturn:
    """Run a script as Python would, and end without taking down torch: most scripts are faster than that."""
    sys.argv = words
    sys.path[0] = os.getcwd()  # noqa: PTH109
    os._exit(_call(lambda: runpy.run_path(words[0], run_name="__main__")))


def run_program(words: list[str]) -> NoReturn:
    """Run `-m MODULE` as Python would, and end without taking down all that was loaded for others."""
    flag, module, *arguments = words
    assert flag == "-m"
    sys.argv = [module, *arguments]
    path = [it for it in os.environ.get("PYTHONPATH", "").split(os.pathsep) if it]
    sys.path[:1] = [os.getcwd(), *path]  # noqa: PTH109
    os._exit(_call(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True)))


def run_python(words: list[str], python: str) -> NoReturn:
    """Run a command line of Python: `[-P] [-u] [-m MODULE | -c CODE | SCRIPT]` and arguments.

    Torch is imported when the program imports it, in no time: who waits for that import notices it.
    """
    sys.executable = python
    options = list(itertools.takewhile(lambda word: word in {"-P", "-u"}, words))
    words = words[len(options) :]
    first, rest = words[0], words[1:]
    path = [it for it in os.environ.get("PYTHONPATH", "").split(os.pathsep) if it]
    folder = Path.cwd() if first.startswith("-") else Path(first).absolute().parent
    sys.path[:1] = path if "-P" in options else [str(folder), *path]
    if torch := sys.modules.pop("torch", None):
        sys.meta_path.insert(0, _LoadedFinder(torch))
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("sitecustomize")

    def act() -> None:
        if first == "-m":
            sys.argv = rest
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif first == "-c":
            sys.argv = ["-c", *rest[1:]]
            main = types.ModuleType("__main__")
            sys.modules["__main__"] = main
            exec(rest[0], vars(main))  # noqa: S102
        else:
            sys.argv = words
            runpy.run_path(first, run_name="__main__")

    os._exit(_call(act))


class _LoadedFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module that is there already, once."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name != self._module.__name__:
            return None
        return importlib.util.spec_from_file_location(
            name, self._module.__file__, loader=self, submodule_search_locations=list(self._module.__path__)
        )

    def create_module(self, _spec: ModuleSpec) -> types.ModuleType:
        return self._module

    def exec_module(self, _module: types.ModuleType) -> None:
        sys.meta_path.remove(self)


def _call(action: Callable[[], Any]) -> int:
    """Run a program, and what it wants done at its end; return its exit code."""
    code = 0
    try:
        action()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - as Python does
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


def load_torch() -> None:
    """Load torch, what the first step of any optimizer loads, and Opacus, which takes a second."""
    import torch
    import torch._dynamo  # noqa: F401

    with warnings.catch_warnings(action="ignore"), contextlib.suppress(ImportError):
        import opacus  # noqa: F401


def load_vramscope() -> None:
    """Load all of ours that shows no screen, what that imports, and what draws figures."""
    import pynvml  # noqa: F401 - imported when a driver is looked for

    import vramscope

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ImportError):
        os.environ["MPLCONFIGDIR"] = folder  # where it writes a list of fonts as it is loaded
        import matplotlib.backends.backend_agg
        import matplotlib.backends.backend_pdf
        import matplotlib.backends.backend_svg  # noqa: F401
    os.environ.pop("MPLCONFIGDIR", None)

    for layer in ("engine", "analyzers", "exporters", "cli"):
        for found in pkgutil.walk_packages(
            [f"{vramscope.__path__[0]}/{layer}"], f"vramscope.{layer}.", onerror=lambda _: None
        ):
            if found.name.split(".")[2] not in RUN_BY_OTHERS:
                importlib.import_module(found.name)


def write_client(folder: Path, name: str) -> str:
    """Write the program that stands for `python` and has the server of this name run it; return its path."""
    path = folder / "python"
    client = Path(__file__).with_name("client.py")
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {client} {name} "$0" "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def load_tests() -> None:
    """Import all that the workers of pytest collect, as each of them would.

    What cannot be imported is told when its turn to be collected comes.
    """
    from _pytest.config import _prepareconfig

    config = _prepareconfig([])  # it also rewrites the asserts of what is imported from here on
    paths = sorted((config.rootpath / "tests").rglob("test_*.py"))
    compiled = len({it.name.split(".")[0] for it in (config.rootpath / "tests").rglob("test_*-pytest-*.pyc")})
    helper = 0 if compiled > len(paths) / 2 else os.fork()
    if helper or compiled > len(paths) / 2:
        _import_tests(config.rootpath, paths)
    else:  # it compiles from the end, for as long as the other has not come there
        _import_tests(config.rootpath, paths[::-1])
        os._exit(0)
    load_vramscope()  # what verbs import once they are called
    # What Hypothesis draws from is the same in all workers. It warns of what is done before any test.
    with contextlib.suppress(ImportError), warnings.catch_warnings(action="ignore"):
        from hypothesis.internal.conjecture.providers import _get_local_constants

        _get_local_constants()
    if helper:
        os.kill(helper, signal.SIGKILL)
        os.waitpid(helper, 0)
    config._ensure_unconfigure()
    others = [it.name for it in threading.enumerate() if it is not threading.main_thread()]
    assert not others, f"threads of {others} would be missing in a fork"


def _import_tests(root: Path, paths: Sequence[Path]) -> None:
    import pytest

    with warnings.catch_warnings(action="error"):
        for path in paths:
            with contextlib.suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))


PROGRAMS: dict[str, tuple[Callable[[], None], Callable[[list[str]], NoReturn] | None]] = {
    "torch": (load_torch, run_script),
    "vramscope": (load_vramscope, run_program),
    "pytest": (load_tests, None),
}

if __name__ == "__main__":
    load, run = PROGRAMS[sys.argv[1]]
    load()
    gc.collect()
    gc.freeze()  # else the collector of a child would walk all of it, and so copy it
    wanted = Server(socket.socket(fileno=os.dup(0))).serve()
    if wanted is not None and wanted.python is not None:
        run_python(wanted.words, wanted.python)
    elif wanted is not None and run is not None:
        run(wanted.words)
