"""Steps with their sizes, and memory in the logs; the loops here call what those of the frameworks call.

The frameworks themselves run in `make compat`.
"""

from pathlib import Path
from textwrap import dedent

import pytest

from tests.engine.simulation.simulated import answers
from vramscope.callbacks.loggers import MemoryLog
from vramscope.callbacks.marks import StepMarks, measure_batch
from vramscope.engine.jobs.in_code import step_takers


class Shaped:
    """A tensor as far as its size is asked."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape


# Modules with what the callbacks need of each framework, in place of the framework.
STAND_INS = """
import json, sys, types
import torch
import vramscope.engine.jobs.in_code as in_code
for name in ("transformers", "keras", "keras.callbacks", "lightning", "lightning.pytorch"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["transformers"].TrainerCallback = sys.modules["transformers"].Trainer = object
sys.modules["lightning.pytorch"].Callback = object
sys.modules["keras"].callbacks = sys.modules["keras.callbacks"]
sys.modules["keras.callbacks"].Callback = object
steps = []
in_code.step_takers.append(lambda tokens, batch: steps.append((tokens, batch)))
in_code.attach = lambda: steps.append("attached")
import vramscope.callbacks.marks
vramscope.callbacks.marks.attach = in_code.attach
model = torch.nn.Linear(1000, 1000).cuda()
def work():
    model(torch.ones(512, 1000, device="cuda")).sum().backward()
    model.zero_grad()
def is_measured(found):
    return found == {
        "vram/peak_allocated_gib": torch.cuda.max_memory_allocated() / 2**30,
        "vram/peak_reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
        "vram/floor_gib": torch.cuda.memory_allocated() / 2**30,
    } and found["vram/floor_gib"] < found["vram/peak_allocated_gib"] < found["vram/peak_reserved_gib"]
"""


@pytest.mark.parametrize(
    ("content", "sizes"),
    [
        ({"input_ids": Shaped(4, 128), "labels": Shaped(4, 128)}, (512, 4)),
        ({"weights": 1.0, "images": Shaped(8, 3, 32, 32)}, (None, 8)),
        ([Shaped(8, 3, 32, 32), Shaped(8)], (None, 8)),
        (({"input_ids": Shaped(2, 16)}, 0.5), (32, 2)),
        (Shaped(6, 2), (None, 6)),
        (Shaped(), (None, None)),
        ("a text", (None, None)),
    ],
)
def test_sizes_of_a_micro_batch_come_from_shapes(
    content: object, sizes: tuple[int | None, int | None]
) -> None:
    assert measure_batch(content) == sizes


def test_transformers_step_has_its_largest_micro_batch_and_logs_come_before_the_loggers(
    tmp_path: Path,
) -> None:
    script = """
    from types import SimpleNamespace
    from vramscope.callbacks.transformers import MemoryCallback
    class Logger:
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(is_measured({name: it for name, it in logs.items() if name.startswith("vram/")}))
    class Model(torch.nn.Module):
        def forward(self, input_ids):
            work()
    seen, logger, outer = [], Logger(), Model()
    handler = SimpleNamespace(callbacks=[logger])
    callback = MemoryCallback.add_to(SimpleNamespace(callback_handler=handler))
    args, state = SimpleNamespace(torch_compile=False), SimpleNamespace(log_history=[{"loss": 1.0}])
    callback.on_train_begin(args, state, None, model=outer)
    for length in (16, 32, 8):
        outer(input_ids=torch.zeros(4, length, dtype=torch.long))
    outer.eval()
    outer(input_ids=torch.zeros(64, 64, dtype=torch.long))
    callback.on_step_end(args, state, None)
    outer.train()
    outer(input_ids=torch.zeros(2, 8, dtype=torch.long))
    callback.on_step_end(args, state, None)
    logs = {"loss": 1.0}
    for it in handler.callbacks:
        it.on_log(args, state, None, logs=logs)
    callback.on_train_end(args, state, None)
    is_kept = state.log_history[-1]["vram/floor_gib"] == logs["vram/floor_gib"]
    print(json.dumps([steps, seen, is_kept, len(outer._forward_pre_hooks)]))
    """
    assert answers(tmp_path, _join(script)) == [["attached", [128, 4], [16, 2]], [True], True, 0]


def test_lightning_logs_every_so_many_steps_of_the_optimizer(tmp_path: Path) -> None:
    script = """
    from types import SimpleNamespace
    from vramscope.callbacks.lightning import MemoryCallback
    logged = []
    logger = SimpleNamespace(log_metrics=lambda found, step: logged.append((is_measured(found), step)))
    trainer = SimpleNamespace(global_step=0, loggers=[logger], log_every_n_steps=2)
    callback = MemoryCallback()
    callback.on_fit_start(trainer, None)
    for position in range(8):
        work()
        trainer.global_step += position % 2
        callback.on_train_batch_end(trainer, None, None, (torch.ones(position + 1, 3),), position)
    print(json.dumps([steps, logged]))
    """
    marked = [[None, size] for size in (2, 4, 6, 8)]
    assert answers(tmp_path, _join(script)) == [["attached", *marked], [[True, 1], [True, 3]]]


def test_keras_batches_are_steps_and_epochs_have_the_memory(tmp_path: Path) -> None:
    script = """
    from vramscope.callbacks.keras import MemoryCallback
    callback, logs = MemoryCallback(batch_size=32), {}
    callback.on_train_begin()
    for batch in range(2):
        work()
        callback.on_train_batch_end(batch)
    callback.on_epoch_end(0, logs)
    print(json.dumps([steps, is_measured(logs)]))
    """
    assert answers(tmp_path, _join(script)) == [["attached", [None, 32], [None, 32]], True]


def test_no_device_means_no_numbers_in_the_logs() -> None:
    told: list[tuple[int | None, int | None]] = []

    def take(tokens: int | None, batch: int | None) -> None:
        told.append((tokens, batch))

    step_takers.append(take)
    try:
        marks = StepMarks()
        marks.end_step()
        assert (marks.read(), told) == ({}, [(None, None)])
    finally:
        step_takers.remove(take)


def _join(script: str) -> str:
    return STAND_INS + dedent(script)


def test_own_loops_log_to_tensorboard_wandb_and_mlflow_every_so_many_steps(tmp_path: Path) -> None:
    script = """
    from types import SimpleNamespace
    from vramscope.callbacks.loggers import MemoryLog
    scalars, metrics, rows, axes = [], [], [], []
    tensorboard = SimpleNamespace(add_scalar=lambda name, value, step: scalars.append((name, value, step)))
    mlflow = SimpleNamespace(log_metrics=lambda found, step: metrics.append((is_measured(found), step)))
    wandb = SimpleNamespace(log=rows.append, define_metric=lambda name, step_metric=None: axes.append(name))
    log = MemoryLog(tensorboard, mlflow, wandb, every=2)
    for size in (4, 8, 6, 2, 3):
        work()
        log.step(tokens=10 * size, batch=size)
    is_same = {name: value for name, value, step in scalars if step == 4}
    ends = [row.pop("vram/step") for row in rows]
    print(json.dumps([steps, metrics, is_measured(is_same), [is_measured(row) for row in rows], ends, axes]))
    """
    marked = [[10 * size, size] for size in (4, 8, 6, 2, 3)]
    logged = [[True, 2], [True, 4]]
    axes = ["vram/step", "vram/*"]
    assert answers(tmp_path, _join(script)) == [
        ["attached", *marked],
        logged,
        True,
        [True, True],
        [2, 4],
        axes,
    ]


def test_what_is_no_logger_is_refused() -> None:
    with pytest.raises(TypeError, match=r"cannot log memory to list: expected a SummaryWriter"):
        MemoryLog([])
