"""Advice to training processes: the choice of process and action, and the outcome."""

from functools import partial
from typing import TYPE_CHECKING, cast

from ...engine.model import AdviceAction, RankSample
from ...engine.text import make_printable
from ...engine.viewer.feed import AdvisingFeed
from ...engine.viewer.snapshot import RankAdvice, Snapshot
from ..live.node_screen import NodeScreen

if TYPE_CHECKING:
    from ..app import VramscopeApp

CHOICES = {
    "empty_cache": "empty_cache      release cached memory to the device",
    "skip_long_batch": "skip_long_batch  skip batches that would not fit",
    "reduce_batch": "reduce_batch     use smaller batches from now on",
    "checkpoint": "checkpoint       save a checkpoint",
}
REASON = "requested in the live view"
CHOOSE_FIRST = "Select a process first: in the process list, or on the screen of its device."
READ_ONLY = "Started with --read-only: processes cannot be advised here."
NEWS_S = 8.0


class AdviceControl:
    """Sends advice to processes, if the feed can, and shows the outcome."""

    def __init__(self, app: "VramscopeApp") -> None:
        self._app = app
        # Whether the feed can send advice.
        self.is_offered = isinstance(app.feed, AdvisingFeed)
        self._notified: dict[str, frozenset[int]] = {}

    def ask(self) -> None:
        """Ask which action to advise to the process that is marked, or shown."""
        app = self._app
        if app.signal_policy.is_read_only:
            app.notify(READ_ONLY, severity="warning")
            return
        pid = self._find_process()
        if pid is None:
            app.notify(CHOOSE_FIRST, timeout=4)
        elif self._find_rank(pid) is None:
            attach = (
                "Press a to attach to it" if app.attachment.is_offered else "Attach with `vramscope attach`"
            )
            how = f"{attach}, or start it with `vramscope run`"
            app.notify(
                f"Process {pid} does not report, so it cannot be advised. {how}.",
                severity="warning",
            )
        else:
            from ..screens.dialogs import ChoiceScreen

            question = ChoiceScreen(f"Advise process {pid}, at the end of its next step?", CHOICES)
            app.push_screen(question, partial(self._advise, pid))

    def notify_outcomes(self, snapshot: Snapshot) -> None:
        known = self._notified.get(snapshot.node, frozenset())
        for advice in reversed(snapshot.advice):
            if advice.number not in known:
                self._notify_outcome(advice)
        if snapshot.advice:
            self._notified[snapshot.node] = frozenset(advice.number for advice in snapshot.advice)

    def _find_process(self) -> int | None:
        """Return the process that is selected in the list or shown, or else the rank of the shown device."""
        screen = self._app.screen
        if isinstance(screen, NodeScreen) and screen.focused is screen.processes:
            row = screen.processes.selected_row
            return None if row is None else row.process.pid
        if self._app.process_screen is not None:
            return self._app.process_screen.row.process.pid
        return self._app.looked_at[1] if screen is self._app.device_screen else None

    def _find_rank(self, pid: int) -> RankSample | None:
        sample = self._app.shown.sample
        ranks = () if sample is None else sample.ranks
        return next((rank for rank in ranks if rank.pid == pid and rank.state != "ended"), None)

    def _advise(self, pid: int, action: str | None) -> None:
        feed = self._app.feed
        if action is not None and isinstance(feed, AdvisingFeed):
            feed.advise(pid, cast(AdviceAction, action), REASON)
            self._app.notify(f"Requested {action} of process {pid}, at the end of its next step.")

    def _notify_outcome(self, advice: RankAdvice) -> None:
        advised = advice.advised
        if advised is None:
            text = f"Not done: {advice.refusal}."
            self._app.notify(text, severity="warning", timeout=NEWS_S)
            return
        severity = "information" if advised.is_obeyed else "warning"
        text = f"Process {advice.pid} {make_printable(advised.outcome)}."
        self._app.notify(text, severity=severity, timeout=NEWS_S)  # type: ignore[arg-type]
