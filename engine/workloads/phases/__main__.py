"""Trains by phase, as its command line says, and reports as JSON lines on a descriptor.

Run by `vramscope phases`, in an environment that may hold the simulated device. Where the user's own code
raises, its traceback goes to stderr, without our frames.
"""

from __future__ import annotations

import argparse
import sys
from typing import TextIO

import msgspec

from .updates import Obstacle, PhaseRequest, RunUpdate, UpdateWriter

SIMULATED = "vramscope simulate: "
# Begin of the line that a card is larger than the host; whether tensors fit was checked before.
_OF_THE_START = "the cards have "


class OverheardErrors:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_kept = False
        self._heard: list[str] = []

    @property
    def notices(self) -> tuple[str, ...]:
        """Lines of the simulated device about this run, oldest first."""
        return tuple(line for line in self._heard if not line.startswith(_OF_THE_START))

    def write(self, text: str) -> int:
        """Write text through, or keep a notice and the end of its line."""
        if text.startswith(SIMULATED):
            self._heard.append(text.removeprefix(SIMULATED).strip())
            self._is_kept = not text.endswith("\n")
        elif self._is_kept and text == "\n":
            self._is_kept = False
        else:
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--report", required=True, type=int, help="descriptor to write JSON lines to")
    parser.add_argument("request", help="what to train, as JSON")
    arguments = parser.parse_args()
    request = msgspec.json.decode(arguments.request, type=PhaseRequest)
    errors = OverheardErrors(sys.stderr)
    sys.stderr = errors  # what it has not got, it asks the stream for
    writer = UpdateWriter(arguments.report)
    writer.send(_run(request, writer, errors))
    writer.close()


def _run(request: PhaseRequest, writer: UpdateWriter, errors: OverheardErrors) -> RunUpdate:
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        text = "PyTorch is not installed: pip install 'vramscope[train]'"
        return RunUpdate(obstacle="no_package", error=text)
    except SystemExit:
        # The simulated device leaves no other way where the host has no memory at all.
        return RunUpdate(obstacle="host_full", error=" ".join(errors.notices))
    if request.kind != "cpu" and not torch.cuda.is_available():
        obstacle: Obstacle = "no_cuda" if request.kind == "cuda" else "refused"
        said = " ".join(errors.notices) or "PyTorch finds no CUDA device"
        return RunUpdate(obstacle=obstacle, error=said)
    from .meters import describe_failure
    from .training import PhaseSession

    session = PhaseSession(request, writer)
    try:
        session.train()
    except BaseException as error:  # noqa: BLE001 - however it ends, what was measured is worth reporting
        return describe_failure(error, errors.notices, session.meter)
    return RunUpdate(end="finished", notes=errors.notices)


if __name__ == "__main__":
    main()
