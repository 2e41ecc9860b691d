"""`vramscope exporter`: what the agent of this node knows, for Prometheus and OpenTelemetry."""

import os
import signal
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope import __version__
from vramscope.engine.errors import HubUnreachableError, UsageError

from ..frame.emit import complain
from ..frame.errors import find_parent_pipe
from ..frame.flags import add_endpoint_flags
from ..frame.parse import SubParsers, add_verb

if TYPE_CHECKING:
    from vramscope.exporters.otel.push import OtlpOptions
    from vramscope.exporters.prometheus.endpoint import EndpointOptions

PROGRAM = "vramscope exporter"
DESCRIPTION = "Serve the metrics of this node's agent to Prometheus, push them by OTLP, or write them once."
EXAMPLES = """\
vramscope exporter
vramscope exporter --prometheus 0.0.0.0:9464 --web-config web.yml --dcgm-names
vramscope exporter --otlp https://collector.example.org:4318
vramscope exporter --textfile /var/lib/node_exporter/vramscope.prom"""
NOTES = "`vramscope agent --prometheus`, `--otlp` or both start an exporter with the agent."
EXIT_CODES: dict[int | str, str] = {
    0: "ended by a signal; --textfile: written",
    2: "wrong flags, a file that cannot be read or written, or a port that is in use",
    4: "a package of an extra is not installed",
    7: "no agent runs; --textfile has written that then",
}
ANSWERS_WITHIN_S = 5.0
# The textfile collector is another user, and whoever is on the node may read metrics on loopback too.
_FILE_MODE = 0o644


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers, common, "exporter", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    group = add_endpoint_flags(parser)
    group.add_argument(
        "--insecure",
        action="store_true",
        help="beyond loopback, use no TLS; everybody on the way can read",
    )
    group.add_argument(
        "--textfile",
        metavar="FILE",
        type=Path,
        help="write what one scrape reads and exit, for the textfile collector of node_exporter; - is stdout",
    )


def read_outputs(arguments: Namespace) -> "tuple[EndpointOptions | None, OtlpOptions | None]":
    """Return where metrics are served, and where they are pushed to, checked as far as can be now.

    Raises:
        UsageError: A package is missing, or an address must not be used as it is.
        InputFileError: The web configuration cannot be used.
    """
    served = pushed = None
    if arguments.prometheus is not None:
        from vramscope.exporters.prometheus.endpoint import read_endpoint_options

        served = read_endpoint_options(
            arguments.prometheus, arguments.web_config, is_insecure=arguments.insecure
        )
    elif arguments.web_config is not None or arguments.dcgm_names:
        flag = "--dcgm-names" if arguments.web_config is None else "--web-config"
        raise UsageError(f"{flag} needs --prometheus: it is about what Prometheus scrapes")
    if arguments.otlp is not None:
        from vramscope.exporters.otel.push import read_otlp_options

        pushed = read_otlp_options(arguments.otlp, is_insecure=arguments.insecure)
    return served, pushed


def run(arguments: Namespace) -> int:
    from vramscope.engine.paths import check_private, locate_runtime_folder
    from vramscope.engine.wire.endpoints import is_hub_alive

    textfile = arguments.textfile
    if textfile is not None and (arguments.prometheus, arguments.otlp, arguments.web_config) != (None,) * 3:
        raise UsageError(
            "--textfile serves and pushes nothing: leave out --prometheus, --web-config and --otlp"
        )
    if arguments.prometheus is None and arguments.otlp is None:
        arguments.prometheus = ""
    served, pushed = read_outputs(arguments)
    folder = locate_runtime_folder()
    parent_fd = find_parent_pipe()
    if folder.exists() or folder.is_symlink():
        check_private(folder)
    is_alive = parent_fd is not None or is_hub_alive(folder)
    if textfile is not None:
        _write_once(folder, textfile, has_dcgm_names=arguments.dcgm_names, is_alive=is_alive)
    if not is_alive:
        raise HubUnreachableError(f"no agent serves {folder}: start one with `vramscope agent`")
    if textfile is not None:
        return 0
    return _serve(folder, served, pushed, has_dcgm_names=arguments.dcgm_names, parent_fd=parent_fd)


def _write_once(folder: Path, output: Path, *, has_dcgm_names: bool, is_alive: bool) -> None:
    """Write what the agent knows now; without one that it is not up, so that an old file cannot mislead."""
    from vramscope.engine.files.base.output_file import open_output
    from vramscope.engine.sampling.live import node_name
    from vramscope.exporters.metrics.follower import SnapshotFollower
    from vramscope.exporters.prometheus.text import make_renderer

    follower = SnapshotFollower(folder, node=node_name())
    if is_alive:
        follower.start()
        ends_s = time.monotonic() + ANSWERS_WITHIN_S
        while follower.look().sample is None and time.monotonic() < ends_s:
            time.sleep(0.01)
    text, _ = make_renderer(follower.look, has_dcgm_names=has_dcgm_names)("")
    if is_alive:
        follower.stop()
    with open_output(output, mode=_FILE_MODE) as stream:
        stream.write(text)


def _serve(
    folder: Path,
    served: "EndpointOptions | None",
    pushed: "OtlpOptions | None",
    *,
    has_dcgm_names: bool,
    parent_fd: int | None,
) -> int:
    """Serve and push the metrics of an agent until stopped; where they are goes to standard output first.

    Args:
        parent_fd: Pipe that closes when the agent that started this process ends; None to run until stopped.

    Raises:
        UsageError: It cannot listen there, or a certificate cannot be used.
    """
    from vramscope.engine.sampling.live import node_name
    from vramscope.exporters.metrics.follower import SnapshotFollower

    follower = SnapshotFollower(folder, node=node_name())
    server = pusher = None
    places: list[str] = []
    if served is not None:
        from vramscope.exporters.prometheus.endpoint import Passwords, make_tls_context
        from vramscope.exporters.prometheus.server import MetricsServer
        from vramscope.exporters.prometheus.text import make_renderer

        config = served.protection.tls_server_config
        users = served.protection.basic_auth_users
        server = MetricsServer(
            served.address,
            make_renderer(follower.look, has_dcgm_names=has_dcgm_names),
            None if config is None else make_tls_context(config),
            Passwords(users) if users else None,
        )
        places.append(server.url)
    if pushed is not None:
        from vramscope.exporters.otel.push import Pusher

        pusher = Pusher(
            pushed, follower.look, version=__version__, complain=lambda text: complain(text, program=PROGRAM)
        )
        places.append(pushed.words)
    ended = _watch_for_end(parent_fd)
    follower.start()
    if server is not None:
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    if pusher is not None:
        pusher.start()
    sys.stdout.write(f"{', '.join(places)}\n")
    sys.stdout.flush()
    ended.wait()
    if server is not None:
        server.shutdown()
        server.server_close()
    if pusher is not None:
        pusher.stop()
    follower.stop()
    return 0


def _watch_for_end(parent_fd: int | None) -> threading.Event:
    """Return what is set by a signal, or when the agent closes its pipe."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    if parent_fd is not None:

        def read_to_end() -> None:
            while os.read(parent_fd, 64):
                pass
            ended.set()

        threading.Thread(target=read_to_end, name="parent", daemon=True).start()
    return ended
