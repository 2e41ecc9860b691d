"""`vramscope keys`: the key of this user, and the allowed keys of others."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope.engine.errors import UsageError

from ..frame.emit import complain
from ..frame.flags import refuse
from ..frame.parse import SubParsers, add_verb

if TYPE_CHECKING:
    from vramscope.engine.cluster.keys import KeyPair

DESCRIPTION = "Manage the keys by which viewers and agents on different machines recognize each other."
EXAMPLES = """\
vramscope keys new
vramscope keys list
vramscope keys allow "$KEY" --name ann@laptop --role viewer
vramscope keys revoke ann@laptop"""
NOTES = "Secret keys are never printed."
ROLE_WORDS = {
    "viewer": "may read",
    "controller": "may read, acknowledge, mute, ask and advise processes, and attach to them",
    "worker": "may send findings and advise processes",
    "node": "is an agent elsewhere that viewers here trust",
}


def register(subparsers: SubParsers, common: list[ArgumentParser]) -> None:
    parser = add_verb(subparsers, common, "keys", DESCRIPTION, examples=EXAMPLES, notes=NOTES)
    parser.add_argument(
        "action",
        choices=("new", "list", "allow", "revoke"),
        help="make your key, list all keys, allow a key of others, or revoke it",
    )
    parser.add_argument(
        "key", nargs="?", metavar="KEY", help="with allow: a public key; with revoke: its name, or the key"
    )
    parser.add_argument(
        "--name", metavar="NAME", help="with allow: name for the key; for a node, its host name"
    )
    parser.add_argument(
        "--role", choices=tuple(ROLE_WORDS), help="with allow: what the key may do (default viewer)"
    )
    parser.add_argument("--replace", action="store_true", help="with new: replace your key by a new one")


def run(arguments: Namespace) -> int:
    from vramscope.engine.cluster.keys import keys_folder, lock_keys

    _check_words(arguments)
    folder = keys_folder()
    if arguments.action == "list":
        _list(folder)
        return 0
    with lock_keys(folder, lambda sentence: complain(sentence, program="vramscope keys")):
        # Change the keys; the caller holds the lock.
        if arguments.action == "new":
            _make(folder, has_leave=arguments.replace)
        elif arguments.action == "allow":
            _allow(folder, arguments.key, arguments.name, arguments.role or "viewer")
        else:
            _revoke(folder, arguments.key)
    return 0


def _check_words(arguments: Namespace) -> None:
    action = arguments.action
    takes_key = arguments.action in ("allow", "revoke")
    if takes_key and arguments.key is None:
        what = "a public key" if action == "allow" else "a name or a public key"
        raise UsageError(f"keys {action}: expected {what}; `vramscope keys list` lists the keys known here")
    if action == "allow" and arguments.name is None:
        raise UsageError("keys allow needs --name NAME, by which you recognize and revoke the key later")
    stray = {"--name": arguments.name, "--role": arguments.role} if action != "allow" else {}
    stray |= {"--replace": arguments.replace or None} if action != "new" else {}
    stray |= {} if takes_key else {"KEY": arguments.key}
    refuse(stray, f"does not go with `vramscope keys {action}`; see `vramscope keys --help`")


def _make(folder: Path, *, has_leave: bool) -> None:
    from vramscope.engine.cluster.keys import make_key_pair, read_key_pair, save_key_pair

    known = None if has_leave else read_key_pair(folder)
    if known is not None:
        raise UsageError(
            f"you have a key already, {known.public_text}: `vramscope keys list` says how others allow it; "
            "--replace makes a new one, which everybody who allowed this one must allow again"
        )
    pair = make_key_pair()
    save_key_pair(pair, folder)
    _explain(pair)


def _explain(pair: "KeyPair") -> None:
    import getpass
    import socket

    host = socket.gethostname() or "node"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run a user id without a passwd entry
        user = str(os.geteuid())
    print(f"your public key: {pair.public_text}")
    print("Viewers and agents that share this home directory use it already. On other machines, run")
    print("  where an agent runs that you want to watch:")
    print(f"    vramscope keys allow {pair.public_text} --name {user}@{host} --role viewer")
    print("  where a viewer watches an agent of yours on this machine; NAME is the host name typed there:")
    print(f"    vramscope keys allow {pair.public_text} --name {host} --role node")


def _list(folder: Path) -> None:
    from vramscope.engine.cluster.keys import read_allow_list, read_key_pair

    pair = read_key_pair(folder)
    allowed = read_allow_list(folder)
    if pair is None:
        print("you have no key yet: `vramscope keys new` makes one")
    else:
        _explain(pair)
    print("allowed here:" if allowed.keys else "no other keys are allowed here")
    width = max((len(it.name) for it in allowed.keys), default=0)
    for it in allowed.keys:
        print(f"    {it.name:{width}}  {it.role:10}  {it.public.hex()}  {ROLE_WORDS[it.role]}")


def _allow(folder: Path, key: str, name: str, role: str) -> None:
    from vramscope.engine.cluster.keys import (
        KEY_DIGITS,
        ROLES,
        AllowedKey,
        parse_key,
        read_allow_list,
        save_allow_list,
    )

    public = parse_key(key)
    if public is None:
        raise UsageError(
            f"{key}: expected a public key of {KEY_DIGITS} hexadecimal digits; `vramscope keys list` prints "
            "it on the machine where it was made"
        )
    meant = next(it for it in ROLES if it == role)
    save_allow_list(read_allow_list(folder).allow(AllowedKey(meant, public, name)), folder)
    whose = "viewers that you start" if role == "node" else "your agents"
    print(f"{name} {ROLE_WORDS[role]}; {whose} here accept it from now on")


def _revoke(folder: Path, word: str) -> None:
    from vramscope.engine.cluster.keys import read_allow_list, save_allow_list

    rest, gone = read_allow_list(folder).revoke(word)
    if not gone:
        raise UsageError(
            f"{word or repr(word)}: no allowed key has this name or value; see `vramscope keys list`"
        )
    save_allow_list(rest, folder)
    for it in gone:
        print(f"{it.name} ({it.role}) is no longer allowed; its connections are closed")
