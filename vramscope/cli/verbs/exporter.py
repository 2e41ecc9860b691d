"""`vramscope exporter`: what the agent of this node knows, for Prometheus to scrape."""

from argparse import ArgumentParser, Namespace

from ..frame.errors import find_parent_pipe
from ..frame.flags import add_endpoint_flags
from ..frame.parse import SubParsers, add_verb

SUMMARY = "serve what the agent of this node knows to Prometheus; `agent --prometheus` starts its own"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(
        subparsers,
        common,
        "exporter",
        SUMMARY,
        "Serve what the agent of this node knows to Prometheus, until told to end.",
    )
    endpoint = add_endpoint_flags(parser, default="")
    endpoint.add_argument(
        "--insecure", action="store_true", help="beyond loopback: without TLS, readable by everybody"
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
