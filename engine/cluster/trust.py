"""The keys of a viewer: with which ones it speaks to an agent, and what to do where it is refused."""

from typing import NamedTuple

from ..errors import UsageError
from .addresses import TcpAddress
from .keys import AllowList, KeyPair, keys_folder, read_allow_list, read_key_pair
from .links import Failure, NodeKeys


class Trust(NamedTuple):
    """The keys of a viewer."""

    pair: KeyPair | None
    """Its own; None without one, or if `--insecure` was typed."""
    allowed: AllowList
    is_insecure: bool = False
    """Speak without keys beyond this machine too."""

    def keys_for(self, address: TcpAddress, attempt: int, *, is_loopback: bool) -> NodeKeys | None:
        """Return the keys to speak with to an agent; None for none.

        On this machine agents listen with keys or without: every other attempt is of the other kind.

        Args:
            is_loopback: Whether the agent is on this machine, or at the other end of a tunnel.
        """
        if self.pair is None or (is_loopback and attempt % 2):
            return None
        named = self.allowed.key_of_node(address.text, address.label, address.host)
        return NodeKeys(self.pair, named or self.pair.public)

    def explain(self, address: TcpAddress, failure: Failure, keys: NodeKeys | None) -> str:
        """Return why an agent could not be reached, in one sentence with what to do."""
        if keys is None:
            what = "leave out --insecure" if self.is_insecure else "create one with `vramscope keys new`"
            asks = f"the agent there asks for a key: {what}"
            return asks if failure == "mechanism" else f"{asks}; or it is not a vramscope agent"
        if failure == "refused":
            return (
                f"refused: this key is not allowed on {address.host}: run there `vramscope keys allow "
                f"{keys.own.public_text} --name NAME`"
            )
        if failure == "mechanism":
            return "the agent there uses no keys: read it with --insecure here too"
        return (
            f"the agent there has no key, or not the one known here for {address.host}: run `vramscope "
            f"keys list` there, and here `vramscope keys allow KEY --name {address.host} --role node` "
            "with the public key that it shows"
        )


def read_trust(*, is_insecure: bool) -> Trust:
    """Return the keys of this user.

    Raises:
        InputFileError: They cannot be used.
    """
    if is_insecure:
        return Trust(None, AllowList(), is_insecure=True)
    folder = keys_folder()
    return Trust(read_key_pair(folder), read_allow_list(folder))


def check_reachable(address: TcpAddress, trust: Trust) -> None:
    """Refuse to speak without keys beyond this machine, unless that was typed.

    Raises:
        UsageError: There is no key.
    """
    if trust.pair is None and not trust.is_insecure and not address.is_loopback:
        raise UsageError(
            "agents on other machines need a key, and you have none: create one with `vramscope keys new`"
        )
