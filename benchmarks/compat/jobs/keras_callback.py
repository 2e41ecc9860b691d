"""The callback of vramscope in `fit` of Keras: steps with the sizes of their batches."""

from keras_fit import BATCH_SIZE, BATCHES, fit
from outcome import report

from vramscope.callbacks.keras import MemoryCallback


def main():
    import torch

    history = fit([MemoryCallback(batch_size=BATCH_SIZE)])
    logged = history.get("vram/peak_allocated_gib")
    if torch.cuda.is_available() != bool(logged):
        raise SystemExit(f"the history has {logged}")
    report(history["loss"][-1], BATCHES)


if __name__ == "__main__":
    main()
