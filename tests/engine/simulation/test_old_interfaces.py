"""What older scripts use: typed constructors, DataParallel, LSTM; and the traceback that they are shown."""

from pathlib import Path

import pytest

from tests.engine.simulation.simulated import GIB, answers, plain_answers, run_script

TYPES = """
import json, torch
made = [torch.cuda.FloatTensor(2, 3), torch.cuda.LongTensor([1, 2]), torch.cuda.HalfTensor(torch.ones(3)),
        torch.ones(3).type(torch.cuda.DoubleTensor), torch.ones(3).type("torch.cuda.IntTensor")]
is_float = [isinstance(it, torch.cuda.FloatTensor) for it in (made[0], made[1], torch.ones(3))]
values = made[1].tolist()
allocated = torch.cuda.memory_allocated()
torch.set_default_tensor_type(torch.cuda.DoubleTensor)
made.append(torch.zeros(3))
torch.set_default_tensor_type("torch.FloatTensor")
default = str(torch.zeros(1).device)
print(json.dumps([[it.type() for it in made], default, is_float, values, list(made[0].shape), allocated]))
"""


def test_typed_constructors_make_tensors_of_the_device(tmp_path: Path) -> None:
    kinds, default, is_float, values, shape, allocated = answers(tmp_path, TYPES)
    names = ("Float", "Long", "Half", "Double", "Int", "Double")
    assert kinds == [f"torch.cuda.{name}Tensor" for name in names]
    assert default == "cpu"
    assert is_float == [True, False, False]
    assert values == [1, 2]
    assert shape == [2, 3]
    assert allocated == 5 * 512


PARALLEL = """
import json, sys, torch
from torch import nn
device = {device!r}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
inputs = torch.randn(6, 8).to(device)
run = nn.DataParallel(model) if device == "cuda" else model
output = run(inputs)
output.square().mean().backward()
peaks = [torch.cuda.max_memory_allocated(it) > 0 for it in range(torch.cuda.device_count())]
print(peaks, file=sys.stderr)
print(json.dumps([output.flatten().tolist(), [it.grad.sum().item() for it in model.parameters()]]))
"""


@pytest.mark.parametrize("devices", [1, 2])
def test_data_parallel_computes_what_the_module_computes(tmp_path: Path, devices: int) -> None:
    source = PARALLEL.format(device="cuda")
    outputs, gradients = answers(tmp_path, source, devices=devices)
    plain_outputs, plain_gradients = plain_answers(tmp_path, PARALLEL.format(device="cpu"))
    assert outputs == pytest.approx(plain_outputs, rel=1e-5)
    assert gradients == pytest.approx(plain_gradients, rel=1e-4)
    result = run_script(tmp_path, source, {"total_bytes": GIB, "devices": devices})
    assert result.stderr == f"{[True] * devices}\n"


def test_an_lstm_runs_without_a_word_about_libraries(tmp_path: Path) -> None:
    source = """
    import torch
    print(torch.nn.LSTM(4, 4).cuda()(torch.ones(2, 3, 4, device="cuda"))[0].device)
    """
    result = run_script(tmp_path, source, {"total_bytes": GIB})
    assert (result.stdout, result.stderr) == ("cuda:0\n", "")


EXCEEDING = """
import json, traceback, torch
small = torch.ones(1 << 20, device="cuda")
def count_frames(call):
    try:
        call()
    except torch.OutOfMemoryError as error:
        return len(traceback.extract_tb(error.__traceback__)) - 2
print(json.dumps([
    count_frames(lambda: torch.empty(1 << 32, device="cuda")),
    count_frames(lambda: small.expand(1 << 10, 1 << 20) + 1),
    count_frames(lambda: small.expand(1 << 10, 1 << 20).contiguous()),
]))
"""


def test_an_out_of_memory_error_shows_little_beside_the_line_of_the_user(tmp_path: Path) -> None:
    found = answers(tmp_path, EXCEEDING, is_fake=True)
    assert all(1 <= count <= 2 for count in found), found
