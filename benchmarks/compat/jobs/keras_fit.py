"""`model.fit` of Keras on its torch backend: its optimizers are its own."""

import gc
import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
from outcome import report

BATCH_SIZE, BATCHES = 8, 12


def fit(callbacks):
    # Keras leaves tensors in reference cycles: peaks would depend on when the collector runs.
    gc.disable()
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((16, 16, 3)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    numbers = np.random.default_rng(0)
    images = numbers.normal(size=(64, 16, 16, 3)).astype("float32")
    labels = numbers.integers(0, 10, 64)
    history = model.fit(
        images, labels, batch_size=BATCH_SIZE, epochs=2, validation_split=0.25, verbose=0, callbacks=callbacks
    )
    model.evaluate(images, labels, verbose=0)
    return history.history


def main():
    report(fit([])["loss"][-1], BATCHES)


if __name__ == "__main__":
    main()
