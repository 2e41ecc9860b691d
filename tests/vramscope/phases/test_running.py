"""A training in a process of its own: what is kept when it ends otherwise than it should, and its ranks."""

import html
import json
from pathlib import Path

import msgspec
import pytest

from vramscope.analyzers.planning.cluster import find_device
from vramscope.engine.errors import PackageMissingError, UsageError
from vramscope.engine.model.phase_memory import PhaseDevice, PhaseRun, PhaseTraining
from vramscope.engine.units import GIB
from vramscope.exporters.phases.text import describe_phases
from vramscope.exporters.text import NOTEBOOK_WIDTH
from vramscope.phases import running
from vramscope.phases.running import (
    DeviceChoice,
    RankRuns,
    check_training,
    choose_device,
    count_ranks,
    make_child_environment,
    run_phases,
)

TINY = PhaseTraining(model_size="tiny")


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch, private_environment: Path) -> pytest.MonkeyPatch:
    monkeypatch.setattr(running, "_SCRIPT", "tests.vramscope.phases.pretend_training")
    return monkeypatch


def run_pretended(pretend: pytest.MonkeyPatch, how: str, device: str = "simulate:1GiB") -> PhaseRun:
    pretend.setenv("PRETEND_END", how)
    (run,) = run_phases(TINY, device)
    return run


@pytest.mark.parametrize(
    ("how", "words"),
    [("killed", "SIGKILL: the kernel sends it"), ("silent", "exit code 0 before it was done")],
)
def test_what_was_measured_is_kept_when_the_process_dies(
    pretend: pytest.MonkeyPatch, how: str, words: str
) -> None:
    run = run_pretended(pretend, how)
    assert (run.end, run.failed_phase, run.failed_step) == ("failed", "Forward", 1)
    assert [it.phase for it in run.phases] == ["Model Creation", "DP Setup"]
    assert words in (run.error or "")


def test_ctrl_c_ends_the_process_and_keeps_what_was_measured(pretend: pytest.MonkeyPatch) -> None:
    pretend.setenv("PRETEND_END", "waiting")

    def interrupt(run: PhaseRun) -> None:
        if len(run.phases) == 2:
            raise KeyboardInterrupt

    (run,) = run_phases(TINY, "simulate:1GiB", on_phase=interrupt)
    assert run.end == "interrupted"
    assert len(run.phases) == 2


def test_a_host_without_memory_for_real_tensors_gets_a_run_without_storage(
    pretend: pytest.MonkeyPatch,
) -> None:
    run = run_pretended(pretend, "host_full")
    assert (run.end, run.error, run.device.is_fake) == ("finished", None, True)
    assert "repeated without storage" in (run.device.note or "")
    assert len(run.phases) == 2


def test_a_notebook_shows_runs_as_the_text_of_the_command(pretend: pytest.MonkeyPatch) -> None:
    pretend.setenv("PRETEND_END", "finished")
    runs = run_phases(TINY, "simulate:1GiB")
    shown: str = runs._repr_html_()  # type: ignore[attr-defined]  # what a notebook asks for
    assert shown.startswith("<pre")
    assert html.unescape(shown.partition(">")[2].removesuffix("</pre>")) == describe_phases(
        runs, NOTEBOOK_WIDTH
    )
    assert "Simulated." in shown
    assert "Model Creation" in shown


def test_without_cuda_it_is_a_simulated_card_and_says_so(pretend: pytest.MonkeyPatch) -> None:
    pretend.setattr("vramscope.phases.running.choose_device", lambda *_, **__: DeviceChoice(kind="cuda"))
    run = run_pretended(pretend, "finished", "cuda")
    assert (run.end, run.device.kind) == ("finished", "simulated")
    assert "no CUDA device here" in (run.device.note or "")


def test_a_model_that_is_refused_is_a_usage_error(pretend: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="Opacus cannot train this model"):
        run_pretended(pretend, "refused")


def test_a_package_that_is_missing_ends_with_the_code_of_extras(pretend: pytest.MonkeyPatch) -> None:
    with pytest.raises(PackageMissingError, match="Opacus is not installed"):
        run_pretended(pretend, "no_package")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_size": "huge"}, "--model-size huge: expected one of tiny, small, medium, 1b, 3b"),
        ({"seq_length": 0}, "--seq 0: expected a whole number, 1 or more"),
        ({"batch_size": -1}, "--batch-size -1"),
        ({"num_steps": 0}, "--num-steps 0"),
        ({"warmup_steps": -1}, "--warmup -1"),
        ({"max_grad_norm": 0.0}, "--max-grad-norm 0: expected a number above 0"),
        ({"noise_multiplier": float("nan")}, "--noise-multiplier nan"),
        ({"factory": "train:make"}, "expected one model"),
        ({"model_size": None, "factory": "train"}, "expected MODULE:FUNCTION"),
        ({"model_size": None, "hugging_face": "nowhere"}, "expected a folder with config.json"),
        ({"strategy": "ddp"}, "torchrun --nproc-per-node 2 -m vramscope phases --strategy ddp"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_starts(
    changes: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError) as error:
        check_training(msgspec.structs.replace(TINY, **changes), {})
    assert words in error.value.describe("flag")
    assert "--" not in str(error.value).partition("`torchrun")[0], "a caller in Python has no flags"


def test_a_caller_in_python_reads_the_fields_of_its_training() -> None:
    for changes, words in (
        ({"seq_length": 0}, "seq_length 0: expected"),
        ({"warmup_steps": -1}, "warmup_steps -1: expected"),
        ({"is_checkpointed": True, "model_size": None, "factory": "a:b"}, "is_checkpointed does not go with"),
    ):
        with pytest.raises(UsageError, match=f"^{words}"):
            run_phases(msgspec.structs.replace(TINY, **changes), "simulate")
    with pytest.raises(UsageError, match=r"^device gpu: expected cuda, cpu, simulate"):
        run_phases(TINY, "gpu")


def test_an_error_of_the_training_process_names_fields_in_python_and_flags_on_a_command_line(
    pretend: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError) as error:
        run_pretended(pretend, "refused")
    assert str(error.value) == "Opacus cannot train this model; privacy none trains without Opacus"
    assert error.value.describe("flag").endswith("; --dp-mode none trains without Opacus")


def test_tensors_are_real_where_they_fit_the_host_and_fake_where_not() -> None:
    large = msgspec.structs.replace(TINY, model_size="3b")

    def choose(training: PhaseTraining, free_gib: int) -> bool:
        environ = {"LOCAL_WORLD_SIZE": "1"}
        return choose_device("simulate", training, environ=environ, host_free_bytes=free_gib * GIB).is_fake

    assert [choose(TINY, 8), choose(large, 24), choose(large, 512)] == [False, True, False]


def test_ranks_need_real_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    large = msgspec.structs.replace(TINY, model_size="3b", strategy="ddp")
    with pytest.raises(UsageError, match="need real tensors, about"):
        choose_device("simulate", large, environ={"LOCAL_WORLD_SIZE": "2"}, host_free_bytes=24 * GIB)


@pytest.mark.parametrize("device", ["gpu", "simulate:", "simulate:much", "simulate:100MiB"])
def test_a_device_that_does_not_exist_is_refused(device: str) -> None:
    with pytest.raises(UsageError) as error:
        choose_device(device, TINY, environ={}, host_free_bytes=None)
    assert error.value.describe("flag").startswith(f"--device {device}: ")


def test_a_card_is_chosen_by_its_kind(private_environment: Path) -> None:
    choice = choose_device("simulate:h100", TINY, environ={}, host_free_bytes=None)
    assert choice.total_bytes == find_device("h100").memory_bytes
    environ = {"VRAMSCOPE_RUNTIME_DIR": str(private_environment / "runtime")}
    simulated = json.loads(make_child_environment(choice, environ)["VRAMSCOPE_SIMULATE"])
    assert simulated["capability"] == [9, 0]


def test_runs_of_ranks_come_together_in_order_and_leave_nothing(private_environment: Path) -> None:
    common = {
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_PORT": "29500",
        "VRAMSCOPE_RUNTIME_DIR": str(private_environment / "runtime"),
    }
    first, second = (RankRuns({**common, "LOCAL_RANK": rank}) for rank in "01")
    device = PhaseDevice(kind="simulated", name="a card")
    for ranks in (first, second):
        ranks.begin()
    assert second.find_left() is None
    second.hand_in(PhaseRun(training=TINY, device=device, rank=1, end="out_of_memory"))
    left = first.find_left()
    assert left is not None
    assert left.rank == 1
    first.hand_in(PhaseRun(training=TINY, device=device, rank=0))
    assert [(run.rank, run.end) for run in first.gather()] == [(0, "finished"), (1, "out_of_memory")]
    assert not list((private_environment / "runtime" / "phases").iterdir())


def test_ranks_are_those_of_torchrun_not_of_another_launcher() -> None:
    assert count_ranks({"WORLD_SIZE": "8"}) == 1
    assert count_ranks({"WORLD_SIZE": "8", "RANK": "3"}) == 8
    with pytest.raises(UsageError, match="WORLD_SIZE=many"):
        count_ranks({"WORLD_SIZE": "many", "RANK": "3"})
