"""A callback for `fit` of Keras on its torch backend."""

from typing import Any

import keras

from .marks import StepMarks


class MemoryCallback(keras.callbacks.Callback):
    """Ends a step for the probe after each batch, and adds memory to the logs of each epoch.

        model.fit(…, callbacks=[MemoryCallback(batch_size=32), keras.callbacks.TensorBoard()])

    Callbacks get the logs in the order of the list: loggers come after this one. The history that `fit`
    returns has the memory, too.

    Args:
        batch_size: Samples of a batch, for estimates of the largest one that would fit; Keras does not pass
            it to its callbacks.
    """

    def __init__(self, batch_size: int | None = None) -> None:
        super().__init__()
        self._marks = StepMarks(batch_size)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ANN401 - of Keras, as all arguments here
        """Start the probe."""
        self._marks.begin()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ANN401
        """End the step."""
        self._marks.end_step()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ANN401
        """Add the memory to the logs."""
        if logs is not None:
            logs.update(self._marks.read())
