"""Real training on the CPU, in a process of its own, watched by the probe."""

import textwrap
from pathlib import Path

import pytest

from tests.engine.probe.hub import listen
from tests.engine.probe.processes import LOAD, MODEL, finish, run, run_beside_torch, start, start_beside_torch
from vramscope.engine.ranks.messages import Hello, ModelState, Readings, Steps

PARAMETERS_BYTES = 4 * (16 * 32 + 32 + 32 * 4 + 4)


def test_a_plain_training_script_reports_who_it_is_its_steps_and_its_model(tmp_path: Path) -> None:
    with listen(tmp_path) as hub:
        process = start(tmp_path, MODEL + "train(8, pause=0.05)\nprint(failures())")
        assert finish(process).strip() == "[]"
        goodbye = hub.wait_for_goodbye()
        hello, *_ = hub.connections[0]
    assert isinstance(hello, Hello)
    assert (hello.v, hello.pid, hello.job, hello.backend) == (1, process.pid, "job-1", "cpu")
    assert hello.command is not None
    assert hello.command.endswith(f"train.py {tmp_path}")
    assert hello.torch is not None
    assert hello.notes == ()
    assert not hello.is_simulated
    assert goodbye.reason == "exit"
    assert [row[0] for row in hub.steps()] == list(range(1, 9))
    assert hub.steps()[0][2] is None
    assert all(row[2] is not None and row[2] >= 0.05 for row in hub.steps()[1:])
    assert all(row[-1] is not None and row[-1] > 10**7 for row in hub.readings())
    assert hub.of(Readings)[-1].dropped == 0
    state = hub.of(ModelState)[-1]
    moments_and_counters = 2 * PARAMETERS_BYTES + 4 * 4
    assert state.parameters_bytes == state.gradients_bytes == PARAMETERS_BYTES
    assert state.optimizer_bytes == moments_and_counters
    assert state.grad_sample_bytes is None


SAME = """
import random, hashlib, io
def fingerprint():
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict(), torch.get_rng_state(), random.getstate()], file)
    weights = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    moments = b"".join(
        entry[name].numpy().tobytes() for entry in optimizer.state.values() for name in sorted(entry)
    )
    states = torch.get_rng_state().numpy().tobytes() + repr(random.getstate()).encode()
    return [hashlib.sha256(part).hexdigest() for part in (weights, moments, states)]
random.seed(3)
dropout = torch.nn.Dropout(0.3)
for step in range(60):
    inputs = torch.randn(8, 16) * random.random()
    loss = dropout(model(inputs)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(*fingerprint())
"""


def test_every_weight_is_the_same_bit_for_bit_with_and_without_the_probe(tmp_path: Path) -> None:
    plain = run_beside_torch(tmp_path, MODEL + SAME, prelude=LOAD)
    with listen(tmp_path) as hub:
        reported = run_beside_torch(tmp_path, MODEL + SAME)
        hub.wait_for_goodbye()
        assert len(hub.steps()) == 60
    assert plain.stdout.count(" ") == 2
    assert (reported.stdout, reported.stderr) == (plain.stdout, "")


def test_the_hub_may_be_absent_die_and_come_back(tmp_path: Path) -> None:
    script = MODEL + "print('trained', train(1), flush=True)\nfor _ in sys.stdin: train(3)\nprint(failures())"
    with listen(tmp_path) as hub:
        process = start_beside_torch(tmp_path, script)
        hub.wait_for(Steps)
    process.stdin.write("absent\n")
    process.stdin.flush()
    with listen(tmp_path) as hub:
        hub.wait_for(Steps)
        first = hub.connections[0][0]
        hub.wait_for(Readings, 2)
        finished = finish(process)
        hub.wait_for_goodbye()
    assert isinstance(first, Hello)
    assert first.pid == process.pid
    assert [row[0] for row in hub.steps()] == [2, 3, 4]
    assert hub.of(ModelState)[-1].parameters_bytes == PARAMETERS_BYTES
    assert "[]" in finished


def test_two_optimizers_make_one_step(tmp_path: Path) -> None:
    script = """
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        train(1)
        other.step()
    """
    with listen(tmp_path) as hub:
        assert run_beside_torch(tmp_path, MODEL + script_of(script)).stderr == ""
        hub.wait_for_goodbye()
        assert [row[0] for row in hub.steps()] == [1, 2, 3, 4, 5]


def test_marks_of_the_program_take_over_from_the_optimizers(tmp_path: Path) -> None:
    script = """
    with probe.phase("warm-up"):
        train(2)
    for _ in range(3):
        train(4)
        probe.step()
    """
    with listen(tmp_path) as hub:
        assert run_beside_torch(tmp_path, MODEL + script_of(script)).stderr == ""
        hub.wait_for_goodbye()
        # The first of the program's own marks ends what the optimizer has begun.
        assert [row[0] for row in hub.steps()] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_marks_that_are_announced_end_every_step_the_first_one_too(tmp_path: Path) -> None:
    script = """
    probe.expect_marks()
    for _ in range(3):
        train(4)
        probe.step()
    """
    with listen(tmp_path) as hub:
        assert run_beside_torch(tmp_path, MODEL + script_of(script)).stderr == ""
        hub.wait_for_goodbye()
        assert [row[0] for row in hub.steps()] == [1, 2, 3]


@pytest.mark.parametrize(("method", "count", "epochs"), [("fork", 2, 2), ("spawn", 1, 1)])
def test_workers_that_load_data_never_report(tmp_path: Path, method: str, count: int, epochs: int) -> None:
    script = f"""
    class Numbers(torch.utils.data.Dataset):
        def __len__(self): return 8
        def __getitem__(self, index): return torch.full((16,), float(index))
    if __name__ == "__main__":
        loader = torch.utils.data.DataLoader(
            Numbers(), num_workers={count}, multiprocessing_context="{method}")
        for epoch in range({epochs}):
            for batch in loader:
                train(1)
        print(probe.is_running())
    """
    with listen(tmp_path) as hub:
        process = start_beside_torch(tmp_path, MODEL + script_of(script))
        assert finish(process).split()[-1] == "True"
        hub.wait_for_goodbye()
        assert {hello.pid for hello in hub.of(Hello)} == {process.pid}
        assert len(hub.connections) == 1
        assert len(hub.steps()) == 8 * epochs


def test_a_forked_child_is_silent_until_it_trains_itself(tmp_path: Path) -> None:
    script = """
    import os
    train(3)
    for trains in (False, True):
        child = os.fork()
        if child == 0:
            if trains:
                train(2)
                probe.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(child)
    train(1)
    """
    with listen(tmp_path) as hub:
        process = start_beside_torch(tmp_path, MODEL + script_of(script))
        _, training_child = map(int, finish(process).split())
        hub.wait_for(type(hub.wait_for_goodbye()), 2)
        of_child = next(
            each for each in hub.connections if isinstance(each[0], Hello) and each[0].pid == training_child
        )
        assert {hello.pid for hello in hub.of(Hello)} == {process.pid, training_child}
        assert [row[0] for each in of_child if isinstance(each, Steps) for row in each.rows] == [1, 2]
        assert [row[0] for row in hub.steps() if row[0] > 2] == [3, 4]


def test_torch_may_be_imported_late_and_nothing_is_started_before_nor_said_after(tmp_path: Path) -> None:
    script = """
    import threading, time
    before = (probe.is_running(), threading.active_count(), "json" in sys.modules, "socket" in sys.modules)
    seen = []
    probe.after_torch_import(lambda torch: seen.append((torch.__name__, probe.is_running())))
    import torch
    probe.watch_imports(sys.argv[1], "job-1")
    import torch.nn
    print(before, seen, probe.is_running())
    time.sleep(1.5)
    """
    with listen(tmp_path) as hub:
        assert run(tmp_path, script) == "(False, 1, False, False) [('torch', False)] True\n"
        assert hub.connections == []


def test_an_import_of_torch_that_fails_is_noticed_when_it_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "import sys\nif not hasattr(sys, 'tried'):\n    sys.tried = 1\n    raise ImportError('no')"
    )
    script = """
    seen = []
    probe.after_torch_import(lambda torch: seen.append(hasattr(torch.__spec__.loader, "__dict__")))
    try:
        import torch
    except ImportError:
        print(seen)
    import torch
    print(seen, probe.is_running(), "exec_module" in vars(torch.__loader__))
    """
    assert run(tmp_path, script).splitlines() == ["[]", "[True] True False"]


def test_an_import_of_torch_that_is_under_way_is_noticed_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "import sys\nsys.during()\n"
        "if not hasattr(sys, 'tried'):\n    sys.tried = 1\n    raise ImportError('no')\nafter = 1\n"
    )
    script = """
    seen, probe = [], load_probe()
    def during():
        probe.after_torch_import(lambda torch: seen.append(torch.after))
        probe.start(sys.argv[1], is_explicit=True)
        print(seen, probe.is_running(), probe.is_importing())
    sys.during = during
    try:
        import torch
    except ImportError:
        print(seen, probe.is_running(), probe.is_importing())
    import torch
    print(seen, probe.is_running(), probe.is_importing(), type(torch.__spec__).__name__, failures())
    """
    assert run(tmp_path, script, prelude=LOAD).splitlines() == [
        "[] False True",
        "[] False False",
        "[] False True",
        "[1, 1] True False ModuleSpec []",
    ]


def test_a_process_without_torch_is_left_alone(tmp_path: Path) -> None:
    with listen(tmp_path) as hub:
        assert run(tmp_path, "with probe.phase('x'): probe.step()\nprint(probe.is_running())") == "False\n"
        assert hub.connections == []


def test_one_that_was_asked_for_reports_without_a_step_and_leaves_when_told(tmp_path: Path) -> None:
    script = """
    probe = load_probe()
    probe.start(sys.argv[1], is_explicit=True)
    import torch
    probe.start(sys.argv[1], is_explicit=True)
    sys.stdin.readline()
    print(probe.is_running(), failures())
    """
    with listen(tmp_path) as hub:
        process = start(tmp_path, script_of(script), prelude=LOAD)
        hub.wait_for(Readings)
        assert hub.hello().backend is None
        hub.ask_for("detach")
        assert hub.wait_for_goodbye().reason == "detached"
        output, _ = process.communicate("go on\n", timeout=60)
        assert len(hub.connections) == 1
    assert output == "False []\n"


def test_a_compiled_optimizer_step_is_the_same_and_compiles_nothing_of_ours(tmp_path: Path) -> None:
    script = MODEL + script_of(
        """
        step = torch.compile(optimizer.step, backend="eager")
        for _ in range(12):
            model(torch.ones(8, 16)).square().mean().backward()
            step()
            optimizer.zero_grad()
        print(*(tensor.numpy().tobytes().hex()[:64] for tensor in model.state_dict().values()))
        """
    )
    # PyTorch says by itself that it leaves its profiler out; it may not say more because of us.
    plain = run_beside_torch(tmp_path, script, prelude=LOAD)
    with listen(tmp_path) as hub:
        watched = run_beside_torch(tmp_path, script)
        hub.wait_for_goodbye()
        assert len(hub.steps()) == 12
    assert watched.stdout == plain.stdout
    assert plain.stdout != ""
    assert len(watched.stderr.splitlines()) == len(plain.stderr.splitlines())


def test_virtual_steps_of_opacus_are_not_steps(tmp_path: Path) -> None:
    script = """
    from opacus import PrivacyEngine
    from opacus.utils.batch_memory_manager import BatchMemoryManager
    rows = torch.utils.data.TensorDataset(torch.randn(32, 16))
    private, dp_optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=model, optimizer=optimizer, data_loader=torch.utils.data.DataLoader(rows, batch_size=16),
        noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=False,
    )
    calls = 0
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=4, optimizer=dp_optimizer) as small:
        for (batch,) in small:
            dp_optimizer.zero_grad()
            private(batch).square().mean().backward()
            dp_optimizer.step()
            calls += 1
    print(calls)
    """
    quiet = "import warnings; warnings.simplefilter('ignore')\n"
    with listen(tmp_path) as hub:
        done = run_beside_torch(tmp_path, quiet + MODEL + script_of(script))
        assert (done.stdout, done.stderr) == ("8\n", "")
        hub.wait_for_goodbye()
        assert [row[0] for row in hub.steps()] == [1, 2]
        assert (hub.of(ModelState)[-1].grad_sample_bytes or 0) >= 4 * PARAMETERS_BYTES


def script_of(text: str) -> str:
    """Return a script without the indentation that it has in a test."""
    return textwrap.dedent(text)
