"""`vramscope exporter`: what the agent of this node knows, for Prometheus to scrape."""

from argparse import ArgumentParser, Namespace

from ..frame.parent_pipe import find_parent_pipe
from ..frame.parser_flags import add_endpoint_flags
from ..frame.registry import SubParsers

SUMMARY = "serve what the agent of this node knows to Prometheus; `agent --prometheus` starts its own"


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    """Add the verb's parser."""
    parser = subparsers.add_parser(
        "exporter",
        help=SUMMARY,
        description="Serve what the agent of this node knows to Prometheus, until told to end.",
        parents=common,
        allow_abbrev=False,
    )
    endpoint = add_endpoint_flags(parser, default="")
    endpoint.add_argument(
        "--insecure", action="store_true", help="beyond loopback: without TLS, readable by everybody"
    )


def run(arguments: Namespace) -> int:
    """Serve until told to end.

    Raises:
        UsageError: The address or the certificate cannot be used, or prometheus_client is not installed.
        InputFileError: The web configuration cannot be used.
        RuntimeFolderError: The folder is not private.
        HubUnreachableError: No agent serves it, and none started this process.
    """
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
