"""An application over training processes that may be advised: whom, what, and what became of it."""

from functools import partial
from typing import Any, cast

from textual.binding import Binding

from ..engine.model import AdviceAction, RankSample
from ..engine.text import make_printable
from ..engine.viewer.feed import AdvisingFeed, Feed
from ..engine.viewer.snapshot import RankAdvice, Snapshot
from . import keys
from .app import VramscopeApp
from .live.node_screen import NodeScreen

CHOICES = {
    "empty_cache": "empty_cache      give back what its allocator caches and nobody uses",
    "skip_long_batch": "skip_long_batch  leave out batches that would not fit",
    "reduce_batch": "reduce_batch     take smaller batches from here on",
    "checkpoint": "checkpoint       save what there is",
}
REASON = "asked for in the live view"
CHOOSE_FIRST = "Choose the process first: in the list of processes, or on the screen of its device."
READ_ONLY = "This view was started with --read-only: nobody is advised from here."
NEWS_S = 8.0


class AdvisingApp(VramscopeApp, inherit_bindings=False):
    """Passes advice on to processes, where its feed can, and says what they made of it.

    Args:
        feed: Where snapshots come from; an `AdvisingFeed` where advice can be given.
        rest: As of `VramscopeApp`.
    """

    BINDINGS = [*keys.VIEW, keys.ADVISE]

    def __init__(self, feed: Feed, **rest: Any) -> None:  # noqa: ANN401
        super().__init__(feed, **rest)
        self._advice_told: dict[str, frozenset[int]] = {}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action makes sense now: where nobody passes advice on, none is offered."""
        return (action != "advise" or self._can_advise) and super().check_action(action, parameters)

    def offers(self, binding: Binding) -> bool:
        """Return whether help and palette tell of a key."""
        return (binding.action != "advise" or self._can_advise) and super().offers(binding)

    def action_advise(self) -> None:
        """Ask what the process that is marked, or shown, shall be advised to do."""
        if self._signal_policy.is_read_only:
            self.notify(READ_ONLY, severity="warning")
            return
        pid = self._find_process()
        if pid is None:
            self.notify(CHOOSE_FIRST, timeout=4)
        elif self._find_rank(pid) is None:
            self.notify(
                f"Process {pid} does not report: only one that `vramscope run` started, or that was attached "
                "to, can be advised.",
                severity="warning",
                markup=False,
            )
        else:
            from .screens.choice import ChoiceScreen

            question = ChoiceScreen(f"Advise process {pid}, at the end of its next step?", CHOICES)
            self.push_screen(question, partial(self._give, pid))

    @property
    def _can_advise(self) -> bool:
        return isinstance(self._feed, AdvisingFeed)

    def _find_process(self) -> int | None:
        """Return the process that is marked in the list, or else the rank whose device is shown."""
        screen = self.screen
        if isinstance(screen, NodeScreen) and screen.focused is screen.processes:
            row = screen.processes.selected_row
            return None if row is None else row.process.pid
        return self.looked_at[1] if screen is self._device else None

    def _find_rank(self, pid: int) -> RankSample | None:
        ranks = () if self._shown.sample is None else self._shown.sample.ranks
        return next((rank for rank in ranks if rank.pid == pid and rank.state != "ended"), None)

    def _give(self, pid: int, action: str | None) -> None:
        if action is not None and isinstance(self._feed, AdvisingFeed):
            self._feed.advise(pid, cast(AdviceAction, action), REASON)
            self.notify(f"Process {pid} is asked for {action} at the end of its next step.", markup=False)

    def _tell_news(self, snapshot: Snapshot) -> None:
        """Say what became of advice that was given here."""
        super()._tell_news(snapshot)
        known = self._advice_told.get(snapshot.node, frozenset())
        for advice in reversed(snapshot.advice):
            if advice.number not in known:
                self._tell_advice(advice)
        if snapshot.advice:
            self._advice_told[snapshot.node] = frozenset(advice.number for advice in snapshot.advice)

    def _tell_advice(self, advice: RankAdvice) -> None:
        advised = advice.advised
        if advised is None:
            self.notify(f"Not done: {advice.refusal}.", severity="warning", timeout=NEWS_S, markup=False)
            return
        severity = "information" if advised.is_obeyed else "warning"
        text = f"Process {advice.pid} {make_printable(advised.outcome)}."
        self.notify(text, severity=severity, timeout=NEWS_S, markup=False)  # type: ignore[arg-type]
