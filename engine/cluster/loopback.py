"""The key of this user's processes on this machine, for a user who has no other.

Anybody on a machine reaches a port on loopback, and only its user the private runtime folder.
"""

from ..paths import open_runtime_folder
from .addresses import TcpAddress
from .gate import Doorkeeper
from .keys import KeyPair, lock_keys, make_key_pair, read_key_pair, save_key_pair
from .links import Failure, NodeKeys
from .trust import Trust

KEYS_NAME = "loopback"


def share_loopback_key() -> KeyPair:
    """Return the key, which is made where it is missing.

    Raises:
        RuntimeFolderError: The runtime folder is not private, or cannot be made.
        InputFileError: The key in it cannot be used.
        OutputFileError: It cannot be written.
    """
    folder = open_runtime_folder() / KEYS_NAME
    with lock_keys(folder, lambda sentence: None):
        pair = read_key_pair(folder)
        if pair is None:
            pair = make_key_pair()
            save_key_pair(pair, folder)
    return pair


class LoopbackDoorkeeper(Doorkeeper):
    """Lets in this user's processes on this machine, and nobody else."""

    def __init__(self) -> None:
        super().__init__(share_loopback_key(), open_runtime_folder() / KEYS_NAME)

    @property
    def pair(self) -> KeyPair | None:
        return self._pair


class LoopbackTrust(Trust):
    """The key with which a process speaks to others of its user on this machine."""

    def explain(self, address: TcpAddress, failure: Failure, keys: NodeKeys | None) -> str:
        if keys is not None and failure == "mechanism":
            return f"the master at {address.text} uses no keys: report to it with --insecure here too"
        return (
            f"{address.text} asks for a key that you do not have: its master is another user's, behind a "
            "tunnel, or has keys: create one with `vramscope keys new` and let it be allowed there; or it is "
            "not a vramscope master"
        )
