"""InternLM's memory.log: totals in the order and at the times of the profiler, and said to be computed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.errors import InputFileError
from vramscope.engine.files.base.series_reader import MOST_BYTES
from vramscope.engine.files.framework.internlm_log import InternlmLog
from vramscope.engine.sampling.series_source import open_series

from .series_files import allocated, play

MIB = 1 << 20
FIRST = """Memory State:
time: 37.56
---summary---
total_memory: 55953.57 MB
params_memory: 13965.51 MB, grads_memory: 13965.51 MB, os_params_memory: 3461.52 MB, os_state_memory: \
6923.03 MB, activation_memory: 17638.00 MB

---Layout---
params_layout:
layer: param_mem, layer_mem: 0.00 MB, total_mem: 13965.51 MB
layer: param_mem.embedding, layer_mem: 1024.00 MB, total_mem: 1024.00 MB
......

"""
SECOND = """Memory State:
time: 38.25
---summary---
total_memory: 38315.57 MB
params_memory: 13965.51 MB, grads_memory: 13965.51 MB, os_params_memory: 3461.52 MB, os_state_memory: \
6923.03 MB, activation_memory: -0.00 MB

"""


def test_states_are_computed_totals_of_a_rank(tmp_path: Path) -> None:
    folder = tmp_path / "rank3_dp1_wp0_tp1"
    folder.mkdir()
    path = folder / "memory.log"
    path.write_text(FIRST + SECOND + SECOND.replace("38.25", "39.5").replace("38315.57", "x"))
    source, samples = play(path)
    assert (source.format, source.clock) == ("InternLM log", "trace")
    assert allocated(samples, 3) == [(37.56, round(55953.57 * MIB)), (38.25, round(38315.57 * MIB))]
    device = samples[0].devices[0]
    assert (device.kind, source.label(device.uuid)) == ("simulated", "rank 3")
    assert device.rank is not None
    assert (device.rank.rank, device.rank.dp, device.rank.tp, device.rank.pp) == (3, 1, 1, None)
    assert device.memory.used_bytes is None
    notes = "\n".join(source.notes)
    assert "computed from tensor shapes by the rule of InternLM's profiler, not measured" in notes
    assert "at the largest total of 54.6 GiB: 17.2 GiB activations, 13.6 GiB parameters" in notes
    assert "1 record was left out: line 19: total_memory is '', expected MB" in notes


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Memory State:\n", "line 1: time is '', expected seconds"),
        ("Memory State:\ntime: 1.0\ntotal_memory: -5.00 MB\n", "total_memory is '-5.00', expected MB"),
        ("Memory State:\ntime: nan\n", "time is 'nan', expected seconds"),
    ],
)
def test_a_log_without_a_state_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "memory.log"
    path.write_text(text)
    with pytest.raises(InputFileError) as caught:
        open_series(path)
    assert str(caught.value).startswith(f"{path}: no usable state; ")
    assert why in str(caught.value)


@given(edits=st.lists(st.tuples(st.integers(0, 700), st.text(max_size=5), st.integers(0, 9)), max_size=6))
def test_a_damaged_log_gives_totals_or_counts_them(
    edits: list[tuple[int, str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = FIRST + SECOND
    for at, new, removed in edits:
        text = text[:at] + new + text[at + removed :]
    path = tmp_path_factory.getbasetemp() / "memory.log"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    reader = InternlmLog(path)
    assert all(0 <= (record.allocated_bytes or 0) < MOST_BYTES for record in reader.records())
    assert all(note.isprintable() for note in (*reader.notes, reader.explain_absence()))
