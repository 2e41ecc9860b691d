"""JAX itself, on the CPU, where `make jax` has installed it: the probe, and the compiler's own estimate."""

import base64
import json
import os
import subprocess
import zlib
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.engine.probe.hub import listen
from tests.engine.probe.processes import finish, start
from tests.waiting import wait_until
from vramscope.engine.ranks.messages import Readings, SegmentsPart

MIB = 1 << 20
PYTHON = REPOSITORY / ".venv" / "jax" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="JAX is not installed: make jax")

SCRIPT = """
import jax, jax.numpy as jnp
from jax._src import xla_bridge
def build():
    return [jnp.ones((256, 1024)) for _ in range(3)]
sys.stdin.readline()
print(probe.is_running(), xla_bridge.backends_are_initialized(), flush=True)
arrays = build()
sys.stdin.readline()
print(failures())
"""


def test_arrays_are_counted_and_listed_by_line_and_jax_is_not_started(tmp_path: Path) -> None:
    with listen(tmp_path) as hub:
        process = start(tmp_path, SCRIPT, python=str(PYTHON))
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "True False\n"
        hub.wait_for(Readings)
        wait_until(lambda: (hub.readings()[-1][1] or 0) >= 3 * MIB, 60, "the arrays in a reading")
        assert hub.readings()[-1][1] == pytest.approx(3 * MIB, abs=4096)
        hub.ask_for("segments", request=3)
        packed = "".join(part.data for part in hub.wait_for(SegmentsPart))
        stacks = json.loads(zlib.decompress(base64.b64decode(packed)))["live_stacks"]
        ours = [(size, frames[0][2]) for size, _, frames in stacks if frames[0][0].endswith("train.py")]
        assert sum(size for size, _ in ours) >= 3 * MIB
        assert hub.hello().jax
        process.stdin.write("\n")
        process.stdin.flush()
        assert finish(process) == "[]\n"


STEP = """
import jax, jax.numpy as jnp
def make_step(layers=1):
    weights = [jax.ShapeDtypeStruct((512, 512), jnp.float32)] * layers
    def step(weights, x):
        def loss(weights):
            y = x
            for weight in weights:
                y = jnp.tanh(y @ weight)
            return (y * y).mean()
        return [a - b for a, b in zip(weights, jax.grad(loss)(weights))]
    return jax.jit(step, donate_argnums=0), (weights, jax.ShapeDtypeStruct((8, 512), jnp.float32))
"""


def test_xla_says_what_a_compiled_step_needs(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEP)
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"factory": "steps:make_step", "arguments": {}, "layers": 4}))
    result = tmp_path / "result.json"
    done = subprocess.run(
        [PYTHON, "-m", "vramscope.engine.workloads.jax_memory", request, result],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(result.read_text())
    # Four weights of 1 MiB and the input; all new weights are stored in the old ones.
    assert found["argument_bytes"] == 4 * MIB + 8 * 512 * 4
    assert found["aliased_bytes"] == 4 * MIB
    assert found["temporary_bytes"] > 0
    assert found["platform"] == "cpu"
