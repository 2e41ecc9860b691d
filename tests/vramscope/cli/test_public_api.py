"""`import vramscope`: free until something is used, and then what it says."""

import subprocess
import sys

import pytest

import vramscope
from vramscope.engine.errors import HubUnreachableError

from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until
from .running import environment
from .test_stream import agent


def test_importing_loads_nothing_else() -> None:
    code = (
        "import sys, vramscope; heavy = ('vramscope', 'zmq', 'msgspec', 'textual'); "
        "print(*sorted(name for name in sys.modules if name.partition('.')[0] in heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=30,
    )
    assert done.stdout.split() == ["vramscope"]


def test_public_names_are_there_and_no_others() -> None:
    for name in vramscope.__all__:
        assert getattr(vramscope, name)
    assert set(vramscope.__all__) <= set(dir(vramscope))
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        _ = vramscope.conect


def test_without_an_agent_connecting_says_how_to_start_one() -> None:
    with pytest.raises(vramscope.VramscopeError, match="vramscope agent") as caught:
        vramscope.connect()
    assert isinstance(caught.value, HubUnreachableError)
    assert caught.value.exit_code == 7


def test_a_program_follows_the_agent_of_its_node(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    device = pretend_driver.add_device()
    with agent("--interval", "0.1"), vramscope.connect(timeout_s=30.0) as client:
        samples = client.samples()
        wait_until(lambda: next(samples).devices, what="a device")
        assert next(samples).devices[0].uuid == device.uuid
