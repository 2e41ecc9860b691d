"""The screen of one process: its own history."""

from textual import events, on
from textual.app import ComposeResult

from ...engine.clock import Clock
from ...engine.history import History
from ..frame import keys
from ..live.arrangement import KEYS_FROM_ROWS, TITLE_FROM_ROWS
from ..live.dialogs import begin_signal, show_environment
from ..live.process_rows import ProcessRow, SortOrder, collect_rows, sort_rows
from ..live.process_signals import SignalPolicy
from ..screens.snapshot_screen import SnapshotScreen
from .history import ProcessHistories, key_of
from .page import ProcessContent, ProcessPage


class ProcessScreen(SnapshotScreen):
    """One process; keys go to the others in the order of the list it was opened from."""

    BINDINGS = [*keys.PROCESS]

    def __init__(
        self,
        row: ProcessRow,
        histories: ProcessHistories,
        order: SortOrder,
        history: History,
        clock: Clock,
        signal_policy: SignalPolicy,
    ) -> None:
        super().__init__(history, clock)
        self.row = row
        self._histories = histories
        self._order = order
        self._signal_policy = signal_policy
        self.page = ProcessPage(id="page")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self.page
        yield self._overview
        yield self._time_bar
        yield self._keys

    def on_mount(self) -> None:
        self.page.focus()
        self._show()

    @on(events.Resize)
    def fit(self, event: events.Resize) -> None:
        self._title.display = event.size.height >= TITLE_FROM_ROWS
        self._keys.display = event.size.height >= KEYS_FROM_ROWS
        self._fit_time_bar()

    def _list_rows(self) -> list[ProcessRow]:
        sample = self.snapshot.sample
        if sample is None:
            return []
        return sort_rows(collect_rows(sample.devices, sample.ranks, sample.time_s), self._order)

    def _show(self) -> None:
        self._show_head()
        self._keys.hide(("signal", "show_environment") if self.snapshot.replay is not None else ())
        sample = self.snapshot.sample
        # The process as it is now; another one that got its number is not it.
        key = self.row.key
        started_s = self.row.process.started_s
        rows = (row for row in self._list_rows() if row.key == key)
        found = next((row for row in rows if row.process.started_s == started_s), None)
        self.row = found or self.row
        if sample is not None:
            points = self._histories.of(key_of(self.row.device.uuid, self.row.process))
            self.page.show(ProcessContent(self.row, found is not None, sample.time_s, points))

    def action_step_process(self, places: int) -> None:
        """Show the process that many places further; after the last comes the first."""
        rows = self._list_rows()
        if not rows:
            return
        listed = [row.key for row in rows]
        at = listed.index(self.row.key) + places if self.row.key in listed else 0
        self.row = rows[at % len(rows)]
        self.page.scroll_home(animate=False)
        self._show()

    def action_signal(self) -> None:
        if self.snapshot.sample is not None:
            begin_signal(self.app, self.snapshot.sample, [self.row], self._signal_policy)

    def action_show_environment(self) -> None:
        if self.snapshot.sample is not None:
            show_environment(self.app, self.snapshot.sample, self.row.process, self._signal_policy)

    async def action_leave(self) -> None:
        await self.run_action("app.leave_process")
