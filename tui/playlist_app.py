"""The application that replays several runs one after the other: `j` and `k` go from one to another."""

from ..engine.viewer.snapshot import Snapshot
from . import keys
from .live.fullest_device import find_fullest
from .replay_app import ReplayApp


class PlaylistApp(ReplayApp, inherit_bindings=False):
    """Shows what a `PlaylistFeed` plays."""

    BINDINGS = [*keys.PLAYLIST]
    _part_number = 0

    def _tell_news(self, snapshot: Snapshot) -> None:
        """Forget what was said of the run before, and what was seen of it."""
        part = snapshot.replay.part if snapshot.replay is not None else None
        if part is not None and part.number != self._part_number:
            self._part_number = part.number
            self._notices.clear()
            self.forget_stages()
            self.clear_notifications()
            self._show_same_rank(snapshot)
        super()._tell_news(snapshot)

    def _show_same_rank(self, snapshot: Snapshot) -> None:
        """Where a device is shown in full, show that of the same rank, or else the fullest."""
        devices = snapshot.sample.devices if snapshot.sample is not None else ()
        if self._device is None or not devices:
            return
        shown = self._newest.sample.devices if self._newest.sample is not None else ()
        index = next((it.index for it in shown if self._device and it.uuid == self._device.uuid), None)
        same = next((it for it in devices if it.index == index), None)
        self._device.uuid = (same or find_fullest(devices)).uuid
