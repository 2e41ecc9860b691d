"""Ordinary training scripts on a simulated device: they run, memory moves as on a card, weights are right."""

from pathlib import Path

from tests.engine.simulation.simulated import GIB, MIB, answers, plain_answers

MLP = """
import hashlib, json, sys, torch
from torch import nn
device = {device!r}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=True)
losses = []
for step in range(4):
    inputs = torch.randn(32, 64).to(device)
    labels = torch.randint(0, 10, (32,), device=device)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
print(json.dumps({{"digest": hashlib.sha256(weights).hexdigest(), "losses": losses}}))
"""


def test_weights_are_those_of_the_plain_run_bit_for_bit(tmp_path: Path) -> None:
    simulated = answers(tmp_path, MLP.format(device="cuda"))
    plain = plain_answers(tmp_path, MLP.format(device="cpu"))
    assert simulated == plain


def test_memory_follows_the_tensors(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        seen = [torch.cuda.memory_allocated()]
        first = torch.zeros(1 << 20, device="cuda")
        view, first_again = first[10:].view(-1), first.detach()
        seen.append(torch.cuda.memory_allocated())
        second = (first + 1).to(torch.float16)
        seen.append(torch.cuda.memory_allocated())
        first.add_(1).mul_(2)
        del first, first_again
        seen.append(torch.cuda.memory_allocated())
        del view
        seen.append(torch.cuda.memory_allocated())
        del second
        seen += [torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]
        torch.cuda.empty_cache()
        print(json.dumps({"seen": seen, "reserved": torch.cuda.memory_reserved()}))
        """,
    )
    # Floats, then their half-precision copy beside them; the sum between both lived for a moment.
    assert found["seen"] == [0, 4 * MIB, 6 * MIB, 6 * MIB, 2 * MIB, 0, 10 * MIB]
    assert found["reserved"] == 0


def test_the_card_runs_out_of_memory_and_training_goes_on_with_less(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        scale = torch.nn.Parameter(torch.ones(1024, device="cuda"))
        errors, batch = [], 1 << 16
        while True:
            try:
                loss = (scale * torch.randn(batch, 1024, device="cuda")).relu().sum()
                loss.backward()
                break
            except torch.OutOfMemoryError as error:
                errors.append(str(error))
                batch //= 2
        print(json.dumps({"errors": errors, "batch": batch, "ooms": torch.cuda.memory_stats()["num_ooms"],
                          "allocated": torch.cuda.memory_allocated(), "grad": scale.grad is not None}))
        """,
        total_bytes=GIB // 2,
    )
    assert found["grad"]
    assert found["batch"] < 1 << 16
    assert found["ooms"] == len(found["errors"]) > 0
    assert found["errors"][0].startswith(
        "CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total"
    )
    assert "512.00 MiB" in found["errors"][0]


def test_a_request_that_no_host_could_serve_is_the_cards_error_too(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        try:
            torch.empty(1 << 40, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            print(json.dumps({"error": str(error)}))
        """,
    )
    assert "Tried to allocate 4096.00 GiB" in found["error"]


def test_blocks_know_the_lines_that_allocated_them(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        """
        import json, torch
        def keep():
            return torch.zeros(3 << 20, device="cuda")
        kept = keep()
        blocks = [b for s in torch.cuda.memory_snapshot() for b in s["blocks"] if b["state"] != "inactive"]
        print(json.dumps(blocks[0]["frames"][:2]))
        """,
    )
    frames = [(Path(it["filename"]).name, it["line"], it["name"]) for it in found]
    assert frames == [("train.py", 4, "keep"), ("train.py", 5, "<module>")]
