"""Where metrics are served, and how they are protected: addresses, TLS and passwords."""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
import secrets
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ...engine.cluster.addresses import LOOPBACK, TcpAddress
from ...engine.errors import InputFileError, PackageMissingError, UsageError
from ...engine.files.base.input_file import decode_text, read_input_file, show_path
from ...engine.files.base.yaml_text import YamlError, parse_yaml

if TYPE_CHECKING:
    from ssl import SSLContext


# Where metrics are served: a port on loopback, or a given and protected address.

DEFAULT_PORT = 9464
_FORM = re.compile(r"^(?:(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]*)):)?(?P<port>\d+)$")
_EXPECTED = "expected a port or address:port, for example :9464, 192.0.2.7:9464 or [::]:9464"


def parse_listen_address(text: str) -> TcpAddress:
    """Return the numeric address that a text names; without a host it is of loopback, and port 0 is any free.

    Raises:
        UsageError: It is no address and port.
    """
    if not text:
        return TcpAddress(LOOPBACK, DEFAULT_PORT)
    found = _FORM.match(text)
    if found is None or int(found["port"]) > 65535:
        raise UsageError(f"--prometheus {text}: {_EXPECTED}")
    host = found["six"] or found["host"] or LOOPBACK
    try:
        numeric = ipaddress.ip_address(LOOPBACK if host == "localhost" else host)
    except ValueError:
        raise UsageError(f"--prometheus {text}: {host!r} is not a numeric address; {_EXPECTED}") from None
    return TcpAddress(str(numeric), int(found["port"]))


def check_protected(address: TcpAddress, *, has_tls: bool, is_insecure: bool) -> None:
    """Refuse an unprotected address beyond loopback without `--insecure`.

    Raises:
        UsageError: It must not be served as it is.
    """
    if not (address.is_loopback or has_tls or is_insecure):
        raise UsageError(
            f"--prometheus {address.text}: anyone who can reach it could read the metrics: give a TLS "
            "configuration with --web-config FILE (docs/prometheus.md), or add --insecure"
        )


# The form is that of the exporter toolkit of Prometheus (`docs/web-configuration.md` there). What is not
# supported is refused, so that nobody relies on protection that does not exist.
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
    """Return the configuration of a file.

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
    """Where metrics are served, and how they are protected."""

    address: TcpAddress
    protection: WebConfig = WebConfig()


def read_endpoint_options(text: str, web_config: Path | None, *, is_insecure: bool) -> EndpointOptions:
    """Return what the flags mean, checked as far as can be without listening.

    Args:
        text: What `--prometheus` says: an address and port, a port, or nothing.

    Raises:
        PackageMissingError: prometheus_client is not installed.
        UsageError: The address must not be served as it is.
        InputFileError: The web configuration cannot be used.
    """
    if find_spec("prometheus_client") is None:
        raise PackageMissingError(
            "metrics for Prometheus are made by prometheus_client, which is not installed: "
            "pip install 'vramscope[prometheus]'"
        )
    address = parse_listen_address(text)
    protection = WebConfig() if web_config is None else read_web_config(web_config)
    check_protected(address, has_tls=protection.tls_server_config is not None, is_insecure=is_insecure)
    return EndpointOptions(address, protection)


# Users and passwords of a web configuration: bcrypt, in the same time whether a user is known or not.

MOST_COST = 16
"""Above this a single scrape would take a core for seconds."""
MOST_BYTES = 72
"""bcrypt reads so many bytes of a password; the rest is ignored, as Prometheus's exporters do."""
MOST_CHECKS = 2
CHECKED_WITHIN_S = 2.0
"""Passwords that are checked at a time, and how long others wait before they are refused."""
_HASH = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")


def check_users(users: Mapping[str, str]) -> None:
    """Refuse users whose passwords could not be checked; the text goes on after the name of a file.

    Args:
        users: Bcrypt hash of the password of each.

    Raises:
        PackageMissingError: bcrypt is not installed.
        UsageError: One has no bcrypt hash of a bearable cost.
    """
    if find_spec("bcrypt") is None:
        raise PackageMissingError(
            "passwords are checked by bcrypt, which is not installed: pip install 'vramscope[prometheus]'"
        )
    for name, hashed in users.items():
        found = _HASH.fullmatch(hashed)
        if not name or ":" in name or found is None:
            raise UsageError(
                f"{name}: expected a user without a colon and the bcrypt hash of a password, "
                "as `htpasswd -nB USER` prints both"
            )
        if not 4 <= int(found[1]) <= MOST_COST:
            raise UsageError(f"{name}: expected a bcrypt hash of cost 4 to {MOST_COST}, not {found[1]}")


class Passwords:
    """Says whether a request may be answered.

    Checking a password takes tens of milliseconds on purpose. So of each user the newest that was right is
    known again by a keyed digest; of others few are checked at a time, so that guessing takes few cores.

    Args:
        users: Bcrypt hash of the password of each; see `check_users`.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._hashes = {name.encode(): hashed.encode() for name, hashed in users.items()}
        self._stranger = next(iter(self._hashes.values()), b"")
        self._secret = secrets.token_bytes(32)
        self._known = dict[bytes, bytes]()
        self._places = threading.BoundedSemaphore(MOST_CHECKS)

    def knows(self, authorization: str | None) -> bool:
        """Return whether a header names a user with the password that was right before; takes no time."""
        named = _read(authorization or "")
        if named is None:
            return False
        user, password = named
        return hmac.compare_digest(self._known.get(user, b""), self._digest(password))

    def allow(self, authorization: str | None) -> bool:
        """Return whether the header `Authorization` of a request names a user with the right password."""
        named = _read(authorization or "")
        if named is None or not self._hashes:
            return False
        if self.knows(authorization):
            return True
        user, password = named
        is_right = self._check(password, self._hashes.get(user, self._stranger)) and user in self._hashes
        if is_right:
            self._known[user] = self._digest(password)
        return is_right

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._secret, password, hashlib.sha256)

    def _check(self, password: bytes, hashed: bytes) -> bool:
        import bcrypt

        if not self._places.acquire(timeout=CHECKED_WITHIN_S):
            return False
        try:
            return bcrypt.checkpw(password[:MOST_BYTES], hashed)
        except ValueError:  # a password that bcrypt does not take
            return False
        finally:
            self._places.release()


def _read(authorization: str) -> tuple[bytes, bytes] | None:
    """Return user and password of a header; None where it holds none."""
    scheme, _, coded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(coded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None
