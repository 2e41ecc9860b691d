"""What CUDA runs and the host refuses: it runs on the simulated card, with and without storage."""

from pathlib import Path

from tests.engine.simulation.simulated import answers

CASES = """
import json, torch
from torch.nn import functional
found = {}
def case(run):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found[run.__name__] = [*map(str, run()), torch.cuda.max_memory_allocated() - before]
@case
def counts_of_integers():
    experts = torch.arange(8, device="cuda", dtype=torch.int32).repeat(512)
    counts = torch.histc(experts, bins=8, min=0, max=7)
    yield from (counts.dtype, counts.shape, counts.device, experts.histc(8, 0, 7).dtype)
def align(move):
    odds = torch.randn(50, 4, 20, device="cuda").log_softmax(2).detach().requires_grad_()
    targets, lengths = torch.randint(1, 20, (4, 10)), [torch.full((4,), 50), torch.full((4,), 10)]
    loss = functional.ctc_loss(odds, targets.to(move), *(it.to(move) for it in lengths))
    loss.backward()
    return loss.device, odds.grad.shape
@case
def products_in_a_wider_type():
    first, second = torch.randn(2, 64, 32, device="cuda").half(), torch.randn(2, 32, 64, device="cuda").half()
    added, row = torch.ones(2, 64, 64, device="cuda"), {"out_dtype": torch.float32}
    made = [torch.bmm(first, second, **row), torch.baddbmm(added, first, second, **row)]
    made += [torch.mm(first[0], second[0], **row), torch.addmm(added[0], first[0], second[0], **row)]
    made.append(torch.addmm(added[0], first[0], second[0], out=torch.empty(64, 64, device="cuda"), **row))
    return [it for one in made for it in (one.dtype, tuple(one.shape), one.device)]
@case
def ctc_with_lengths_of_the_host():
    return align("cpu")
@case
def ctc_with_lengths_of_the_card():
    return align("cuda")
@case
def saved_to_pinned_memory():
    weight = torch.randn(512, 512, device="cuda", requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = (weight * weight).sin().sum()
    loss.backward()
    return [weight.grad.device]
@case
def made_pinned():
    made = torch.empty(100, pin_memory=True)
    like = torch.zeros_like(made, pin_memory=True)
    pinned_bytes = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    return made.is_pinned(), like.is_pinned(), made.device, pinned_bytes
@case
def groups_of_matrices():
    tokens = torch.randn(32, 16, device="cuda", requires_grad=True)
    experts = torch.randn(2, 16, 64, device="cuda", requires_grad=True)
    ends = torch.tensor([10, 32], device="cuda", dtype=torch.int32)
    torch._grouped_mm(tokens, experts, offs=ends).square().sum().backward()
    return tokens.grad.shape, experts.grad.shape
@case
def pool():
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        return [torch.ones(10, device="cuda").device]
@case
def transform_of_half():
    signal = torch.randn(4, 16, device="cuda", dtype=torch.half)
    spectrum = torch.fft.rfft(signal)
    return spectrum.dtype, torch.fft.irfft(spectrum).dtype
print(json.dumps(found))
"""


def test_operations_of_cuda_alone_run_in_the_bytes_that_they_need_there(tmp_path: Path) -> None:
    real = answers(tmp_path, CASES)
    assert real == answers(tmp_path, CASES, is_fake=True)
    # The histogram of 4,096 numbers: 16 KiB of them, repeated from eight, and one block of counts at a time.
    assert real["counts_of_integers"][:4] == ["torch.int32", "torch.Size([8])", "cuda:0", "torch.int32"]
    assert real["counts_of_integers"][4] == 16384 + 2 * 512
    assert real["made_pinned"][:3] == ["True", "True", "cpu"]
    assert int(real["made_pinned"][3]) >= 2 * 400
    assert real["transform_of_half"][:2] == ["torch.complex32", "torch.float16"]
    assert real["ctc_with_lengths_of_the_host"][:2] == ["cuda:0", "torch.Size([50, 4, 20])"]
    wide = real["products_in_a_wider_type"][:-1]
    assert [wide[0::3], wide[1::3], wide[2::3]] == [
        ["torch.float32"] * 5,
        ["(2, 64, 64)"] * 2 + ["(64, 64)"] * 3,
        ["cuda:0"] * 5,
    ]
