"""One node that is followed from elsewhere: its connection, its picture, and why there is none."""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from ..clock import Clock
from ..history import History
from ..model import HubStatus, Sample
from ..viewer.conversation import Event, HubConversation, Joined
from ..viewer.event_trimming import trim_event
from ..viewer.picture import NodePicture
from ..wire.device_selection import select_devices
from ..wire.messages import (
    TOPIC_CELLS,
    TOPIC_FINDING,
    TOPIC_HUB,
    TOPIC_SAMPLE,
    TOPIC_SEGMENTS,
    Detail,
    KnownNodes,
)
from .node_connection import NodeConnection

FIRST_ANSWER_WITHIN_S = 2.0
"""A hub that is reached and has not answered by then is called silent."""
SILENT_INTERVALS = 2.5
LEAST_SILENCE_S = 2.5
"""A hub that has missed this many ticks, and at least this many seconds, is called silent."""
ASK_AGAIN_S = 3.0
LOOK_UP_AGAIN_S = 30.0
"""How often the address of a node is looked up anew that does not answer."""
TOPICS: dict[Detail, tuple[str, ...]] = {
    "full": tuple(it.decode() for it in (TOPIC_SAMPLE, TOPIC_FINDING, TOPIC_HUB, TOPIC_SEGMENTS)),
    "cells": tuple(it.decode() for it in (TOPIC_CELLS, TOPIC_FINDING, TOPIC_HUB)),
}
"""What is followed of a node, by how much of it is drawn."""


OnHeard = Callable[[bytes | None, Sequence[Event]], None]
"""Takes a message as it came with what it says; None where that was held back."""


class RemoteNode:
    """Follows one hub; use from one thread.

    Args:
        name: What the node is called.
        connection: To its hub.
        clock: Where time is read.
        history: History to fill.
        detail: How much of it is followed at first.
        devices: Words for the devices that are followed of it; none for all.
    """

    def __init__(
        self,
        name: str,
        connection: NodeConnection,
        clock: Clock,
        history: History,
        detail: Detail = "full",
        devices: tuple[str, ...] = (),
    ) -> None:
        self.connection = connection
        self._clock = clock
        self.conversation = HubConversation(
            connection.send,
            clock,
            topics=TOPICS[detail],
            detail=detail,
            node=connection.node,
            devices=devices,
        )
        """What is said with its hub."""
        self.known_nodes: KnownNodes | None = None
        """What a relay has told of the nodes behind it; None where it is none."""
        self.on_heard: OnHeard | None = None
        """Told of each message, before the picture is."""
        self._wanted = select_devices(devices)
        self.picture = NodePicture(self.conversation, clock, history=history, node=name)
        self._began_s = self._asked_s = clock.monotonic_s()
        self._heard_s: float | None = None
        self._look_up_s = self._began_s + LOOK_UP_AGAIN_S

    @property
    def has_answered(self) -> bool:
        """Whether its hub has ever told everything."""
        return self.picture.newest.hub is not None

    def needs_lookup(self, now_s: float) -> bool:
        """Return whether its address should be looked up again."""
        if self.connection.is_connected or now_s < self._look_up_s:
            return False
        self._look_up_s = now_s + LOOK_UP_AGAIN_S
        return True

    def ask(self) -> None:
        """Ask for everything that its hub knows."""
        self._asked_s = self._clock.monotonic_s()
        self.conversation.ask()

    def follow(self, detail: Detail) -> None:
        """Follow more of it or less; what is remembered of one that is no longer drawn is let go."""
        if detail == self.conversation.detail:
            return
        self._asked_s = self._clock.monotonic_s()
        self.conversation.follow(detail, TOPICS[detail])
        if detail == "cells":
            self.picture.forget_history()

    def receive(self) -> bool:
        """Take what has come; return whether the picture is another."""
        if self.connection.note_events():
            self.ask()
        events: list[Event] = []
        for data in self.connection.receive():
            known = len(events)
            self.conversation.take(data, events)
            if self.on_heard is not None:
                self.on_heard(data, events[known:])
        return self._apply(events)

    def judge(self) -> bool:
        """Look at the connection, and mend it; return whether the picture is another."""
        now_s = self._clock.monotonic_s()
        is_silent = self._silence_s(now_s) > self._most_silence_s
        self.connection.mend(now_s, is_silent=is_silent and self.conversation.turned_away is None)
        is_changed = self._ask_again(now_s)
        is_changed = self.picture.expire_questions() or is_changed
        reason = self._name_trouble(now_s)
        if reason is None:
            return is_changed
        is_new = self.picture.newest.connection != "lost" or self.picture.newest.reason != reason
        heard_s = self._heard_s
        silent_s = self.connection.silence_s(now_s) if heard_s is None else now_s - heard_s
        self.picture.tell_lost(reason, silent_s)
        return is_changed or is_new

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()

    def _apply(self, events: list[Event]) -> bool:
        if events:
            self._heard_s = self._clock.monotonic_s()
        for event in events:
            if isinstance(event, KnownNodes):
                self.known_nodes = event
        return self.picture.apply([self._warn(event) for event in self._trim(events)])

    def _trim(self, events: list[Event]) -> Iterable[Event]:
        """Leave out devices that were not asked for: older agents, and those behind ssh, tell of all."""
        if self._wanted is None:
            return events
        sample = self.picture.newest.sample
        trimmed = list[Event | None]()
        for event in events:  # what one message says of UUIDs is known by the sample before it
            told = event.welcome.sample if isinstance(event, Joined) else event
            sample = told if isinstance(told, Sample) else sample
            trimmed.append(trim_event(event, self._wanted, sample))
        return [event for event in trimmed if event is not None]

    def _warn(self, event: Event) -> Event:
        """Return an event with what should be known of who tells it among the notes of its hub."""
        warning = self.connection.warning
        if warning is None:
            return event
        if isinstance(event, Joined):
            hub = replace(event.welcome.hub, notes=(*event.welcome.hub.notes, warning))
            return replace(event, welcome=replace(event.welcome, hub=hub))
        if isinstance(event, HubStatus):
            return replace(event, notes=(*event.notes, warning))
        return event

    def _ask_again(self, now_s: float) -> bool:
        """Ask again where no answer came, or the hub is silent; return whether the picture is another."""
        if not self.connection.is_connected:
            return False
        events: list[Event] = []
        self.conversation.give_up_if_unanswered(events)
        if events and self.on_heard is not None:
            self.on_heard(None, events)
        is_silent = self._silence_s(now_s) > self._most_silence_s and not self.conversation.is_asking
        if is_silent and now_s - self._asked_s > ASK_AGAIN_S:
            self.ask()
        return self._apply(events)

    def _name_trouble(self, now_s: float) -> str | None:
        """Return why there are no live figures, in one sentence; None where there are, or may be yet."""
        turned_away = self.conversation.turned_away
        if turned_away is not None:
            return f"refused: {turned_away}"
        if self._silence_s(now_s) <= self._most_silence_s:
            return None
        return self.connection.trouble or self._name_silence(now_s)

    def _name_silence(self, now_s: float) -> str | None:
        """Return what is known of a hub that is not heard; None where it may yet answer at first."""
        if self.connection.is_connected:
            is_early = not self.has_answered and now_s - self._asked_s < FIRST_ANSWER_WITHIN_S
            return self.conversation.refused or (None if is_early else "the agent is silent")
        if self.has_answered:
            return "the connection is lost; trying again"
        is_late = now_s - self._began_s >= self.connection.answers_within_s
        return self.connection.silence if is_late else None

    def _silence_s(self, now_s: float) -> float:
        return now_s - (self._began_s if self._heard_s is None else self._heard_s)

    @property
    def _most_silence_s(self) -> float:
        hub = self.picture.newest.hub
        if hub is None:
            return 0.0
        return max(SILENT_INTERVALS * hub.interval_s, LEAST_SILENCE_S)
