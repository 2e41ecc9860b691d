"""What a hub may ask of a process: its segments, its stacks, or to be left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import wire
from .clock import SystemClock
from .history import MemoryHistory
from .outbox import Outbox
from .recorder import is_recording
from .segments import can_snapshot, pack_segments, take_snapshot
from .training_device import TrainingDevice

if TYPE_CHECKING:
    from .session import Session

_PAUSE_S = 1.0
"""Between two segment maps, however often they are asked for."""


class Demands:
    """Serves demands in our own thread."""

    def __init__(
        self, device: TrainingDevice, outbox: Outbox, history: MemoryHistory, session: Session
    ) -> None:
        self._device = device
        self._outbox = outbox
        self._history = history
        self._session = session
        self._clock = SystemClock()
        self._newest_s = float("-inf")

    def serve(self, demand: wire.Demand) -> None:
        """Do what is asked; what cannot be done is left, and a note says why."""
        if demand.kind == "detach":
            self._session.end("detached")
        elif demand.kind == "history":
            self._history.demand(demand.is_on, demand.seconds)
        else:
            self._send_segments(demand.request)

    def _send_segments(self, request: int) -> None:
        now_s = self._clock.monotonic_s()
        module = self._device.module
        if now_s - self._newest_s < _PAUSE_S or not can_snapshot(
            module, is_history_on=is_recording(self._device.torch)
        ):
            return
        self._newest_s = now_s
        pieces = pack_segments(take_snapshot(module, self._device.index), self._clock.wall_s())
        packets = [
            wire.encode_segments_part(request, part, len(pieces), piece) for part, piece in enumerate(pieces)
        ]
        self._outbox.put_parts(packets)
