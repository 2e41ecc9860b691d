"""Where the node that gathers listens, and whom it lets in."""

from pathlib import Path

from ..errors import UsageError
from .keys import keys_folder, read_key_pair
from .listening import Listening, make_listening
from .tcp_address import LOOPBACK, TcpAddress, parse_address, parse_port, resolve

EVERYWHERE = "0.0.0.0"  # noqa: S104 - only where `*` was typed, and with keys


def find_host(host: str | None, port: int) -> TcpAddress:
    """Return the numeric address of a host; asks name servers, and may take long.

    Args:
        host: Name or number; None for this machine, `*` for all of its addresses.
        port: Port number.

    Raises:
        UsageError: It is no host, nobody knows the name, or the port is none.
    """
    parse_port(str(port))
    if host in (None, "", "localhost"):
        return TcpAddress(LOOPBACK, port)
    if host == "*":
        return TcpAddress(EVERYWHERE, port)
    return resolve(TcpAddress(_read_host(str(host)), port))


def _read_host(text: str) -> str:
    """Return a host as it was typed, without the brackets of IPv6."""
    bare = text.removeprefix("[").removesuffix("]")
    try:
        return parse_address(f"[{bare}]" if ":" in bare else bare).host
    except UsageError as error:
        raise UsageError(
            f"{text}: expected a host alone, by name or number; its port is given apart"
        ) from error


def prepare_gathering(
    host: str | None, port: int, *, is_insecure: bool, folder: Path | None = None
) -> Listening:
    """Return where the node that gathers is to listen, and whom it lets in.

    Args:
        host: As for `find_host`.
        port: Port number.
        is_insecure: Take reports without keys, wherever that is.
        folder: Folder of the keys; that of this user by default.

    Raises:
        UsageError: It is no address, or it is beyond loopback and there is no key.
        InputFileError: The keys cannot be used.
    """
    address = find_host(host, port)
    folder = folder or keys_folder()
    pair = None if is_insecure else read_key_pair(folder)
    if pair is None and not is_insecure and not address.is_loopback:
        raise UsageError(
            f"{host}: beyond loopback reports travel with keys, and you have none yet: make one with "
            "`vramscope keys new` (--insecure, or insecure=True in a program, takes reports "
            "of everybody instead)"
        )
    return make_listening(address, pair, folder)


def describe_gathering(listening: Listening) -> str:
    """Return where reports are taken and of whom, in one sentence."""
    where = f"gathering on {listening.address.text}"
    if listening.pair is not None:
        return f"{where} for your key and those with the role worker (`vramscope keys list`)"
    if listening.address.is_loopback:
        return f"{where} without keys: of whoever is on this machine"
    return f"{where}, INSECURE: whoever reaches it may report, and everybody between may read"
