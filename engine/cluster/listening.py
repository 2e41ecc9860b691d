"""Where an agent listens beyond its folder: with keys, on loopback, or because that was typed."""

from pathlib import Path
from typing import NamedTuple

from ..errors import UsageError
from .doorkeeper import Doorkeeper
from .keys import KeyPair, keys_folder, read_key_pair
from .link_times import LinkTimes
from .tcp_address import TcpAddress, parse_listen_address, resolve


class Listening(NamedTuple):
    """Where an agent listens, and whom it lets in."""

    address: TcpAddress
    """Numeric."""
    pair: KeyPair | None
    """Key of its user; None to let everybody in, to read."""
    doorkeeper: Doorkeeper
    times: LinkTimes = LinkTimes()

    @property
    def words(self) -> str:
        """Where it listens and who may come, in one sentence."""
        where = f"listening on {self.address.text}"
        if self.pair is not None:
            return f"{where} for the keys that `vramscope keys list` shows"
        if self.address.is_loopback:
            return f"{where} without keys: whoever is on this machine may read, and nobody do more"
        return (
            f"{where}, INSECURE: whoever reaches it reads commands, users and memory of this node, and so "
            "does everybody between; nobody may do more than read"
        )


def prepare_listening(text: str, *, is_insecure: bool) -> Listening:
    """Return where an agent is to listen.

    Args:
        text: `[ADDRESS:]PORT` as it was typed; empty for the usual port on loopback.
        is_insecure: Listen without keys, wherever that is.

    Raises:
        UsageError: It is no address, its name is unknown, or it is beyond loopback and there is no key.
        InputFileError: The keys cannot be used.
    """
    address = resolve(parse_listen_address(text))
    folder = keys_folder()
    pair = None if is_insecure else read_key_pair(folder)
    if pair is None and not is_insecure and not address.is_loopback:
        raise UsageError(
            f"--listen {text}: beyond loopback an agent listens with keys, and you have none yet: make one "
            "with `vramscope keys new` (--insecure lets everybody read instead)"
        )
    return make_listening(address, pair, folder)


def make_listening(address: TcpAddress, pair: KeyPair | None, folder: Path) -> Listening:
    """Return what makes an agent listen.

    Args:
        address: Numeric.
        pair: Key of its user; None to let everybody in, to read.
        folder: Folder of the list of keys that are allowed.
    """
    return Listening(address, pair, Doorkeeper(pair, folder))
