"""The live view: from settings to the screens, with an agent started along with them if none runs."""

import shlex
import subprocess
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import vramscope
from vramscope.engine.errors import UsageError
from vramscope.engine.settings import Settings, save_settings

from .frame.emit import complain
from .frame.settings import read_settings

if TYPE_CHECKING:
    from vramscope.analyzers.planning.sweep.index import SweepIndex
    from vramscope.engine.history import History
    from vramscope.engine.jobs.background import ViewerRecording
    from vramscope.engine.viewer.feed import Feed
    from vramscope.engine.viewer.snapshot import Snapshot
    from vramscope.tui.frame.launch import Example, Examples
    from vramscope.tui.modules.profiled import Profiled
    from vramscope.tui.plan.planned import JobDefaults, Planned
    from vramscope.tui.terminal.abilities import TerminalAbilities
    from vramscope.tui.terminal.opening import FirstFrame, Opening


EXAMPLE = Path(vramscope.__file__).with_name("example.vscope")
"""A job that leaks on a simulated device until its memory runs out, recorded by vramscope."""


# Until an agent that runs has answered; the application shows what is wrong with one that does not.
AGENT_ANSWERS_WITHIN_S = 1.0


def show_live(arguments: Namespace) -> int:
    settings = read_settings(arguments)
    config = getattr(arguments, "config", None)
    chosen: list[Example] = []

    def start_feed() -> "Feed":
        from vramscope.engine.viewer.hub_feed import attach_or_start
        from vramscope.tui.frame.process_memory import share_one_heap

        feed = attach_or_start(
            interval_s=settings.interval_s,
            memory_interval_s=settings.memory_interval_s,
            serving=settings.serving,
            config=config,
        )
        share_one_heap()
        feed.follow()
        return feed

    with _drawn_early(settings) as opening:
        from vramscope.engine.sampling.live import node_name
        from vramscope.tui.frame.launch import Examples

        from .verbs.demo import find_refusal

        code = open_view(
            start_feed,
            settings,
            config=config,
            local_node=node_name(),
            recording=prepare_recording(settings),
            examples=Examples(find_refusal(), chosen.append),
            opening=opening,
        )
    return _open_example(chosen[0], settings, config) if chosen else code


@contextmanager
def _drawn_early(settings: Settings) -> "Iterator[Opening]":
    """Draw the first frame while the application is loaded.

    Raises:
        UsageError: Nothing can be drawn here.
    """
    from vramscope.engine.paths import locate_runtime_folder
    from vramscope.engine.wire.endpoints import is_hub_alive
    from vramscope.tui.terminal.abilities import check_terminal
    from vramscope.tui.terminal.opening import Opening

    abilities = check_terminal(settings)
    # The agent that is started meanwhile answers too late for the first frame.
    has_agent = is_hub_alive(locate_runtime_folder())
    opening = Opening()
    try:
        opening.begin(lambda: measure_first_frame(settings, abilities, has_agent=has_agent))
        yield opening
    finally:
        opening.end()


def measure_first_frame(
    settings: Settings, abilities: "TerminalAbilities", *, has_agent: bool
) -> "FirstFrame | None":
    """Return what the agent knows, or what this process measures once; None where there is no device.

    Run it in a process of its own: a driver call may hang.
    """
    take = _ask_agent if has_agent else _start_measuring(settings)
    # Loaded while the driver starts.
    from shutil import get_terminal_size

    import msgspec

    from vramscope.tui.live.first_frame import FrameSize, draw_first_frame
    from vramscope.tui.terminal.opening import FirstFrame

    snapshot, history = take()
    if snapshot.sample is None or not snapshot.sample.devices:
        return None
    drawing = draw_first_frame(
        snapshot,
        history,
        FrameSize(*get_terminal_size()),
        abilities,
        theme=settings.theme,
        history_window_s=settings.history_window_s,
        remedy="command" if settings.read_only else "key",
    )
    return FirstFrame(msgspec.msgpack.encode(snapshot.sample), drawing)


def _ask_agent() -> "tuple[Snapshot, History]":
    from vramscope.engine.viewer.client import connect, explain_other_root
    from vramscope.engine.viewer.snapshot import Snapshot

    client = connect(timeout_s=AGENT_ANSWERS_WITHIN_S)
    if explain_other_root(client.newest.hub) is not None:
        return Snapshot(), client.history  # the view says why there is nothing
    return client.newest, client.history


def _start_measuring(settings: Settings) -> "Callable[[], tuple[Snapshot, History]]":
    from vramscope.engine.viewer.this_node import LocalNode

    local = LocalNode(interval_s=settings.interval_s, memory_interval_s=settings.memory_interval_s)
    local.start()

    def take() -> "tuple[Snapshot, History]":
        from vramscope.engine.history import History
        from vramscope.engine.viewer.snapshot import Snapshot

        return Snapshot(sample=local.take(None)[-1]), History()

    return take


def _open_example(example: "Example", settings: Settings, config: Path | None) -> int:
    """Run the demo, or replay its recording, as the view looked that offered it; return the exit code."""
    from .application import run

    words = ["demo"] if example == "demo" else ["replay", str(EXAMPLE)]
    words += [
        *(["--theme", settings.theme] if settings.theme else []),
        *(["--ascii"] if settings.ascii else []),
        *(["--read-only"] if settings.read_only else []),
    ]
    return run([*words, *(["--config", str(config)] if config is not None else [])])


def prepare_recording(
    settings: Settings, folder: Path | None = None, *, is_private: bool = False
) -> "ViewerRecording":
    """Return the object that begins and ends recordings in a view.

    Args:
        folder: Runtime folder of the agent; this user's own by default.
    """
    from vramscope.engine.jobs.background import ViewerRecording
    from vramscope.engine.paths import locate_runtime_folder

    output = Path(settings.record.folder).expanduser()
    return ViewerRecording(folder or locate_runtime_folder(), output, is_private=is_private)


def open_view(
    start_feed: "Callable[[], Feed]",
    settings: Settings,
    *,
    config: Path | None,
    local_node: str | None,
    duration_s: float | None = None,
    is_replay: bool = False,
    recording: "ViewerRecording | None" = None,
    examples: "Examples | None" = None,
    opening: "Opening | None" = None,
) -> int:
    """Show a feed until the view is quit; return the exit code.

    Args:
        start_feed: Returns the feed; called once the terminal is known to be good enough.
        duration_s: Seconds after which the view ends; None for never.
        recording: Begins and ends recordings; None where the view cannot record.
        examples: What is offered while the node has no GPU; None for nothing.
        opening: Where a first frame is drawn already; None for nothing.
    """
    from vramscope.tui.frame.launch import run_app
    from vramscope.tui.terminal.abilities import HEADLESS_ADVICE, RECORDED_ADVICE, check_terminal

    check_terminal(settings, RECORDED_ADVICE if is_replay else HEADLESS_ADVICE)
    feed = start_feed()
    try:
        return run_app(
            feed,
            settings=settings,
            save_settings=partial(save_settings, path=config),
            local_node=local_node,
            duration_s=duration_s,
            is_replay=is_replay,
            recording=recording,
            readers={"sweep": find_by_words, "plan": plan_words, "modules": read_by_words},
            examples=examples,
            opening=opening,
        )
    except BaseException:
        feed.stop()
        raise
    finally:
        # The screen is closed, so this line is visible.
        sentence = None if recording is None else recording.leave()
        if sentence is not None:
            complain(sentence)


def plan_words(words: str, defaults: "JobDefaults") -> "Planned":
    from dataclasses import replace

    from vramscope.engine.files.base.output_file import write_files
    from vramscope.tui.plan.planned import Planned

    from .frame.files import list_inputs
    from .frame.parse import parse
    from .frame.sandbox import refuse_others
    from .plan_screen import split_words
    from .reader import ask_apart, check_names

    paths = (path for _, path in list_inputs(parse(split_words(words))))
    refuse_others(paths, "vramscope plan --screen")
    given = {"words": words, "defaults": defaults}
    planned, files = ask_apart("plan", given, tuple[Planned, dict[str, bytes]], stderr=subprocess.DEVNULL)
    check_names(files)
    return replace(planned, write=partial(write_files, files)) if files else planned


def find_by_words(words: str) -> "SweepIndex":
    from vramscope.analyzers.planning.sweep.index import SweepIndex

    from .frame.files import list_inputs
    from .frame.parse import parse
    from .frame.sandbox import refuse_others
    from .reader import ask_apart

    try:
        given = shlex.split(words)
    except ValueError as error:
        raise UsageError(f"{words}: expected folders, then flags of `vramscope sweep`") from error
    if not {"-h", "--help"}.isdisjoint(given):
        raise UsageError("for the flags, run `vramscope sweep --help` in a shell")
    arguments = parse(["sweep", *given])
    refuse_others((path for _, path in list_inputs(arguments)), "vramscope sweep")
    return ask_apart("sweep", {"words": given}, SweepIndex, stderr=subprocess.DEVNULL)


def read_by_words(words: str) -> "Sequence[Profiled]":
    from vramscope.tui.modules.profiled import Profiled

    from .frame.sandbox import refuse_others
    from .reader import ask_apart

    try:
        given = shlex.split(words)
    except ValueError as error:
        raise UsageError(f"{words}: expected profiles by module, or folders of them") from error
    refuse_others(map(Path, given), "vramscope modules")
    return ask_apart("modules", {"paths": given}, tuple[Profiled, ...], stderr=subprocess.DEVNULL)
