"""How a job says what came out: one line for the suite, printed after the training."""

import json
import os
import sys

import torch


def report(loss, steps):
    """Print the last loss, the steps made, and the peak of the card if there is one; on rank 0."""
    if int(os.environ.get("RANK", "0")) != 0:
        return
    found = {"loss": float(loss.detach() if isinstance(loss, torch.Tensor) else loss), "steps": int(steps)}
    if torch.cuda.is_available():
        found["peak_bytes"] = torch.cuda.max_memory_allocated()
    # At once, so that no line of another rank comes in between.
    sys.stdout.write(f"\noutcome {json.dumps(found)}\n")
    sys.stdout.flush()


def pick_device():
    """Return the card of this rank, or the host."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cuda", torch.cuda.current_device())
