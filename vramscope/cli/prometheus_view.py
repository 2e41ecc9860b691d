"""`--from-prometheus`: the nodes that a server scrapes, now or in the past, in the view or as text."""

import copy
import gc
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramscope import __version__
from vramscope.engine.errors import UsageError
from vramscope.engine.prometheus.follower import PastRange, PrometheusFollower
from vramscope.engine.prometheus.readings import join_findings, prefer_reported
from vramscope.engine.prometheus.server import PrometheusServer
from vramscope.engine.replay.node_player import FoundVerdicts
from vramscope.engine.units import parse_duration

from .frame.emit import complain, emit_json
from .frame.settings import read_settings
from .view import read_server, read_span

if TYPE_CHECKING:
    from vramscope.engine.model import Analyzer, NodeStatus, Sample
    from vramscope.engine.settings import Settings
    from vramscope.engine.viewer.feed import Feed

PROGRAM = "vramscope --from-prometheus"
FILE_NAME = "prometheus.vscope"
# After that, a server without an answer is awaited on the screen, where `q` quits.
FIRST_ANSWER_WITHIN_S = 3.0


def show_prometheus(arguments: Namespace) -> int:
    server = PrometheusServer(read_server(arguments))
    settings = read_settings(arguments)
    if arguments.past_from is not None:
        past = _open_past(server, arguments)
        return _print_past(past) if arguments.json else _replay(past, arguments, settings)
    follower = PrometheusFollower(server, has_past=not (arguments.once or arguments.json))
    if arguments.once:
        return _print_once(follower, settings, is_json=arguments.json)
    if arguments.json:
        return _print_stream(follower, arguments.duration)
    return _show_live(follower, arguments, settings)


def _open_past(server: PrometheusServer, arguments: Namespace) -> PastRange:
    interval = getattr(arguments, "interval", None)
    start_s, end_s = read_span(arguments)
    return PastRange(
        server, start_s, end_s, interval_s=None if interval is None else parse_duration(interval)
    )


def _show_live(follower: PrometheusFollower, arguments: Namespace, settings: "Settings") -> int:
    from vramscope.engine.sampling.live import node_name

    from .live import open_view

    def start_feed() -> "Feed":
        from vramscope.engine.prometheus.feed import FirstAnswer, PrometheusFeed

        first = FirstAnswer(follower)
        if first.wait(FIRST_ANSWER_WITHIN_S):
            first.take()  # raises what is wrong with the server before a screen opens
        return PrometheusFeed(follower, first=first, make_analyzers=_find_analyzers())

    config = getattr(arguments, "config", None)
    try:
        return open_view(start_feed, settings, config=config, local_node=node_name())
    finally:
        gc.freeze()  # else the last collection goes through the data of thousands of nodes


def _replay(past: PastRange, arguments: Namespace, settings: "Settings") -> int:
    """Play the span, written to a recording in a temporary folder."""
    from vramscope.engine.sampling.live import node_name

    from .live import open_view

    def start_feed() -> "Feed":
        from vramscope.engine.replay.feed import ReplayFeed
        from vramscope.engine.replay.tapes import open_tapes

        with tempfile.TemporaryDirectory(
            prefix="vramscope-prometheus-", ignore_cleanup_errors=True
        ) as folder:
            path = Path(folder) / FILE_NAME
            keep_past(past, path)
            tapes = open_tapes([path])
        # The file stays open and has no name any more, so nothing is left however this process ends.
        return ReplayFeed(lambda: tapes, make_analyzers=_find_analyzers())

    config = getattr(arguments, "config", None)
    return open_view(start_feed, settings, config=config, local_node=node_name(), is_replay=True)


def keep_past(past: PastRange, path: Path) -> None:
    from vramscope.engine.recording import RecordingIdentity, RecordingWriter

    from .frame.progress import ProgressLine

    progress = ProgressLine(PROGRAM)
    samples = past.samples(progress.show_share)
    try:
        first = next(samples)
        identity = RecordingIdentity(first.node, time.time(), __version__, interval_s=past.interval_s)
        with RecordingWriter(path, identity) as writer:
            writer.append(_noted(first, past))
            for sample in samples:
                writer.append(_noted(sample, past))
    finally:
        progress.clear()


def _noted(sample: "Sample", past: PastRange) -> "Sample":
    return msgspec.structs.replace(sample, notes=(*sample.notes, *past.notes)) if past.notes else sample


def _print_past(past: PastRange) -> int:
    for note in past.notes:
        complain(note)
    _write(_describe(past.samples(), _make_verdicts()))
    return 0


def _print_once(follower: PrometheusFollower, settings: "Settings", *, is_json: bool) -> int:
    statuses = _list_newest(follower, _make_verdicts())
    _complain_of(follower, ())
    if is_json:
        _write(statuses)
        return 0
    from vramscope.exporters.status.table import render_table

    from .frame.emit import choose_style, emit

    style = choose_style(settings)
    text = "\n".join(render_table(status, style) for status in statuses)
    emit(text, is_ascii=style.is_ascii, is_styled=style.has_color)
    return 0


def _list_newest(
    follower: PrometheusFollower, verdicts_of: "Callable[[str], FoundVerdicts]"
) -> "list[NodeStatus]":
    """Return the newest state of every node, with a note where it is no longer scraped."""
    from vramscope.engine.units import format_age

    newest = {status.node: status for status in _describe(follower.poll(), verdicts_of, follower)}
    for node, status in newest.items():
        silent_s = follower.silent_s(node)
        if silent_s is not None:
            note = (
                f"Prometheus has not scraped this node for {format_age(silent_s)}; these are its last values"
            )
            newest[node] = msgspec.structs.replace(status, notes=(*status.notes, note))
    return [newest[node] for node in sorted(newest)]


def _print_stream(follower: PrometheusFollower, duration: str | None) -> int:
    """Print a line for each node now, then one for each node and scrape until the time is up."""
    end_s = None if duration is None else time.monotonic() + _read_duration(duration)
    verdicts_of = _make_verdicts()
    _write(_list_newest(follower, verdicts_of))
    printed = _complain_of(follower, ())
    while end_s is None or time.monotonic() < end_s:
        left_s = follower.interval_s if end_s is None else min(follower.interval_s, end_s - time.monotonic())
        time.sleep(max(0.0, left_s))
        _write(_describe(follower.poll(), verdicts_of, follower))
        printed = _complain_of(follower, printed)
    return 0


def _complain_of(follower: PrometheusFollower, printed: tuple[str, ...]) -> tuple[str, ...]:
    """Print once what is left out of the answers, and return it."""
    if follower.notes and not printed:
        for note in follower.notes:
            complain(note)
    return printed or follower.notes


def _read_duration(text: str) -> float:
    try:
        return parse_duration(text)
    except UsageError as error:
        raise UsageError(f"--duration {text}: {error}") from error


def _make_verdicts() -> "Callable[[str], FoundVerdicts]":
    """Return a function that returns the verdicts of a node, from analyzers of its own."""
    make = _find_analyzers()
    known = dict[str, FoundVerdicts]()

    def verdicts_of(node: str) -> FoundVerdicts:
        if node not in known:
            known[node] = FoundVerdicts(make())
        return known[node]

    return verdicts_of


def _find_analyzers() -> "Callable[[], Sequence[Analyzer]]":
    """Return a function that copies fresh analyzers: looking them up for each of 100 nodes takes seconds."""
    from vramscope.engine.plugins import make_analyzers

    made = make_analyzers().made

    def copy_fresh() -> "Sequence[Analyzer]":
        try:
            return copy.deepcopy(made)
        except Exception:  # noqa: BLE001 - a plug-in that cannot be copied is made again
            return make_analyzers().made

    return copy_fresh


def _describe(
    samples: "Iterator[Sample] | list[Sample]",
    verdicts_of: "Callable[[str], FoundVerdicts]",
    follower: PrometheusFollower | None = None,
) -> "Iterator[NodeStatus]":
    from vramscope.exporters.status.document import describe_sample

    for sample in samples:
        verdicts = verdicts_of(sample.node)
        verdicts.observe(sample)
        reported = () if follower is None else follower.list_assessments(sample)
        counted = () if follower is None else follower.list_findings(sample)
        findings = join_findings(verdicts.findings(), counted)
        assessments = prefer_reported(verdicts.assessments(), reported)
        yield describe_sample(sample, findings, assessments=assessments)


def _write(statuses: "Iterator[NodeStatus] | list[NodeStatus]") -> None:
    for status in statuses:
        emit_json(status)
