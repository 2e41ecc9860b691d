"""`vramscope demo`: a training job or a server on a simulated card and the live view on it, without a GPU."""

from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from vramscope.engine.errors import SourceUnavailableError

from ..frame.emit import complain
from ..frame.flags import CAPACITY, add_old_flag, build_view_flags, duration, refuse
from ..frame.parse import SubParsers, add_verb
from ..frame.settings import read_settings

if TYPE_CHECKING:
    from vramscope.engine.jobs.demonstration import Demonstration
    from vramscope.engine.viewer.feed import Feed

DESCRIPTION = "Watch a small training job leak, fragment and run out of memory on a simulated GPU."
EXAMPLES = """\
vramscope demo
vramscope demo --capacity 2GiB --duration 3m
vramscope demo --serving"""
NOTES = """\
The job trains on the CPU and keeps memory that it should free. Within two minutes memory is full, vramscope
writes a flight record, and the job starts again. It ends when you quit the view. It needs PyTorch: pip
install 'vramscope[train]'. With --serving it is a simulated server of a model instead: its KV pool fills up
within three minutes, sequences are preempted, later it sleeps and wakes; that needs no PyTorch."""
EXIT_CODES: dict[int | str, str] = {
    0: "you quit the view, or --duration is over",
    1: "the job ended by itself",
    2: "wrong flags, or no terminal",
    4: "PyTorch is not installed",
}

# Window of the graphs: one and a half runs of the job.
HISTORY_S = 180.0


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parents = [build_view_flags(), *common]
    parser = add_verb(
        subparsers, parents, "demo", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    length = duration(lambda seconds: seconds >= 1, "a second or more, for example 3m")
    parser.add_argument(
        "--duration",
        dest="duration_of_demo",
        metavar="TIME",
        type=length,
        help="end after this time (default: when you quit)",
    )
    add_old_flag(parser, "--for", use="--duration", dest="duration_of_demo", type=length)
    parser.add_argument(
        "--capacity",
        metavar="SIZE",
        type=CAPACITY,
        help="memory of the simulated GPU, at least 896MiB (default 1.5GiB)",
    )
    add_old_flag(parser, "--size", use="--capacity", dest="capacity", type=CAPACITY)
    parser.add_argument(
        "--serving",
        dest="is_serving",
        action="store_true",
        help="watch a simulated server of a model instead of a training job",
    )


def find_refusal() -> str | None:
    """Return why the demo cannot run here; None where it can."""
    if find_spec("torch") is not None:
        return None
    return "the demo needs PyTorch, which is not installed here: pip install 'vramscope[train]'"


def run(arguments: Namespace) -> int:
    import msgspec

    from vramscope.engine.jobs.demonstration import Demonstration, ServingDemonstration
    from vramscope.engine.sampling.live import node_name
    from vramscope.tui.terminal.abilities import check_terminal

    from ..live import open_view, prepare_recording

    is_serving = arguments.is_serving
    settings = read_settings(arguments)
    if is_serving:
        refuse(
            {"--capacity": arguments.capacity}, "does not go with --serving: the server has a card of its own"
        )
    elif (refusal := find_refusal()) is not None:
        raise SourceUnavailableError(refusal)
    check_terminal(settings)
    if is_serving:
        demonstration: Demonstration = ServingDemonstration()
    else:
        demonstration = Demonstration() if arguments.capacity is None else Demonstration(arguments.capacity)

    def start_feed() -> "Feed":
        return demonstration.start(
            interval_s=settings.interval_s, memory_interval_s=settings.memory_interval_s
        )

    try:
        complain(demonstration.announcement, program="vramscope demo")
        code = open_view(
            start_feed,
            # The graphs show no more time than the job needs to run out of memory.
            msgspec.structs.replace(
                settings,
                history_window_s=settings.history_window_s
                if is_serving
                else min(settings.history_window_s, HISTORY_S),
            ),
            config=getattr(arguments, "config", None),
            local_node=node_name(),
            duration_s=arguments.duration_of_demo,
            recording=prepare_recording(settings, demonstration.runtime_dir, is_private=True),
        )
    finally:
        status = demonstration.end()
    return _print_end(demonstration, status) or code


def _print_end(demonstration: "Demonstration", status: int | None) -> int:
    """Print where the flight record is; return 1 if the job ended by itself, which it never should."""
    from vramscope.engine.files.flight_record import find_newest_flight_record

    record = find_newest_flight_record([demonstration.flight_folder])
    if record is not None:
        complain(f"why memory ran out: vramscope inspect {record}", program="vramscope demo")
    if status is None:
        return 0
    complain(f"the job ended with status {status}; its output is in {demonstration.output}")
    return 1
