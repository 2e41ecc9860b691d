"""Without storage: sizes as with it, and as PyTorch's tracker has them; reading is refused or answered."""

from pathlib import Path

import pytest

from tests.engine.simulation.simulated import GIB, MIB, answers, plain_answers, run_script

GPT = """
import json, os, torch
from torch import nn
from torch.nn import functional
LAYERS, WIDTH, HEADS, WORDS, TOKENS = 3, 192, 3, 4000, 128
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mix = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
    def forward(self, x):
        batch, tokens, _ = x.shape
        parts = self.project(self.first(x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
        attended = functional.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.merge(attended.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.mix(self.second(x))
def make(device):
    blocks = [Block() for _ in range(LAYERS)]
    head = nn.Linear(WIDTH, WORDS, bias=False)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *blocks, nn.LayerNorm(WIDTH), head)
    model = model if device == "cpu" else model.to(device)
    return model, torch.optim.AdamW(model.parameters(), 1e-3, foreach=True)
def step(model, optimizer, device):
    tokens = torch.randint(0, WORDS, (4, TOKENS)).to(device)
    loss = functional.cross_entropy(model(tokens).view(-1, WORDS), tokens.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""
SIMULATED = """
model, optimizer = make("cuda")
step(model, optimizer, "cuda")
torch.cuda.reset_peak_memory_stats()
loss = step(model, optimizer, "cuda")
stats = torch.cuda.memory_stats()
kinds = ("allocated", "requested", "reserved")
print(json.dumps([stats[f"{kind}_bytes.all.peak"] for kind in kinds] + [str(loss.device)]))
"""
TRACKED = """
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
with FakeTensorMode():
    model, optimizer = make("cpu")
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        step(model, optimizer, "cpu")
        tracker.reset_mod_stats()
        step(model, optimizer, "cpu")
peak = tracker.get_tracker_snapshot("peak")
print(json.dumps(sum(figures["Total"] for figures in peak.values())))
"""
SMALL_BLOCK = 512


def test_figures_are_those_of_real_storage_and_of_pytorchs_own_tracker(tmp_path: Path) -> None:
    fake = answers(tmp_path, GPT + SIMULATED, is_fake=True)
    real = answers(tmp_path, GPT + SIMULATED)
    tracked = plain_answers(tmp_path, GPT + TRACKED)
    allocated, requested, _, device = fake
    assert device == "cuda:0"
    assert fake == real
    # The tracker rounds each tensor up to 512 bytes; a few hundred tensors live at the peak.
    assert 0 <= tracked - requested <= 400 * SMALL_BLOCK
    # What the allocator hands out beyond that is the rest of blocks that were not worth splitting.
    assert tracked <= allocated <= tracked * 1.05


def test_a_model_larger_than_the_host_is_trained_without_memory(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        model = torch.nn.Sequential(*(torch.nn.Linear(32768, 32768, bias=False) for _ in range(40))).cuda()
        model(torch.randn(4, 32768, device="cuda")).sum().backward()
        print(json.dumps(torch.cuda.memory_allocated()))
        """,
        total_bytes=400 * GIB,
        is_fake=True,
    )
    assert found >= 2 * 40 * 4 * GIB


@pytest.mark.parametrize(
    "reading",
    ["loss.item()", "print(loss)", "float(loss)", "bool(loss > 0)", "loss.cpu().numpy()", "f'{loss}'"],
)
def test_a_line_that_reads_a_value_is_named(tmp_path: Path, reading: str) -> None:
    source = f"import torch\nloss = torch.ones(3, device='cuda').sum()\nfirst = 1\n{reading}\n"
    result = run_script(tmp_path, source, {"total_bytes": GIB, "is_fake": True})
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"vramscope simulate: {tmp_path / 'train.py'}:4 reads the value of a tensor")


def test_data_are_loaded_and_sampled_for_real(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, numpy, torch
        from torch.utils.data import DataLoader, TensorDataset
        images = torch.from_numpy(numpy.ones((64, 16), dtype=numpy.float32))
        data = TensorDataset(images, torch.arange(64))
        loader = DataLoader(data, batch_size=16, shuffle=True, pin_memory=True)
        layer, seen = torch.nn.Linear(16, 4).cuda(), []
        for inputs, labels in loader:
            seen += labels.tolist()
            layer(inputs.to("cuda", non_blocking=True)).sum().backward()
        print(json.dumps([sorted(seen) == list(range(64)), str(layer.weight.grad.device)]))
        """,
        is_fake=True,
        total_bytes=64 * MIB,
    )
    assert found == [True, "cuda:0"]


READING = """
import json, torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cuda")
best, total, right = float("inf"), torch.zeros(1, device="cuda"), 0
for step in range(3):
    inputs, labels = torch.randn(32, 64).cuda(), torch.randint(0, 10, (32,)).cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs, labels)
    if not torch.isfinite(loss) or torch.isnan(outputs).any():
        raise RuntimeError("diverged")
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    total += loss.detach()
    best = loss.item() if loss < best else best
    right += (outputs.argmax(1) == labels).sum().item()
    print(f"{loss.item():.3f} {norm:>8.2f}", loss, outputs.shape, total.tolist())
mask = labels >= 0
chosen = [outputs[mask], outputs.masked_select(mask[:, None]), mask.nonzero(), labels.unique()]
answers = [
    [list(it.shape) for it in chosen[:3]], chosen[3].numel() <= 32, best < float("inf"), 0 <= right,
    type(total.detach().cpu().numpy()).__name__, torch.equal(labels, labels), scaler.get_scale(),
    int(optimizer.state[model[0].weight]["step"]),
    torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
print(json.dumps(answers))
"""


def test_a_script_that_reads_values_gets_stand_ins_and_needs_the_memory_that_it_needs(tmp_path: Path) -> None:
    config = {"total_bytes": GIB, "is_fake": True}
    fake = run_script(tmp_path, READING, {**config, "has_stand_ins": True})
    assert fake.returncode == 0, fake.stderr
    real = run_script(tmp_path, READING, {**config, "is_fake": False})
    assert fake.stdout.splitlines()[-1] == real.stdout.splitlines()[-1]
    lines = {
        text: number for number, text in enumerate((tmp_path / "train.py").read_text().splitlines(), start=1)
    }
    first, rest = (it for it in fake.stderr.splitlines() if it.startswith("vramscope simulate:"))
    finite = next(number for text, number in lines.items() if "isfinite" in text)
    assert f"train.py:{finite} reads the value of a tensor" in first
    assert "--fake=strict" in first
    printed = next(number for text, number in lines.items() if text.strip().startswith("print(f"))
    assert f"{tmp_path / 'train.py'}:" in rest
    assert str(printed) in rest.partition("train.py:")[2].split("; ")[0].split(", ")


def test_a_selection_of_unknown_size_has_the_largest(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        values = torch.randn(6, 4, device="cuda")
        mask = values > 0
        chosen = [values[mask], values.masked_select(mask), mask.nonzero(), values.unique()]
        print(json.dumps([list(it.shape) for it in chosen] + [str(it.device) for it in chosen]))
        """,
        is_fake=True,
        has_stand_ins=True,
    )
    assert found == [[24], [24], [24, 2], [24], *["cuda:0"] * 4]


def test_a_large_tensor_is_read_at_once_and_is_close_to_what_it_is_compared_with(tmp_path: Path) -> None:
    """Element by element three million would take longer than the script may."""
    script = """
    import json, torch
    values = torch.randn(3_000_000, device="cuda")
    read = values.tolist()
    close = torch.allclose(values, values + 0)
    print(json.dumps([len(read), read[0], torch.ones(2, 3, device="cuda").tolist(), close]))
    """
    length, first, table, is_close = answers(tmp_path, script, is_fake=True, has_stand_ins=True)
    assert (length, first, table, is_close) == (3_000_000, 1.0, [[1.0] * 3] * 2, True)


TRUNCATED = """
import json, torch
peaks = []
for low, high, std in ((-2, 2, 0.02), (-2, 2, 1.0), (-0.04, 0.04, 0.02), (1, 3, 0.9)):
    weight = torch.empty(1 << 16, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    torch.nn.init.trunc_normal_(weight, 0.0, std, low, high)
    peaks.append(torch.cuda.max_memory_allocated())
print(json.dumps(peaks))
"""


def test_an_initialiser_that_draws_again_until_all_is_within_bounds_reads_no_value(tmp_path: Path) -> None:
    assert answers(tmp_path, TRUNCATED, is_fake=True) == answers(tmp_path, TRUNCATED)


def test_a_checkpoint_without_values_is_saved_and_loaded_where_it_belongs(tmp_path: Path) -> None:
    script = """
    import io, json, torch
    model = torch.nn.Linear(600, 600).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(4, 600, device="cuda")).sum().backward()
    optimizer.step()
    before = torch.cuda.memory_allocated()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "it": model.weight}, file)
    file.seek(0)
    loaded = torch.load(file)
    grown = torch.cuda.memory_allocated() - before
    expected = sum(it.numel() * 4 for it in model.parameters()) * 3 + 600 * 600 * 4
    places = [str(loaded["model"]["weight"].device), str(loaded["optimizer"]["state"][0]["exp_avg"].device)]
    kinds = [isinstance(loaded["it"], torch.nn.Parameter), loaded["it"].requires_grad]
    del loaded
    file.seek(0)
    onto_host = torch.load(file, map_location="cpu")
    places.append(str(onto_host["model"]["weight"].device))
    model.load_state_dict(onto_host["model"])
    optimizer.load_state_dict(onto_host["optimizer"])
    optimizer.step()
    left = torch.cuda.memory_allocated() - before
    print(json.dumps([places, kinds, abs(grown - expected) < 20 * 512, left]))
    """
    places, kinds, is_counted, left_bytes = answers(tmp_path, script, is_fake=True, has_stand_ins=True)
    assert (places, kinds, is_counted) == (["cuda:0", "cuda:0", "cpu"], [True, True], True)
    assert left_bytes == 0


def test_a_library_that_looks_for_traced_tensors_finds_none(tmp_path: Path) -> None:
    """transformers makes masks that it leaves out otherwise if it believes that it is traced."""
    script = """
    import json, torch
    from torch._subclasses import fake_tensor
    tensor = torch.ones(3, device="cuda")
    with fake_tensor.FakeTensorMode() as mode:
        traced = torch.ones(3)
    kind = getattr(torch, "_subclasses").FakeTensor
    print(json.dumps([isinstance(it, kind) for it in (tensor, traced, torch.nn.Parameter(tensor), 1)]))
    """
    assert answers(tmp_path, script, is_fake=True, has_stand_ins=True) == [False, True, False, False]


def test_tensors_that_share_memory_have_addresses_that_say_so(tmp_path: Path) -> None:
    script = """
    import json, torch, warnings
    warnings.simplefilter("error")
    one, other = torch.empty(64, device="cuda"), torch.empty(64, device="cuda")
    part = one[8:].view(7, 8)
    found = [one.data_ptr() == one.detach().data_ptr(), part.data_ptr() - one.data_ptr(), one[:0].data_ptr()]
    found += [one.data_ptr() == one.untyped_storage().data_ptr(), one.data_ptr() == other.data_ptr()]
    print(json.dumps(found))
    """
    assert answers(tmp_path, script, is_fake=True, has_stand_ins=True) == [True, 32, 0, True, False]
    assert answers(tmp_path, script) == [True, 32, 0, True, False], "as with storage"


def test_a_file_of_safetensors_has_its_length_and_takes_no_room(tmp_path: Path) -> None:
    """Libraries look for tied weights by the addresses of storages before they save."""
    (tmp_path / "safetensors").mkdir()
    (tmp_path / "safetensors" / "__init__.py").touch()
    refusing = "def save_file(*_):\n    raise AssertionError('reads values')\nsave = save_file\n"
    (tmp_path / "safetensors" / "torch.py").write_text(refusing, encoding="utf-8")
    script = """
    import json, os, sys, torch
    sys.path.insert(0, os.getcwd())
    from safetensors.torch import save_file
    first, second = torch.nn.Linear(4096, 4096, device="cuda"), torch.nn.Linear(8, 8).cuda().half()
    tied = first.weight.detach()
    addresses = [it.untyped_storage().data_ptr() for it in (first.weight, tied, second.weight, second.bias)]
    save_file({"first": first.weight, "second": second.weight}, "it.safetensors", metadata={"format": "pt"})
    with open("it.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        begin = file.tell()
    told = os.stat("it.safetensors")
    same = [0 not in addresses, addresses[0] == addresses[1], len(set(addresses))]
    print(json.dumps([same, header, told.st_size - begin, told.st_blocks * 512 < 100_000]))
    """
    same, header, length, is_sparse = answers(tmp_path, script, is_fake=True, has_stand_ins=True)
    assert (same, is_sparse, length) == ([True, True, 3], True, 4096 * 4096 * 4 + 128)
    assert header["__metadata__"] == {"format": "pt"}
    assert header["first"] == {"dtype": "F32", "shape": [4096, 4096], "data_offsets": [0, 67108864]}
    assert header["second"] == {"dtype": "F16", "shape": [8, 8], "data_offsets": [67108864, 67108992]}


def test_whole_numbers_and_flags_are_exact_as_long_as_all_they_come_from_is_known(tmp_path: Path) -> None:
    """Masks and positions decide which way a library goes, and how large a selection is."""
    script = """
    import json, numpy, torch
    found = []
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).cuda()
    hidden = torch.randn(2, 4, 100, device="cuda")
    lengths, on_host = mask.sum(-1).tolist(), mask.cpu().numpy().tolist()
    found.append([mask.sum().item(), bool((mask == 1).all()), lengths, on_host])
    chosen = [hidden[mask.bool()], hidden[..., 0].masked_select(mask.bool()), mask.nonzero(), mask.unique()]
    found.append([list(it.shape) for it in chosen])
    positions = torch.arange(4, device="cuda")
    found.append((torch.diff(positions) != 1).any().item())
    view = positions[1:3]
    view += 10
    positions[0] = 7
    found.append(positions.tolist())
    first = [int(mask[0, 0]), str(mask[0, 0])]
    made = [torch.tensor([True, False], device="cuda"), torch.as_tensor(numpy.array([3, 4]), device="cuda")]
    table = torch.zeros(2, 5, dtype=torch.long, device="cuda")
    table[(torch.arange(2, device="cuda"), made[1])] = 1
    found.append([it.tolist() for it in (*made, table.flip([-1]).cumsum(-1))])
    mask.masked_fill_(hidden[..., 0] > 0, 5)
    unknown = [mask.sum().item() == 5, list(hidden[mask.bool()].shape), hidden.argmax(-1).max().item()]
    print(json.dumps([first, *found, unknown]))
    """
    exact = [
        [1, "tensor(1, device='cuda:0')"],
        [5, False, [3, 2], [[1, 1, 1, 0], [1, 1, 0, 0]]],
        [[5, 100], [5], [5, 2], [2]],
        False,
        [7, 11, 12, 3],
        [[True, False], [3, 4], [[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]]],
    ]
    found = answers(tmp_path, script, is_fake=True, has_stand_ins=True)
    assert found[:-1] == exact
    # What depends on numbers without values is a stand-in again.
    assert found[-1] == [False, [8, 100], 1]


WAITING = """
import json, torch
loss = torch.randn(4, device="cuda").sum()
steps = 0
{loop}
print(json.dumps(steps))
"""


@pytest.mark.parametrize(
    "loop",
    [
        "while loss.item() > 0.1:\n    steps += 1",
        "while True:\n    steps += 1\n    if loss < 0.1:\n        break",
    ],
)
def test_a_loop_that_waits_for_a_value_ends_in_one_line(tmp_path: Path, loop: str) -> None:
    config = {"total_bytes": GIB, "is_fake": True, "has_stand_ins": True}
    result = run_script(tmp_path, WAITING.format(loop=loop), config)
    assert (result.returncode, result.stdout) == (2, "")
    *_, line = result.stderr.splitlines()
    assert "waits in a loop for a value that never changes with --fake" in line
    assert "train.py:5" in line or "train.py:7" in line


@pytest.mark.parametrize(
    "loop",
    [
        "for steps in range(1500):\n    if loss < 0.1:\n        break",
        "while loss.item() > 0.1 and steps < 1499:\n    steps += 1",
        "while True:\n    steps += 1\n    if loss < 0:\n        break\n    if steps == 1499:\n        break",
    ],
)
def test_a_loop_that_ends_by_itself_goes_on(tmp_path: Path, loop: str) -> None:
    config = {"total_bytes": GIB, "is_fake": True, "has_stand_ins": True}
    result = run_script(tmp_path, WAITING.format(loop=loop), config)
    assert (result.returncode, result.stdout) == (0, "1499\n"), result.stderr


def test_weights_of_a_kind_of_their_own_and_lists_of_numbers_of_the_card(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        class Quantized(torch.nn.Parameter):
            def __new__(cls, data, bits):
                made = torch.Tensor._make_subclass(cls, data, False)
                made.bits = bits
                return made
        layer = torch.nn.Module()
        layer.weight = Quantized(torch.zeros(1024, dtype=torch.uint8, device="cuda"), 4)
        before = torch.cuda.memory_allocated()
        product = torch.randn(2, 1024, device="cuda") @ layer.weight.to(torch.float32)
        norms = torch.tensor([it.norm() for it in torch.randn(3, 8, device="cuda")])
        halves = torch.tensor([torch.ones((), dtype=torch.float16, device="cuda")])
        print(json.dumps([
            isinstance(layer.weight, Quantized), layer.weight.bits, str(layer.weight.device), before,
            list(product.shape), [str(norms.dtype), str(norms.device), len(norms)], str(halves.dtype)]))
        """,
        is_fake=True,
        has_stand_ins=True,
    )
    assert found == [True, 4, "cuda:0", 1024, [2], ["torch.float32", "cpu", 3], "torch.float16"]


def test_a_mask_with_fractions_is_exact_as_long_as_it_comes_from_whole_numbers(tmp_path: Path) -> None:
    """Longformer finds the tokens that see all by the sign of its mask; what is chosen decides sizes."""
    script = """
    import json, torch
    mask = torch.tensor([[2, 1, 1, 0], [2, 1, 0, 0]]).cuda()
    lowest = torch.tensor(0.0, device="cuda") + torch.finfo(torch.float32).min
    added = torch.where(mask > 0, 0.0, lowest)
    added[mask == 2] = 1.0
    hidden = torch.randn(2, 4, 100, device="cuda")
    seen = [(added > 0).nonzero().tolist(), list(hidden[added < 0].shape), added[0, :2].tolist()]
    added.mul_(hidden[..., 0])
    print(json.dumps([*seen, list(hidden[added < 0].shape)]))
    """
    found = answers(tmp_path, script, is_fake=True, has_stand_ins=True)
    assert found == [[[0, 0], [1, 0]], [3, 100], [1.0, 0.0], [8, 100]]


def test_threads_compute_at_once(tmp_path: Path) -> None:
    """Keras fetches batches in a thread of its own, and moves them to the card there."""
    script = """
    import json, sys, threading, torch
    sys.setswitchinterval(1e-6)
    failures = []
    def fetch():
        try:
            for _ in range(100):
                torch.ones(8, 8).to("cuda").to(torch.float64)
        except BaseException as error:
            failures.append(repr(error))
    layer = torch.nn.Linear(8, 8).cuda()
    fetching = threading.Thread(target=fetch)
    fetching.start()
    while fetching.is_alive():
        layer(torch.ones(8, 8, device="cuda")).softmax(-1).sum().backward()
    print(json.dumps(failures))
    """
    assert answers(tmp_path, script, is_fake=True, has_stand_ins=True) == []
