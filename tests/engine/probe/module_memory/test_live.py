"""Memory by module of a job that runs: asked while it trains, followed for a few steps, let go by itself."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.engine.probe.processes import LOAD, MODEL, run_beside_torch
from tests.engine.ranks.running import RankHub, see, see_ranks
from vramscope.analyzers.modules import find_node, make_breakdown
from vramscope.cli.verbs.modules import Wanted, ask_profiles
from vramscope.engine.errors import UsageError
from vramscope.engine.probe.module_memory.module_watch import ModelSearch
from vramscope.engine.viewer.client import Client
from vramscope.engine.viewer.snapshot import RankModules, Snapshot
from vramscope.exporters.modules.text import has_step

BEGIN = LOAD + "probe = load_probe(); probe.start(sys.argv[1], job='job-1', is_explicit=True)\n"
TRAINING = """
import pathlib
while not pathlib.Path(sys.argv[1], "enough").exists():
    train(1, pause=0.02)
train(12)
modules = torch.nn.modules.module
hooks = [*modules._global_forward_pre_hooks.values()]
for module in model.modules():
    hooks += [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
print(len(hooks), torch._C._autograd._top_saved_tensors_default_hooks(True), failures())
"""
FUNCTIONAL = """
import pathlib, time
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
while not pathlib.Path(sys.argv[1], "enough").exists():
    (weight * weight).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""
PARAMETERS = 4 * (16 * 32 + 32 + 32 * 4 + 4)
COUNTERS = 4 * 4
"""AdamW counts the steps of each parameter in a tensor of its own."""


@contextmanager
def job_in_training(folder: Path, script: str) -> Iterator[list[str]]:
    """Train in a process until the block ends; what it printed is in the list then."""
    printed: list[str] = []
    training = threading.Thread(
        target=lambda: printed.append(run_beside_torch(folder, MODEL + script, prelude=BEGIN).stdout)
    )
    training.start()
    try:
        yield printed
    finally:
        (folder / "enough").touch()
        training.join(100)


def see_answer(client: Client, pid: int, after: int, *, is_refused: bool = False) -> RankModules:
    """Return the next answer of a process; one that was on its way as a job ended comes before a refusal."""

    def is_there() -> list[RankModules]:
        found = [each for each in client.snapshot(timeout_s=0.0).modules if each.pid == pid]
        return [each for each in found if each.number > after and (each.refusal or not is_refused)]

    see(client, lambda _: is_there(), "an answer", timeout_s=60.0)
    return is_there()[0]


def ask(client: Client, pid: int, *, is_refused: bool = False) -> RankModules:
    """Ask a process and return its answer, so that nothing that was asked is on its way after that."""
    known = [each.number for each in client.snapshot(timeout_s=0.0).modules if each.pid == pid]
    client.ask_modules(pid)
    return see_answer(client, pid, max(known, default=0), is_refused=is_refused)


def find_step(snapshot: Snapshot) -> int:
    """Return the newest step of the only process."""
    ended = None if snapshot.sample is None else snapshot.sample.ranks[0].step
    return 0 if ended is None else ended.index


def test_a_job_is_asked_while_it_trains_and_let_go_by_itself(private_environment: Path) -> None:
    with RankHub(private_environment), Client(private_environment) as client:
        with job_in_training(private_environment, TRAINING) as printed:
            snapshot = see_ranks(client)
            assert snapshot.sample is not None
            pid = snapshot.sample.ranks[0].pid
            ((name, memory),) = ask_profiles(client, Wanted(None, "job-1"), 60.0)
            assert name == f"process {pid} of job job-1"
            assert has_step(memory)
            breakdown = make_breakdown(memory)
            sizes = {kind.kind: kind.measured_bytes for kind in breakdown.kinds}
            assert (sizes["params"], sizes["grads"]) == (PARAMETERS, PARAMETERS)
            assert sizes["os_state"] == 2 * PARAMETERS + COUNTERS
            assert sizes["activation"]
            tree = breakdown.find("params").tree
            assert tree is not None
            weight = find_node(tree, ("0", "weight"))
            assert weight is not None
            assert weight.measured_bytes == 4 * 16 * 32
            first = ask(client, pid)
            second = ask(client, pid)
            assert first.memory is not None
            assert second.memory is not None
            assert second.memory.moments[-1].time_s > first.memory.moments[-1].time_s
            tags = [it.tag for it in second.memory.moments if it.tag.startswith("step ")]
            named = int(tags[-1].removeprefix("step "))
            assert named > len(tags), "steps count from the first of the process, as on every screen"
            see(client, lambda it: find_step(it) >= named, "that step on the other screens")
            trees = {"params", "os_state", "activation"}
            assert any(moment.layouts.keys() >= trees for moment in second.memory.moments)
        assert printed == ["0 None []\n"], "no hook is left once nobody asks"
        refused = ask(client, pid, is_refused=True)
        assert refused.refusal == f"process {pid} has ended or was detached"
        assert refused.memory is not None, "what was there stays"
        assert refused.memory.moments[-1].time_s >= second.memory.moments[-1].time_s


def test_a_compiled_module_does_not_complain_of_the_search() -> None:
    handle = SimpleNamespace(remove=lambda: None)
    module = SimpleNamespace(register_module_forward_pre_hook=lambda hook: handle)
    torch = SimpleNamespace(nn=SimpleNamespace(modules=SimpleNamespace(module=module)))
    text = "Using `torch.compile(module)` when there are global hooks on modules (e.g., from `register…`)"
    search = ModelSearch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.begin(torch)
        warnings.warn(text, stacklevel=1)
        with pytest.raises(UserWarning, match="another"):
            warnings.warn("another", stacklevel=1)
        search.end()
        with pytest.raises(UserWarning, match="global hooks"):
            warnings.warn(text, stacklevel=1)
    search.end()


def test_a_job_without_modules_says_so(private_environment: Path) -> None:
    with RankHub(private_environment), Client(private_environment) as client:
        with job_in_training(private_environment, FUNCTIONAL):
            see_ranks(client)
            with pytest.raises(UsageError, match="called no module with trainable parameters"):
                ask_profiles(client, Wanted(None, "job-1"), 60.0)
        with pytest.raises(UsageError, match="process 1 does not report to the agent"):
            ask_profiles(client, Wanted(1, None), 1.0)
