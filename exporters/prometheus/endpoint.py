"""The process behind `vramscope agent --prometheus`: follows an agent and serves what it knows."""

import os
import signal
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...engine.errors import UsageError
from .address import ListenAddress, check_protected, parse_listen_address
from .passwords import Passwords
from .web_config import WebConfig, make_tls_context, read_web_config

if TYPE_CHECKING:
    from .follower import HubFollower
    from .server import Render


class EndpointOptions(msgspec.Struct, frozen=True):
    """Where figures are served, and how they are protected."""

    address: ListenAddress
    protection: WebConfig = WebConfig()


def read_endpoint_options(text: str, web_config: Path | None, *, is_insecure: bool) -> EndpointOptions:
    """Return what the flags mean, checked as far as can be without listening.

    Args:
        text: What `--prometheus` says: an address and port, a port, or nothing.
        web_config: File that `--web-config` names.
        is_insecure: Whether `--insecure` was typed.

    Raises:
        UsageError: prometheus_client is not installed, or the address must not be served as it is.
        InputFileError: The web configuration cannot be used.
    """
    if find_spec("prometheus_client") is None:
        raise UsageError(
            "--prometheus: the text is made by prometheus_client, which is not installed: "
            "pip install 'vramscope[prometheus]'"
        )
    address = parse_listen_address(text)
    protection = WebConfig() if web_config is None else read_web_config(web_config)
    check_protected(address, has_tls=protection.tls_server_config is not None, is_insecure=is_insecure)
    return EndpointOptions(address, protection)


def serve_metrics(runtime_dir: Path, options: EndpointOptions, *, parent_fd: int | None = None) -> int:
    """Serve the figures of an agent until told to end; the address goes to standard output first.

    Args:
        runtime_dir: Folder of the agent.
        options: Where to.
        parent_fd: Pipe that closes when the agent that started this process ends; None to run until stopped.

    Raises:
        UsageError: It cannot listen there, or a certificate cannot be used.
    """
    from ...engine.sampling.node import node_name
    from .follower import HubFollower
    from .server import MetricsServer

    config, users = options.protection.tls_server_config, options.protection.basic_auth_users
    tls = None if config is None else make_tls_context(config)
    follower = HubFollower(runtime_dir, node=node_name())
    server = MetricsServer(
        options.address, _make_renderer(follower), tls, Passwords(users) if users else None
    )
    ended = _watch_for_end(parent_fd)
    follower.start()
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    ended.wait()
    server.shutdown()
    server.server_close()
    follower.stop()
    return 0


def _make_renderer(follower: "HubFollower") -> "Render":
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    from .exposition import PictureCollector

    registry = CollectorRegistry()
    registry.register(PictureCollector(follower.look))

    def render(accepted: str) -> tuple[bytes, str]:
        encode, kind = choose_encoder(accepted)
        return encode(registry), kind

    return render


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
