"""The screen of one device: its page, and the processes that hold its memory."""

from textual import events, on
from textual.app import ComposeResult

from ...engine.clock import Clock
from ...engine.model import DeviceSample, RankSample
from ...engine.viewer.feed import Feed
from ..frame import keys
from ..live.arrangement import arrange_page
from ..live.device_graphs import ChartChoice
from ..live.device_picture import order_devices
from ..live.node_screen import NodeScreen, RecentSteps
from ..live.process_signals import SignalPolicy
from ..widgets.device_view import collect_ranks
from ..widgets.time_bar import fit_chart_s
from .page import DevicePage, PageContent
from .sections import SegmentQuestion

# Between requests for a segment map while it is on screen.
ASK_INTERVAL_S = 10.0


class DeviceScreen(NodeScreen):
    """One device in full, with at most `history_window_s` of history; keys choose the device and the
    process.
    """

    BINDINGS = [*keys.DEVICE]
    LIST_KEY = "p"

    def __init__(
        self,
        uuid: str,
        feed: Feed,
        clock: Clock,
        signal_policy: SignalPolicy,
        steps: RecentSteps,
        *,
        history_window_s: float,
        charts: ChartChoice = "memory",
    ) -> None:
        super().__init__(feed.history, clock, signal_policy)
        self.uuid = uuid
        self._feed = feed
        self._steps = steps
        self._window_s = history_window_s
        self._charts = charts
        self._pid: int | None = None
        self._asked: dict[int, tuple[float, float]] = {}
        self._arranged_for: tuple[object, ...] = ()
        self.page = DevicePage(id="page")

    def compose(self) -> ComposeResult:
        yield self._title
        yield self._verdict
        yield self.page
        yield self._filter
        yield self.processes
        yield self._overview
        yield self._time_bar
        yield self._keys

    def on_mount(self) -> None:
        self.page.focus()
        self._show()

    @on(events.Resize)
    def fit(self, event: events.Resize) -> None:
        self._fit_time_bar()
        self._rearrange()

    @property
    def has_room_for_both_charts(self) -> bool:
        return self.page.has_room_for_both_charts

    def show_charts(self, charts: ChartChoice) -> None:
        self._charts = charts
        self._show()

    @property
    def devices(self) -> list[DeviceSample]:
        """All devices of the node, in the order of the live screen."""
        return order_devices(self.snapshot.sample.devices if self.snapshot.sample else ())

    @property
    def ranks(self) -> tuple[RankSample, ...]:
        sample = self.snapshot.sample
        return collect_ranks(sample.ranks).get(self.uuid, ()) if sample else ()

    def _list_useless(self) -> tuple[str, ...]:
        is_alone = len(self.ranks) <= 1 and len(self.devices) <= 1 and self.place is None
        return (*super()._list_useless(), *(("step_rank",) if is_alone else ()))

    def _show(self) -> None:
        self._show_head()
        following = "next rank" if len(self.ranks) > 1 else "next device"
        self._keys.rename({"step_rank": following if self.place is None else "next node"})
        shown = [device for device in self.devices if device.uuid == self.uuid]
        sample = self.snapshot.sample
        self.processes.show(shown, sample.ranks if sample else (), sample.time_s if sample else None)
        self.look_for_relatives()
        ranks = self.ranks
        rank = next((rank for rank in ranks if rank.pid == self._pid), ranks[0] if ranks else None)
        self._pid = rank.pid if rank is not None else None
        if rank is not None:
            self._request_map(rank)
        self.page.show(
            PageContent(
                snapshot=self.snapshot,
                history=self._history,
                uuid=self.uuid,
                pid=self._pid,
                question=self._question(),
                steps=self._steps.of(self._pid) if self._pid is not None else (),
                window_s=fit_chart_s(self.snapshot.replay, self._window_s),
                choice=self._charts,
                remedy=self.remedy,
            )
        )
        self._rearrange()

    @property
    def shown_pid(self) -> int | None:
        return self._pid

    def _request_map(self, rank: RankSample) -> None:
        """Request the segment map of a process that can have one, at once and then every few seconds."""
        has_none = rank.backend is None or (rank.backend == "cpu" and not rank.is_simulated)
        if has_none or rank.state != "ok" or self.snapshot.connection != "live":
            return
        now_s = self._clock.monotonic_s()
        first_s, last_s = self._asked.get(rank.pid, (now_s, now_s - ASK_INTERVAL_S))
        if now_s - last_s >= ASK_INTERVAL_S:
            self._asked[rank.pid] = first_s, now_s
            self._feed.ask_segments(rank.pid)

    def _question(self) -> SegmentQuestion:
        """Return the map of the shown process, or the state of its request."""
        found = next((it for it in self.snapshot.segment_maps if it.pid == self._pid), None)
        refused = next((r.reason for r in self.snapshot.segments_refused if r.pid == self._pid), None)
        asked = None if self._pid is None else self._asked.get(self._pid)
        waited_s = None if asked is None else self._clock.monotonic_s() - asked[0]
        return SegmentQuestion(found, refused, waited_s)

    def _rearrange(self) -> None:
        """Show the parts that fit; nothing is touched when they are those shown."""
        situation = (
            self.size,
            self._rows,
            self.processes.row_count,
            self._is_filter_open,
            self._has_list,
        )
        if situation == self._arranged_for:
            return
        self._arranged_for = situation
        processes = self.processes.row_count if self._has_list else None
        chosen = arrange_page(self._rows, processes)
        with self.app.batch_update():
            self._title.display = chosen.has_title
            self._keys.display = chosen.has_keys
            self._resize_list(chosen.process_rows)
        if not chosen.process_rows and self.focused is self.processes:
            self.page.focus()

    def show_device(self, uuid: str, *, pid: int | None = None) -> None:
        if uuid != self.uuid:
            self.page.scroll_home(animate=False)
        self.uuid = uuid
        self._pid = pid
        self._show()

    def action_step_device(self, places: int) -> None:
        """Show the device that many places further; after the last comes the first."""
        uuids = [device.uuid for device in self.devices]
        if uuids:
            at = uuids.index(self.uuid) + places if self.uuid in uuids else 0
            self.show_device(uuids[at % len(uuids)])

    def action_step_rank(self, places: int) -> None:
        """Show the next process of the device; past its last one, the next device."""
        pids = [rank.pid for rank in self.ranks]
        at = pids.index(self._pid) + places if self._pid in pids else -1
        if 0 <= at < len(pids):
            self.show_device(self.uuid, pid=pids[at])
            return
        self.action_step_device(places)
        if places < 0 and self.ranks:
            self.show_device(self.uuid, pid=self.ranks[-1].pid)

    def action_switch_part(self) -> None:
        self._focus_next_part(self.page)

    async def action_leave(self) -> None:
        """Leave the filter, else the processes, else the device."""
        if self.processes.filter_text:
            self._filter.action_clear()
        elif self.focused is self.processes and self.processes.clear_marks():
            return
        elif self.focused in (self.processes, self._time_bar):
            self.page.focus()
        else:
            await self.run_action("app.show_live")
