"""The words of the phase profiler of Opacus's examples: line by line, and back through our reader."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramscope.engine.files.phases import is_phase_file, read_phase_file
from vramscope.engine.model.phase_memory import (
    STEP_PHASES,
    MemoryLevels,
    PhaseDevice,
    PhaseMemory,
    PhaseRecord,
    PhaseRun,
    PhaseTraining,
)
from vramscope.exporters.phases.report import describe_as_original, merge_stages

from ...vramscope.phases.runs import MIB, SETUP, make_run, take_step

CARD = PhaseDevice(kind="cuda", name="NVIDIA H100 80GB HBM3", total_bytes=80 << 30)
HEAD = """\
使用设备: cuda
模型大小: tiny
批次大小: 4
序列长度: 128
训练步数: 1

模型配置:
  词汇表大小: 1000
  隐藏层大小: 64
  层数: 2
  注意力头数: 4

=== Model Creation Memory Usage ===
Before: 0.00 MB allocated, 50.00 MB reserved
After:  100.00 MB allocated, 150.00 MB reserved
Peak:   100.00 MB allocated
Diff:   +100.00 MB allocated, +100.00 MB reserved
"""
STEP = """\

开始训练 1 步...

--- 训练步骤 1/1 ---

=== Forward Pass Memory Usage ===
Before: 100.00 MB allocated, 150.00 MB reserved
After:  170.00 MB allocated, 220.00 MB reserved
Peak:   180.00 MB allocated
Diff:   +70.00 MB allocated, +70.00 MB reserved

=== Backward Pass Memory Usage ===
"""
END = """\
损失: 6.9188

============================================================
MEMORY USAGE SUMMARY
============================================================
1. Model Creation
   Peak: 100.00 MB
   Diff: +100.00 MB
2. DP Setup
   Peak: 100.00 MB
   Diff: +0.00 MB
3. Forward Pass
   Peak: 180.00 MB
   Diff: +70.00 MB
4. Backward Pass
   Peak: 650.00 MB
   Diff: +430.00 MB
5. Optimizer Step
   Peak: 750.00 MB
   Diff: +100.00 MB
6. Zero Gradients
   Peak: 700.00 MB
   Diff: -600.00 MB

最终内存状态:
  已分配: 100.00 MB
  已保留: 150.00 MB
  峰值分配: 700.00 MB
"""
SIZES = st.integers(0, 1 << 45)


@st.composite
def draw_runs(draw: st.DrawFn) -> PhaseRun:
    """Draw a run with any figures, on a real or a simulated card, as far as it came."""
    steps = draw(st.integers(1, 3))
    names: list[tuple[str, int | None]] = [("Model Creation", None), ("DP Setup", None)]
    names += [(name, step) for step in range(1, steps + 1) for name in STEP_PHASES]
    came = draw(st.integers(1, len(names)))
    drawn = [MemoryLevels(allocated_bytes=draw(SIZES), reserved_bytes=draw(SIZES)) for _ in range(3 * came)]
    phases = [
        PhaseMemory(phase=name, step=step, before=drawn[at], after=drawn[at + 1], peak=drawn[at + 2])
        for at, (name, step) in zip(range(0, 3 * came, 3), names, strict=False)
    ]
    losses = draw(st.lists(st.none() | st.floats(0, 1e6), max_size=max(0, came - 2) // len(STEP_PHASES)))
    training = PhaseTraining(model_size="tiny", num_steps=steps)
    kind = draw(st.sampled_from([CARD, PhaseDevice(kind="simulated", name="Simulated 2 GiB GPU")]))
    return make_run(training=training, device=kind, phases=tuple(phases), losses=tuple(losses))


def read_back(path: Path, text: str) -> PhaseRecord:
    """Write a text, and return what our reader makes of it."""
    path.write_text(text, "utf-8")
    assert is_phase_file(path)
    file = read_phase_file(path)
    assert file.notes == ()
    (record,) = file.records
    return record


def test_the_text_is_that_of_the_original_line_by_line() -> None:
    text = describe_as_original(make_run(device=CARD))
    assert text.startswith(HEAD)
    assert STEP in text
    assert text.endswith(END)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw_runs())
def test_what_is_written_is_read_back_to_two_decimals(tmp_path: Path, run: PhaseRun) -> None:
    record = read_back(tmp_path / "log", describe_as_original(run))
    assert record.is_simulated == (run.device.kind == "simulated")
    assert (record.device, record.num_steps, record.model) == ("cuda", run.training.num_steps, run.model)
    stages = merge_stages(run.phases)
    assert [(each.phase, each.step) for each in record.phases] == [(each.phase, each.step) for each in stages]
    for read, told in zip(record.phases, stages, strict=True):
        for got, was in ((read.before, told.before), (read.after, told.after)):
            check_close(got.allocated_bytes, was.allocated_bytes)
            check_close(got.reserved_bytes, was.reserved_bytes)
        check_close(read.peak.allocated_bytes, told.peak.allocated_bytes)
        check_close(read.allocated_difference_bytes, told.allocated_difference_bytes)
        check_close(read.reserved_difference_bytes, told.reserved_difference_bytes)
    check_close(record.final.reserved_bytes, run.phases[-1].after.reserved_bytes)
    assert record.losses == tuple(None if loss is None else float(f"{loss:.4f}") for loss in run.losses)


def check_close(read: int | None, told: int | None) -> None:
    """Check that two figures are the same to two decimals of a MiB."""
    assert read is not None
    assert told is not None
    assert abs(read - told) <= 0.005 * MIB + 1


def test_without_a_gpu_the_original_tells_no_figures(tmp_path: Path) -> None:
    text = describe_as_original(make_run(device=PhaseDevice(kind="cpu", name="CPU (resident memory)")))
    assert "=== Forward Pass Completed ===\n(CPU模式 - 内存统计不可用)\n" in text
    assert "EXECUTION SUMMARY (CPU模式)" in text
    assert "3. Forward Pass\n   已完成 (CPU模式)\n" in text
    assert "MB" not in text
    record = read_back(tmp_path / "log", text)
    assert record.device == "cpu"
    assert [each.phase for each in record.phases][2:4] == ["Forward Pass", "Backward Pass"]
    assert {each.peak.allocated_bytes for each in record.phases} == {None}


@pytest.mark.parametrize(("phase", "stage"), [("Loss", "Forward Pass"), ("Backward", "Backward Pass")])
def test_running_out_of_memory_is_said_and_read(tmp_path: Path, phase: str, stage: str) -> None:
    other: dict[str, Any] = {"end": "out_of_memory", "failed_phase": phase, "requested_bytes": 512 * MIB}
    run = make_run(phases=(*SETUP, *take_step(1)[:1]), losses=(), device=CARD, **other)
    record = read_back(tmp_path / "log", describe_as_original(run))
    assert (record.end, record.failed_phase, record.requested_bytes) == ("out_of_memory", stage, 512 * MIB)
    assert record.phases[-1].phase == "Forward Pass"
