"""`make demo`: whatever ends it, its program ends too and nothing stays behind."""

import signal
import subprocess
import sys

import pytest

from .running import REPOSITORY

SCRIPT = """
import os, sys
from benchmarks.demo import Ending
ending = Ending()
ending.install()
program = "import time; print('up', flush=True); time.sleep(60)"
code = ending.run([sys.executable, "-c", program], dict(os.environ))
print("tidied", flush=True)
sys.exit(code)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_program_and_leaves_time_to_tidy(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], cwd=REPOSITORY, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.wait(timeout=10) == 128 + number
        assert process.stdout.read() == "tidied\n"
