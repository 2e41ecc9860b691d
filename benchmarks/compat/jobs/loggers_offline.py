"""Memory in TensorBoard, Weights & Biases (offline) and MLflow (file store), read back from their files."""

import os
import tempfile
from pathlib import Path

import torch
from outcome import pick_device, report

from vramscope.callbacks.loggers import MemoryLog

STEPS = 6


def main():
    device = pick_device()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
        import mlflow
        import wandb
        from torch.utils.tensorboard import SummaryWriter

        mlflow.set_tracking_uri(Path(folder, "mlruns").as_uri())
        writer = SummaryWriter(f"{folder}/tensorboard")
        run = wandb.init(project="memory", dir=folder, mode="offline")
        torch.manual_seed(0)  # the loggers take random numbers as well
        model = torch.nn.Linear(256, 256).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        with mlflow.start_run() as active:
            log = MemoryLog(writer, run, mlflow, every=2)
            for _ in range(STEPS):
                loss = model(torch.randn(64, 256, device=device)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                log.step(batch=64)
        writer.close()
        summary = dict(run.summary)
        run.finish()
        check(read_tensorboard(f"{folder}/tensorboard"), read_mlflow(active.info.run_id), summary)
        if not list(Path(folder).glob("wandb/offline-run-*/*.wandb")):
            raise SystemExit("wandb wrote no offline run")
    report(loss, STEPS)


def read_tensorboard(folder):
    """Return steps and values of the floor."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(folder)
    events.Reload()
    tag = "vram/floor_gib"
    return [(it.step, it.value) for it in events.Scalars(tag)] if tag in events.Tags()["scalars"] else []


def read_mlflow(run_id):
    """Return steps and values of the floor."""
    from mlflow import MlflowClient

    return [(it.step, it.value) for it in MlflowClient().get_metric_history(run_id, "vram/floor_gib")]


def check(tensorboard, mlflow, summary):
    """Compare what each library stored; on the host nothing is measured and nothing logged."""
    steps = [2, 4, 6] if torch.cuda.is_available() else []
    if [step for step, _ in tensorboard] != steps or [step for step, _ in mlflow] != steps:
        raise SystemExit(f"steps are {tensorboard} and {mlflow}, expected {steps}")
    for (_, one), (_, other) in zip(tensorboard, mlflow, strict=True):
        if abs(one - other) > 1e-6 or not other > 0:
            raise SystemExit(f"TensorBoard has {one}, MLflow {other}")
    if steps and (summary.get("vram/step") != 6 or summary.get("vram/floor_gib") != mlflow[-1][1]):
        raise SystemExit(f"wandb has {summary}")


if __name__ == "__main__":
    main()
