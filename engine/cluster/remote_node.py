"""One node that is followed from elsewhere: its connection, its picture, and why there is none."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..alerts.state import AlertState
from ..clock import Clock
from ..errors import UsageError
from ..history import History
from ..model import Finding, HubStatus, Sample
from ..ranks.messages import PackedSegments
from ..text import make_printable
from ..viewer.conversation import Assessed, Event, HubConversation, Joined
from ..viewer.picture import NodePicture
from ..wire.messages import (
    TOPIC_CELLS,
    TOPIC_FINDING,
    TOPIC_HUB,
    TOPIC_SAMPLE,
    TOPIC_SEGMENTS,
    Detail,
    KnownNode,
    KnownNodes,
)
from ..wire.selection import (
    DeviceSelection,
    select_devices,
    trim_alerts,
    trim_assessments,
    trim_findings,
    trim_map,
    trim_sample,
    trim_welcome,
)
from .connections import NodeConnection, RelayedConnection, RemoteConnection

MOST_PATTERNS = 256
MOST_SHOWN = 8
_PORT = re.compile(r":\d+$", re.ASCII)


class Choice(NamedTuple):
    """Nodes and devices that are followed; nothing named means all."""

    nodes: tuple[str, ...] = ()
    """Patterns with `*` and `?`; a name must match one of them."""
    devices: tuple[str, ...] = ()
    """As in `DeviceSelection.words`."""

    def wants_node(self, name: str) -> bool:
        """Return whether a node is followed, by its name: with what stands around the host, or without."""
        if not self.nodes:
            return True
        whole = name.casefold()
        host = _PORT.sub("", whole)
        return any(
            fnmatchcase(form, pattern)
            for form in (whole, host, re.split("[/@]", host)[-1])
            for pattern in self.nodes
        )


ALL = Choice()
"""Everything is followed."""


def parse_node_patterns(text: str) -> tuple[str, ...]:
    """Return the patterns of a list with commas.

    Raises:
        UsageError: One is empty, or there are too many.
    """
    patterns = tuple(word.strip().casefold() for word in text.split(","))
    if not all(pattern and pattern.isprintable() for pattern in patterns):
        raise UsageError(f"--nodes {text!r}: expected node names, with * and ?, for example 'gpu1*,n7'")
    if len(patterns) > MOST_PATTERNS:
        raise UsageError(f"--nodes names {len(patterns)} patterns: expected at most {MOST_PATTERNS}")
    return patterns


def explain_no_node(choice: Choice, names: Sequence[str]) -> str:
    known = ", ".join([*names[:MOST_SHOWN], *(["…"] if len(names) > MOST_SHOWN else [])])
    return f"no node matches --nodes {','.join(choice.nodes)}; known are {known}"


FIRST_ANSWER_WITHIN_S = 2.0
"""A hub that is reached and has not answered by then is called silent."""
SILENT_INTERVALS = 2.5
LEAST_SILENCE_S = 2.5
"""A hub that has missed this many ticks, and at least this many seconds, is called silent."""
ASK_AGAIN_S = 3.0
LOOK_UP_AGAIN_S = 30.0
"""How often the address of a node that does not answer is looked up again."""
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
        """Notes shown with its hub."""
        self.known_nodes: KnownNodes | None = None
        """Nodes behind a relay, as it reported them; None for an agent that is not a relay."""
        self.on_heard: OnHeard | None = None
        """Told of each message, before the picture is."""
        self._wanted = select_devices(devices)
        self.picture = NodePicture(self.conversation, clock, history=history, node=name)
        self._began_s = self._asked_s = clock.monotonic_s()
        self._heard_s: float | None = None
        self._look_up_s = self._began_s + LOOK_UP_AGAIN_S

    @property
    def has_answered(self) -> bool:
        """Whether its hub has ever sent its full state."""
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
        """Follow more of it or less; forget the details of a node that is no longer drawn."""
        if detail == self.conversation.detail:
            return
        self._asked_s = self._clock.monotonic_s()
        self.conversation.follow(detail, TOPICS[detail])
        if detail == "cells":
            self.picture.forget_history()

    def receive(self) -> bool:
        """Read what has arrived; return whether the picture changed."""
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
        """Check and repair the connection; return whether the picture changed."""
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
        self.connection.close()

    def _apply(self, events: list[Event]) -> bool:
        if events:
            self._heard_s = self._clock.monotonic_s()
        for event in events:
            if isinstance(event, KnownNodes):
                self.known_nodes = event
        return self.picture.apply([self._warn(event) for event in self._trim(events)])

    def _trim(self, events: list[Event]) -> Iterable[Event]:
        """Drop devices that were not asked for: older agents, and those behind ssh, send all."""
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
        """Return an event with notes about its sender added to its hub's notes."""
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
        """Ask again if no answer came or the hub is silent; return whether the picture changed."""
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
        """Return why there are no live values, in one sentence; None where there are, or may be soon."""
        turned_away = self.conversation.turned_away
        if turned_away is not None:
            return f"refused: {turned_away}"
        if self._silence_s(now_s) <= self._most_silence_s:
            return None
        return self.connection.trouble or self._name_silence(now_s)

    def _name_silence(self, now_s: float) -> str | None:
        """Return what is known about a silent hub; None where it may still give its first answer."""
        if self.connection.is_connected:
            is_early = not self.has_answered and now_s - self._asked_s < FIRST_ANSWER_WITHIN_S
            return self.conversation.refused or (None if is_early else "the agent is silent")
        if self.has_answered:
            return "connection lost; trying again"
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


MOST_NODES = 4096
"""Nodes that are followed through one relay."""
MAX_NAME_CHARACTERS = 400
MAX_REASON_CHARACTERS = 400
LONGEST_SILENCE_S = 1e9


class RelayLink:
    """Follows a relay, and hands what comes of the nodes behind it to their connections.

    Args:
        node: The relay itself, as it was found at an address.
        own_id: Of the relay that this is of; None in a viewer.
        choice: Which of the nodes behind it are followed.
    """

    def __init__(
        self, node: RemoteNode, connection: RemoteConnection, own_id: str | None, choice: Choice = ALL
    ) -> None:
        self.node = node
        self.connection = connection
        self._choice = choice
        self.label = connection.address.label
        self.connections: dict[str, RelayedConnection] = {}
        """By what the relay calls the node."""
        self.left_out: tuple[str, ...] = ()
        """Names of the nodes behind it that are not followed, as of the last list."""
        self._own_id = own_id
        self._told: KnownNodes | None = None
        self._loop: str | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the relay is connected and has listed its nodes since."""
        return self.connection.is_connected and not self.node.conversation.is_asking

    @property
    def trouble(self) -> str | None:
        newest = self.node.picture.newest
        return f"relay {self.label}: {newest.reason}" if newest.connection == "lost" else None

    @property
    def warning(self) -> str | None:
        warning = self.connection.warning
        return None if warning is None else f"relay {warning}"

    @property
    def relay_ids(self) -> tuple[str, ...]:
        """Ids of all relays that are reached by it."""
        return () if self._told is None or self._is_loop else self._told.relays

    @property
    def followed_count(self) -> int:
        """How many of the nodes that the relay has listed are followed."""
        return 0 if self._told is None else len(self._told.nodes) - len(self.left_out)

    def send(self, data: bytes) -> None:
        self.connection.send(data)

    def deal(self) -> Iterator[str]:
        """Pass what has arrived to the connections; yield the names of their nodes."""
        while self.connection.from_relay:
            name, data = self.connection.from_relay.popleft()
            connection = self.connections.get(name.decode("utf-8", "replace"))
            if connection is not None:
                connection.take(data)
                yield connection.node

    def take_news(self) -> bool:
        """Read the list of nodes; return whether it changed."""
        told = self.node.known_nodes
        if told is None or told is self._told:
            return False
        self._told = told
        if self._own_id is not None and self._own_id in told.relays:
            self._loop = told.relays[0]
        return True

    def list_nodes(self) -> tuple[KnownNode, ...]:
        """Return the nodes that are followed; where the relay leads back here, itself with the reason."""
        if self._told is None:
            return ()
        if self._is_loop:
            reason = "loop: this relay follows the one that follows it; leave it out of --connect there"
            return (KnownNode(self.label, "lost", reason),)
        sound = [*_choose_sound(self._told.nodes)]
        wanted = tuple(it for it in sound if self._choice.wants_node(it.name))
        names = {it.name for it in wanted}
        self.left_out = tuple(it.name for it in sound if it.name not in names)
        return wanted

    @property
    def _is_loop(self) -> bool:
        """Whether the relay has once led back here; it must be restarted before it is asked again.

        Two relays that follow one another would else find and forget it by turns.
        """
        return self._told is not None and self._loop is not None and self._told.relays[:1] == (self._loop,)


def _choose_sound(nodes: Iterable[KnownNode]) -> Iterator[KnownNode]:
    """Yield the nodes whose names can be shown, each once, and no more than can be followed."""
    seen: set[str] = set()
    for node in nodes:
        is_sound = node.name.isprintable() and 1 <= len(node.name) <= MAX_NAME_CHARACTERS
        if is_sound and node.name not in seen and len(seen) < MOST_NODES:
            seen.add(node.name)
            yield msgspec.structs.replace(node, reason=_clean(node.reason), silent_s=_check(node.silent_s))


def _clean(reason: str | None) -> str | None:
    """Return a peer's sentence without terminal control characters."""
    return None if reason is None else make_printable(reason, MAX_REASON_CHARACTERS)


def _check(silent_s: float | None) -> float | None:
    """Return an age; None for what can be none."""
    return silent_s if silent_s is not None and 0.0 <= silent_s < LONGEST_SILENCE_S else None


def trim_event(event: Event, wanted: DeviceSelection, sample: Sample | None) -> Event | None:
    """Return the part of a message about the wanted devices; None where nothing is left."""
    if isinstance(event, Sample):
        return trim_sample(event, wanted)
    if isinstance(event, Joined):
        return replace(event, welcome=trim_welcome(event.welcome, wanted))
    if isinstance(event, Finding):
        return event if trim_findings((event,), wanted) else None
    if isinstance(event, Assessed):
        return Assessed(trim_assessments(event.assessments, wanted))
    if isinstance(event, AlertState):
        return trim_alerts(event, wanted, sample)
    return trim_map(event, wanted, sample) if isinstance(event, PackedSegments) else event
