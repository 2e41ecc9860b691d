"""Attention that names its kernel: computed as on the host, kept as by the kernel."""

from pathlib import Path

from tests.engine.simulation.simulated import answers

# In steps: every token of a sequence sees itself and those before it.
STEPS = """
import json, torch
torch.manual_seed(0)
def make(*shapes):
    return [torch.randn(shape, device="cuda", requires_grad=True) for shape in shapes]
def attend(query, key, value, is_seen, bias=0.0):
    groups = query.shape[-3] // key.shape[-3]
    key, value = (it.repeat_interleave(groups, -3) for it in (key, value))
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + bias
    return scores.masked_fill(~is_seen, -1e30).softmax(-1) @ value
def see(tokens, device="cuda"):
    place = torch.arange(tokens, device=device)
    return place[:, None] >= place, place[:, None] - place
def compare(output, expected, inputs):
    found = []
    for it in (output, expected):
        it.square().sum().backward()
        found.append([it.detach(), *(each.grad for each in inputs)])
        for each in inputs:
            each.grad = None
    return max((a - b).abs().max().item() for a, b in zip(*found))
found = {}
"""
PACKED = """
from torch.nn.attention.varlen import varlen_attn
inputs = query, key, value = make((10, 4, 8), (10, 2, 8), (10, 2, 8))
begins = torch.tensor([0, 4, 10], dtype=torch.int32, device="cuda")
before = torch.cuda.memory_allocated()
output = varlen_attn(query, key, value, begins, begins, 6, 6, window_size=(-1, 0), enable_gqa=True)
found["packed_bytes"] = torch.cuda.memory_allocated() - before
parts = [[it[begin:end].transpose(0, 1) for it in inputs] for begin, end in ((0, 4), (4, 10))]
expected = torch.cat([attend(*it, see(it[0].shape[1])[0]).transpose(0, 1) for it in parts])
found["packed"] = compare(output, expected, inputs)
"""
DENSE = """
inputs = make((2, 4, 16, 8), (2, 4, 16, 8), (2, 4, 16, 8))
output = torch.ops.aten._scaled_dot_product_flash_attention(*inputs, 0.0, True)[0]
found["dense"] = compare(output, attend(*inputs, see(16)[0]), inputs)
"""
FLEX = """
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
attention = torch.compile(flex_attention)
inputs = query, key, value = make((2, 4, 128, 16), (2, 2, 128, 16), (2, 2, 128, 16))
document = torch.arange(128, device="cuda") // 50
mask = create_block_mask(
    lambda batch, head, q, k: (q >= k) & (document[q] == document[k]), 2, None, 128, 128, device="cuda")
def run(*inputs):
    return attention(
        *inputs, score_mod=lambda s, b, h, q, k: s - 0.1 * (q - k), block_mask=mask, enable_gqa=True)
output = expected = None
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
output = run(*inputs)
found["flex_bytes"] = torch.cuda.memory_allocated() - before
found["flex_peak"] = torch.cuda.max_memory_allocated() - before
is_seen, distance = see(128)
is_seen = is_seen & (document[:, None] == document)
expected = attend(*inputs, is_seen, -0.1 * distance)
found["flex"] = compare(output, expected, inputs)
rounds = []
def layer(*inputs):
    rounds.append(1)
    return run(*inputs)
torch.utils.checkpoint.checkpoint(layer, *inputs, use_reentrant=False).sum().backward()
found["rounds"] = len(rounds)
"""
REPORT = "print(json.dumps(found))"


def test_flash_attention_and_flex_attention_compute_and_keep_what_the_kernels_do(tmp_path: Path) -> None:
    source = STEPS + PACKED + DENSE + FLEX + REPORT
    real = answers(tmp_path, source)
    for name in ("packed", "dense", "flex"):
        assert real[name] < 1e-5
    # Output, one float for each row and head, the state of a generator: in blocks of 512 bytes.
    assert real["packed_bytes"] == 1536 + 512 + 512
    rows = 2 * 4 * 128
    assert real["flex_bytes"] == real["flex_peak"] == rows * 16 * 4 + rows * 4
    # Checkpointing computes a layer twice: once in each direction.
    assert real["rounds"] == 2
    fake = answers(tmp_path, source, is_fake=True, has_stand_ins=True)
    for name in ("packed_bytes", "flex_bytes", "flex_peak", "rounds"):
        assert fake[name] == real[name]


def test_what_the_kernels_of_the_simulation_do_not_know_is_refused(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        q = torch.zeros(1, 4, 2, 8, device="cuda")
        slopes = torch.zeros(2, device="cuda")
        try:
            torch.ops.aten._flash_attention_forward(
                q, q, q, None, None, 4, 4, 0.0, False, False, alibi_slopes=slopes)
        except NotImplementedError as error:
            print(json.dumps(str(error)))
        """,
    )
    assert "alibi_slopes is not simulated" in found
