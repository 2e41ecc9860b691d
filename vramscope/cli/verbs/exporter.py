"""`vramscope exporter`: what the agent of this node knows, for Prometheus to scrape."""

from argparse import ArgumentParser, Namespace

from ..frame.errors import find_parent_pipe
from ..frame.flags import add_endpoint_flags
from ..frame.parse import SubParsers, add_verb

DESCRIPTION = "Serve the metrics of this node's agent to Prometheus."
EXAMPLES = """\
vramscope exporter
vramscope exporter --prometheus 0.0.0.0:9464 --web-config web.yml"""
NOTES = "`vramscope agent --prometheus` starts an exporter with the agent."
EXIT_CODES: dict[int | str, str] = {
    0: "ended by a signal",
    2: "wrong flags, a file that cannot be read, or a port that is in use",
    7: "no agent runs",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers, common, "exporter", DESCRIPTION, examples=EXAMPLES, notes=NOTES, exit_codes=EXIT_CODES
    )
    endpoint = add_endpoint_flags(parser, default="")
    endpoint.add_argument(
        "--insecure", action="store_true", help="beyond loopback, use no TLS; everybody on the way can read"
    )


def run(arguments: Namespace) -> int:
    from vramscope.engine.errors import HubUnreachableError
    from vramscope.engine.paths import check_private, locate_runtime_folder
    from vramscope.engine.wire.endpoints import is_hub_alive
    from vramscope.exporters.prometheus.endpoint import read_endpoint_options, serve_metrics

    options = read_endpoint_options(
        arguments.prometheus, arguments.web_config, is_insecure=arguments.insecure
    )
    folder = locate_runtime_folder()
    parent_fd = find_parent_pipe()
    if folder.exists() or folder.is_symlink():
        check_private(folder)
    if parent_fd is None and not is_hub_alive(folder):
        raise HubUnreachableError(f"no agent serves {folder}: start one with `vramscope agent --prometheus`")
    return serve_metrics(folder, options, parent_fd=parent_fd)
