"""The process behind `vramscope agent --prometheus`: follows an agent and serves what it knows."""

import os
import signal
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ...engine.errors import InputFileError, UsageError
from ...engine.files.base.input_file import decode_text, read_input_file, show_path
from ...engine.files.base.yaml_text import YamlError, parse_yaml
from .address import ListenAddress, check_protected, parse_listen_address
from .passwords import Passwords, check_users

if TYPE_CHECKING:
    from ssl import SSLContext

    from .follower import HubFollower
    from .server import Render


# The form is that of the exporter toolkit of Prometheus (`docs/web-configuration.md` there). What is not
# supported is refused, so that nobody believes in a protection that is not there.
LIMIT_BYTES = 1 << 20
_SUPPORTED = (
    "supported here are basic_auth_users, and tls_server_config with cert_file, key_file, client_auth_type, "
    "client_ca_file and min_version"
)


class TlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `tls_server_config` of a file; paths are relative to the folder of the file."""

    cert_file: str
    key_file: str
    client_auth_type: Literal["", "NoClientCert", "RequireAndVerifyClientCert"] = ""
    client_ca_file: str = ""
    min_version: Literal["TLS12", "TLS13"] = "TLS12"


class WebConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a server is protected."""

    tls_server_config: TlsConfig | None = None
    """None for plain HTTP."""
    basic_auth_users: dict[str, str] = {}
    """Bcrypt hash of the password of each user; empty where no password is asked for."""


def read_web_config(path: Path) -> WebConfig:
    """Return what a file says.

    Raises:
        InputFileError: It cannot be read, protects nothing, or says what is not supported.
    """
    text = decode_text(read_input_file(path, LIMIT_BYTES), path, "a web configuration")
    try:
        config = msgspec.convert(parse_yaml(text).value or {}, WebConfig)
    except (YamlError, msgspec.ValidationError) as error:
        raise InputFileError(f"{show_path(path)}: {error}; {_SUPPORTED}") from error
    tls = config.tls_server_config
    users = config.basic_auth_users
    if tls is None and not users:
        raise InputFileError(f"{show_path(path)}: no tls_server_config and no basic_auth_users; {_SUPPORTED}")
    if users:
        try:
            check_users(users)
        except UsageError as error:
            raise InputFileError(f"{show_path(path)}: basic_auth_users: {error}") from error
    return WebConfig(None if tls is None else _resolve(tls, path), users)


def _resolve(tls: TlsConfig, path: Path) -> TlsConfig:
    """Make paths those of the folder of the file, and refuse half a check of clients."""
    if (tls.client_auth_type == "RequireAndVerifyClientCert") != bool(tls.client_ca_file):
        raise InputFileError(
            f"{show_path(path)}: client_auth_type RequireAndVerifyClientCert and client_ca_file go together"
        )
    folder = path.absolute().parent
    return msgspec.structs.replace(
        tls,
        cert_file=str(folder / tls.cert_file),
        key_file=str(folder / tls.key_file),
        client_ca_file=str(folder / tls.client_ca_file) if tls.client_ca_file else "",
    )


def make_tls_context(tls: TlsConfig) -> "SSLContext":
    """Return what a server speaks TLS with.

    Raises:
        UsageError: A file cannot be read, or holds no certificate or key.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if tls.min_version == "TLS13" else ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=_refuse_password)
        if tls.client_ca_file:
            context.load_verify_locations(tls.client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        what = f"{tls.cert_file}, {tls.key_file}" + (f", {tls.client_ca_file}" if tls.client_ca_file else "")
        raise UsageError(f"TLS of --web-config: {what}: {error}; expected PEM files") from error
    return context


def _refuse_password() -> str:
    """Keep OpenSSL from asking for one on the terminal."""
    raise ValueError("the key is encrypted; expected one without a password")


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
    from ...engine.sampling.live import node_name
    from .follower import HubFollower
    from .server import MetricsServer

    config = options.protection.tls_server_config
    users = options.protection.basic_auth_users
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
