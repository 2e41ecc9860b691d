"""Other interpreters than the one that vramscope is installed in: older, newer, and with torch alone."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from pwd import getpwuid

import pytest

from tests.engine.probe.hub import listen
from tests.engine.probe.processes import LOAD, MODEL, PROBE_FOLDER, WATCH, finish, run, start
from tests.engine.uncompiled import UNCOMPILED
from vramscope.engine.ranks.messages import Hello, ModelState, Readings

TORCH_AND_ITS_NEEDS = (
    *("torch", "torch-*", "torchgen", "functorch", "typing_extensions.py", "sympy", "mpmath", "networkx"),
    *("jinja2", "markupsafe", "fsspec", "filelock", "setuptools"),
)
OLDEST, NEWEST_TRIED = (3, 9), (3, 14)
STAND_IN = {
    "torch/__init__.py": "__version__ = '0.0+stand-in'\nfrom torch.optim import optimizer\n",
    "torch/optim/__init__.py": "",
    "torch/optim/optimizer.py": """
        _hooks = {}
        def register_optimizer_step_post_hook(hook):
            _hooks[len(_hooks)] = hook
        class Device:
            type, index = "cpu", None
        class Storage:
            device = Device
            def data_ptr(self): return id(self)
            def nbytes(self): return 64
        class Parameter:
            grad, device = None, Device
            def __init__(self): self._storage = Storage()
            def untyped_storage(self): return self._storage
        class Optimizer:
            def __init__(self): self.param_groups, self.state = [{"params": [Parameter()]}], {}
            def step(self):
                for hook in _hooks.values(): hook(self, (), {})
    """,
}
"""As much of torch as the probe asks for in a process that trains on the host."""


@cache
def find_interpreters() -> dict[tuple[int, int], str]:
    """Return the interpreters at hand by their version: those on the PATH and those of pyenv."""
    names = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST_TRIED[1] + 1)]
    candidates = [path for name in names if (path := shutil.which(name))]
    home = Path(getpwuid(os.getuid()).pw_dir)  # HOME is that of the test
    candidates += [str(path) for path in home.glob(".pyenv/versions/*/bin/python3")]
    found: dict[tuple[int, int], str] = {}
    for candidate in [*candidates, sys.executable]:
        command = [candidate, "-c", "import sys; print(*sys.version_info[:2])"]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        if result.returncode == 0:
            major, minor = map(int, result.stdout.split())
            found[major, minor] = candidate
    return {version: found[version] for version in sorted(found) if version >= OLDEST}


def choose(which: str) -> str:
    """Return the oldest or the newest interpreter at hand."""
    interpreters = find_interpreters()
    version = min(interpreters) if which == "oldest" else max(interpreters)
    if version == sys.version_info[:2]:
        pytest.skip(f"no interpreter {'older' if which == 'oldest' else 'newer'} than the one of the tests")
    return interpreters[version]


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    for name, text in STAND_IN.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return tmp_path


SCRIPT = """
    import os, time, warnings
    import torch
    optimizer = torch.optim.optimizer.Optimizer()
    with probe.phase("all"):
        for step in range(5):
            optimizer.step()
            time.sleep(0.02)
    for child in range(3):
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    probe.record_out_of_memory(5, "no memory")
    session = sys.modules["vramscope_probe.base.current"].session
    while session._sampler.outbox._readings:
        time.sleep(0.05)
    print(failures(), [name for name in sys.modules if "msgspec" in name or name.startswith("vramscope.")])
"""


@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_the_oldest_and_the_newest_interpreter_report_with_warnings_as_errors(
    which: str, stand_in: Path
) -> None:
    python = choose(which)
    with listen(stand_in) as hub:
        process = start(stand_in, textwrap.dedent(SCRIPT), python=python, options=("-W", "error"))
        assert finish(process) == "[] []\n"
        hub.wait_for_goodbye()
        (hello, *_), *others = hub.connections
        assert isinstance(hello, Hello)
        assert others == []
        assert (hello.torch, hello.backend, hello.pid) == ("0.0+stand-in", "cpu", process.pid)
        assert [row[0] for row in hub.steps()] == [1, 2, 3, 4, 5]
        assert hub.of(Readings) != []


def test_every_interpreter_at_hand_compiles_every_file() -> None:
    code = (
        "import sys, pathlib\n"
        "for path in pathlib.Path(sys.argv[1]).rglob('*.py'):\n"
        "    compile(path.read_text(encoding='utf-8'), str(path), 'exec')\n"
    )
    for version, python in find_interpreters().items():
        command = [python, "-W", "error", "-c", code, str(PROBE_FOLDER)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (result.returncode, result.stderr) == (0, ""), version


def test_an_environment_with_torch_alone_reports(tmp_path: Path) -> None:
    """The folder of torch and of what it needs is linked into one of its own: no vramscope, no msgspec."""
    found = importlib.metadata.distribution("torch")
    packages = Path(str(found.locate_file("")))
    alone = tmp_path / "site"
    alone.mkdir()
    for pattern in TORCH_AND_ITS_NEEDS:
        for path in packages.glob(pattern):
            (alone / path.name).symlink_to(path)
    prelude = f"import sys\nsys.path.append({str(alone)!r})\n" + LOAD + WATCH
    script = (
        UNCOMPILED
        + MODEL
        + "train(4)\n"
        + "from importlib.util import find_spec\n"
        + "print([find_spec(name) for name in ('vramscope', 'msgspec', 'zmq', 'psutil')])\n"
    )
    with listen(tmp_path) as hub:
        output = run(tmp_path, script, prelude=prelude, options=("-I", "-S", "-W", "ignore"))
        hub.wait_for_goodbye()
        assert output == "[None, None, None, None]\n"
        assert hub.hello().torch == found.version
        assert len(hub.steps()) == 4


def test_many_short_children_start_nothing(tmp_path: Path, stand_in: Path) -> None:
    script = """
    import os, threading
    for child in range(200):
        if os.fork() == 0:
            os._exit(threading.active_count() - 1)
        assert os.wait()[1] == 0
    print(threading.active_count(), "vramscope_probe.session" in sys.modules)
    """
    with listen(tmp_path) as hub:
        assert run(tmp_path, textwrap.dedent(script)) == "1 False\n"
        assert hub.connections == []


KERAS = {
    "keras/__init__.py": "from . import config\n",
    "keras/config.py": "def backend(): return 'torch'\n",
    "keras/src/__init__.py": "",
    "keras/src/optimizers/__init__.py": "",
    "keras/src/optimizers/base_optimizer.py": """
        import torch
        class Variable:
            def __init__(self): self._value = torch.optim.optimizer.Parameter()
        class BaseOptimizer:
            gradient_accumulation_steps = None
            def __init__(self):
                self._trainable_variables = [Variable()]
                self.variables = [Variable(), Variable()]
            def apply(self, gradients, trainable_variables=None):
                return len(gradients)
    """,
}
"""As much of Keras as the probe asks for."""

FIT = """
    import time, torch, keras
    from keras.src.optimizers.base_optimizer import BaseOptimizer
    def fit(optimizer):
        for batch in range(4):
            assert optimizer.apply([1, 2]) == 2
            time.sleep(0.02)
    fit(BaseOptimizer())
    accumulating = BaseOptimizer()
    accumulating.gradient_accumulation_steps = 2
    fit(accumulating)
    keras.config.backend = lambda: "jax"
    fit(BaseOptimizer())
    session = sys.modules["vramscope_probe.base.current"].session
    while session._sampler.outbox._readings:
        time.sleep(0.05)
    print(failures())
"""


def test_optimizers_of_keras_end_steps_and_their_variables_are_counted(stand_in: Path) -> None:
    """Those on other backends do not, and a batch that only adds to gradients ends none."""
    for name, text in KERAS.items():
        path = stand_in / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    with listen(stand_in) as hub:
        assert finish(start(stand_in, textwrap.dedent(FIT))) == "[]\n"
        hub.wait_for_goodbye()
        assert [row[0] for row in hub.steps()] == [1, 2, 3, 4, 5, 6]
        states = hub.of(ModelState)
    assert (states[0].parameters_bytes, states[0].optimizer_bytes) == (64, 128)
