"""A snapshot that is taken on the simulated device says what held memory, as that of a GPU does."""

from pathlib import Path

import pytest

from tests.engine.files.snapshots import MIB
from tests.engine.simulation.simulated import answers
from vramscope.analyzers.snapshot_summary.cursor import TimeCursor
from vramscope.engine.files.memory_snapshot import read_memory_snapshot

# The peak is in the second backward pass: gradients and the optimizer's state are kept, and so are outputs.
TRAINED = """
import json, torch
from torch import nn
torch.cuda.memory._record_memory_history()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 1024), nn.Linear(1024, 256)
    def forward(self, x):
        return self.second(torch.square(self.first(x)))
net = Net().to("cuda")
optimizer = torch.optim.AdamW(net.parameters())
for step in range(2):
    x = torch.randn(4096, 256, device="cuda")
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
torch.cuda.memory._dump_snapshot("trained.pickle")
print(json.dumps(torch.cuda.max_memory_allocated()))
"""


@pytest.mark.parametrize("is_fake", [False, True])
def test_parameters_gradients_states_and_activations_are_told_apart(tmp_path: Path, is_fake: bool) -> None:
    peak_bytes = answers(tmp_path, TRAINED, is_fake=is_fake)
    cursor = TimeCursor(read_memory_snapshot(tmp_path / "trained.pickle"), 0)
    moment = cursor.moment(cursor.peak, 50)
    by = {group.by: {row.name: row.size_bytes for row in group.rows} for group in moment.groups}
    # Matrices of 1 MiB, and biases of 4 KiB and 1 KiB: all multiples of 512 bytes.
    parameters = 2 * MIB + 5 * 1024
    activation = 16 * MIB
    kinds = by["kind"]
    assert kinds["model: built, loaded or moved"] == parameters
    assert kinds["optimizer step"] == 2 * parameters
    # The first layer's output and its square: the one was computed by a module of PyTorch, the other not.
    # The output of the first layer, which squaring saves.
    assert kinds["forward pass"] == activation
    assert by["module"]["train.py:10 > linear"] == activation
    inputs, loss = 4 * MIB, 512
    assert kinds["other lines"] == inputs + loss
    assert sum(kinds.values()) == peak_bytes
    # Gradients of the parameters, and of what the backward pass computes on its way.
    assert kinds["backward pass"] > parameters + activation
