"""Where CUDA's kernels keep less than the host's, or its defaults more, the card is charged as on CUDA."""

from pathlib import Path

import pytest

from tests.engine.simulation.simulated import GIB, MIB, answers, plain_answers

ATTENTION = """
import hashlib, json, torch
from torch.nn import functional
device = {device!r}
torch.manual_seed(0)
query, key, value = (torch.randn(1, 4, 1024, 64).to(device).requires_grad_() for _ in range(3))
before = torch.cuda.memory_allocated()
output = functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1, is_causal=True)
kept = torch.cuda.memory_allocated() - before
output.square().sum().backward()
content = b"".join(t.detach().cpu().numpy().tobytes() for t in (output, query.grad, key.grad, value.grad))
print(json.dumps({{"digest": hashlib.sha256(content).hexdigest(), "kept": kept,
                   "peak": torch.cuda.max_memory_allocated()}}))
"""


def test_attention_with_dropout_keeps_no_matrix_and_computes_the_same(tmp_path: Path) -> None:
    simulated = answers(tmp_path, ATTENTION.format(device="cuda"))
    plain = plain_answers(tmp_path, ATTENTION.format(device="cpu"))
    assert simulated["digest"] == plain["digest"]
    # The output, and one float for each row and head; a matrix of weights would have 16 MiB.
    assert simulated["kept"] == MIB + 4 * 1024 * 4
    assert simulated["peak"] < 12 * MIB


def test_a_checkpointed_layer_with_attention_keeps_its_input_alone_and_computes_the_same(
    tmp_path: Path,
) -> None:
    source = """
        import json, torch
        from torch.nn import functional
        device = {device!r}
        torch.manual_seed(0)
        def layer(query, key, value):
            query, key, value = query * 2, key * 2, value * 2
            return functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1) * 3
        inputs = [torch.randn(1, 4, 256, 64).to(device).requires_grad_() for _ in range(3)]
        before = torch.cuda.memory_allocated()
        output = torch.utils.checkpoint.checkpoint(layer, *inputs, use_reentrant=False)
        kept = torch.cuda.memory_allocated() - before
        output.square().sum().backward()
        print(json.dumps([[it.grad.double().sum().item() for it in inputs], kept]))
        """
    simulated, kept = answers(tmp_path, source.format(device="cuda"))
    plain, _ = plain_answers(tmp_path, source.format(device="cpu"))
    assert simulated == plain
    # The output; what the layer computes on the way is computed again.
    assert kept == 4 * 256 * 64 * 4


def test_dropout_keeps_a_mask_of_bytes(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        tensor = torch.ones(1 << 20, device="cuda", requires_grad=True)
        before = torch.cuda.memory_allocated()
        dropped = torch.nn.functional.dropout(tensor, 0.5)
        print(json.dumps(torch.cuda.memory_allocated() - before))
        """,
    )
    assert found == 5 * MIB


def test_optimizers_choose_foreach_as_on_cuda(tmp_path: Path) -> None:
    source = """
        import json, torch
        layers = torch.nn.ModuleList(torch.nn.Linear(512, 512, bias=False) for _ in range(8)).cuda()
        optimizer = torch.optim.Adam(layers.parameters(), {options})
        for layer in layers:
            layer.weight.grad = torch.ones_like(layer.weight)
        optimizer.step()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        print(json.dumps(torch.cuda.max_memory_allocated() - before))
        """
    chosen = answers(tmp_path, source.format(options="lr=0.1"))
    loop = answers(tmp_path, source.format(options="lr=0.1, foreach=False"))
    # A temporary for all weights together, against one for each in turn.
    assert chosen >= 8 * MIB
    assert loop <= 3 * MIB


def test_gradients_are_clipped_by_groups_of_their_own_device(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype as group
        mixed = [torch.ones(1, device=d) for d in ("cuda:0", "cpu", "cuda:1", "cuda:0")]
        groups = group([mixed], with_indices=True)
        print(json.dumps([[str(device), indices] for (device, _), (_, indices) in groups.items()]))
        """,
        devices=2,
    )
    assert found == [["cuda:0", [0, 3]], ["cpu", [1]], ["cuda:1", [2]]]


def test_memory_of_other_streams_waits_for_them(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        side = torch.cuda.Stream()
        tensor = torch.ones(1 << 20, device="cuda")
        tensor.record_stream(side)
        del tensor
        waiting = torch.cuda.memory_stats()["active_bytes.all.current"], torch.cuda.memory_allocated()
        torch.cuda.synchronize()
        torch.ones(1, device="cuda")
        print(json.dumps([*waiting, torch.cuda.memory_stats()["active_bytes.all.current"]]))
        """,
        total_bytes=GIB,
    )
    assert found == [4 * MIB, 0, 0]


NORM = """
import hashlib, json, torch
device = {device!r}
torch.manual_seed(0)
norm = torch.nn.RMSNorm(1024).bfloat16().to(device)
rows = torch.randn(256, 1024).bfloat16().to(device).requires_grad_()
before = torch.cuda.memory_allocated()
output = norm(rows)
kept = torch.cuda.memory_allocated() - before
output.float().square().sum().backward()
content = b"".join(t.detach().float().cpu().numpy().tobytes() for t in (output, rows.grad, norm.weight.grad))
print(json.dumps({{"digest": hashlib.sha256(content).hexdigest(), "kept": kept}}))
"""


def test_rms_norm_keeps_a_float_for_each_row_and_computes_the_same(tmp_path: Path) -> None:
    simulated = answers(tmp_path, NORM.format(device="cuda"))
    plain = plain_answers(tmp_path, NORM.format(device="cpu"))
    assert simulated["digest"] == plain["digest"]
    # Its output, too; the steps of the host keep two copies of the rows in fp32.
    assert simulated["kept"] == 256 * 1024 * 2 + 256 * 4


def test_what_never_runs_backward_is_freed_with_its_output(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        from torch.nn import functional
        norm = torch.nn.RMSNorm(1024).cuda()
        before = torch.cuda.memory_allocated()
        rows = torch.randn(256, 1024, device="cuda").requires_grad_()
        query = torch.randn(1, 4, 256, 64, device="cuda").requires_grad_()
        for _ in range(3):
            norm(rows)
            functional.scaled_dot_product_attention(query, query, query, dropout_p=0.1)
        del rows, query, _
        print(json.dumps(torch.cuda.memory_allocated() - before))
        """,
    )
    assert found == 0


def test_gradients_of_a_norm_are_differentiated_again_batched_and_taken_forward(tmp_path: Path) -> None:
    source = """
        import json, torch
        from torch.autograd import forward_ad
        device = {device!r}
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.RMSNorm(8), torch.nn.Linear(8, 1))
        given = torch.randn(4, 8)
        model, given = model.to(device), given.to(device).requires_grad_()
        (slope,) = torch.autograd.grad(model(given).sum(), given, create_graph=True)
        slope.square().sum().backward()
        found = [it.grad.double().sum().item() for it in model.parameters() if it.grad is not None]
        norm = torch.nn.RMSNorm(8).to(device)
        made = norm(given)
        each = torch.eye(4, device=device).unsqueeze(-1).expand(4, 4, 8)
        (batch,) = torch.autograd.grad(made, given, each, is_grads_batched=True)
        found.append(batch.double().sum().item())
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(given.detach(), torch.ones(4, 8, device=device))
            found.append(forward_ad.unpack_dual(norm(dual)).tangent.double().sum().item())
        print(json.dumps(found))
        """
    simulated = answers(tmp_path, source.format(device="cuda"))
    plain = plain_answers(tmp_path, source.format(device="cpu"))
    assert len(simulated) == len(plain) == 6
    assert simulated == pytest.approx(plain, rel=1e-5, abs=1e-5)
