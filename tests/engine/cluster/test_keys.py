"""Keys of a user and the list of those that are allowed: what is kept, refused, and never shown."""

import errno
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from vramscope.cli.application import run
from vramscope.engine.cluster.keys import (
    AllowedKey,
    AllowList,
    keys_folder,
    lock_keys,
    make_key_pair,
    read_allow_list,
    read_key_pair,
    save_allow_list,
    save_key_pair,
)
from vramscope.engine.errors import InputFileError, OutputFileError, UsageError

ONE, OTHER = bytes(range(32)), bytes(32)


def test_keys_are_made_allowed_listed_and_revoked_and_no_secret_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["keys", "new"]) == 0
    pair = read_key_pair(keys_folder())
    assert pair is not None
    assert run(["keys", "new"]) == 2  # a key that others know is not replaced by accident
    assert run(["keys", "allow", ONE.hex(), "--name", "bob@laptop", "--role", "controller"]) == 0
    assert run(["keys", "allow", OTHER.hex(), "--name", "n*", "--role", "node"]) == 0
    assert run(["keys", "list"]) == 0
    assert read_allow_list(keys_folder()).role_of(ONE) == "controller"
    assert run(["keys", "revoke", "bob@laptop"]) == 0
    allowed = read_allow_list(keys_folder())
    assert allowed.role_of(ONE) is None
    assert allowed.key_of_node("n2", "n2:5757") == OTHER
    told = "".join(capsys.readouterr())
    assert pair.public_text in told
    assert f"vramscope keys allow {pair.public_text}" in told
    assert pair.secret.hex() not in told
    assert pair.secret.hex() not in repr(pair)
    assert {path.stat().st_mode & 0o777 for path in keys_folder().iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["allow"], "expected a public key"),
        (["allow", "11", "--name", "bob"], "64 hexadecimal digits"),
        (["allow", ONE.hex()], "--name"),
        (["allow", ONE.hex(), "--name", "a b"], "letters, digits"),
        (["revoke", "nobody"], "no allowed key has this name"),
        (["list", "--role", "viewer"], "does not go with"),
    ],
)
def test_a_mistake_is_told_in_words(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["keys", *words]) == 2
    assert expected in capsys.readouterr().err


def test_keys_that_are_changed_at_once_by_several_are_all_kept() -> None:
    holders = [(index.to_bytes(32).hex(), f"user{index}") for index in range(1, 9)]
    words = [sys.executable, "-m", "vramscope", "keys", "allow"]
    with lock_keys(keys_folder(), pytest.fail):
        typed = [subprocess.Popen([*words, key, "--name", name]) for key, name in holders]
        with pytest.raises(OutputFileError, match="another `vramscope keys`"), _at_once():
            pytest.fail("the lock was had twice")
    assert [process.wait(60) for process in typed] == [0] * len(typed)
    assert {it.name for it in read_allow_list(keys_folder()).keys} == {name for _, name in holders}


def _at_once() -> AbstractContextManager[None]:
    return lock_keys(keys_folder(), pytest.fail, within_s=0.0)


def test_a_file_system_without_locks_is_told_and_keys_are_changed_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    assert run(["keys", "allow", ONE.hex(), "--name", "bob"]) == 0
    assert "has no locks: run only one `vramscope keys` at a time" in capsys.readouterr().err
    assert read_allow_list(keys_folder()).role_of(ONE) == "viewer"


def test_a_name_means_one_key_and_a_key_has_one_role() -> None:
    allowed = AllowList().allow(AllowedKey("viewer", ONE, "bob"))
    with pytest.raises(UsageError, match="names another key"):
        allowed.allow(AllowedKey("viewer", OTHER, "bob"))
    assert allowed.allow(AllowedKey("worker", ONE, "bob")).role_of(ONE) == "worker"
    assert allowed.allow(AllowedKey("node", ONE, "n1")).role_of(ONE) == "viewer"  # trusted and allowed differ
    nodes = AllowList().allow(AllowedKey("node", ONE, "n1")).allow(AllowedKey("node", ONE, "n2"))
    moved = nodes.allow(AllowedKey("node", OTHER, "n1"))  # installed anew
    assert (moved.key_of_node("n1"), moved.key_of_node("n2")) == (OTHER, ONE)
    assert AllowList([AllowedKey("node", OTHER, "n1")]).role_of(OTHER) is None


def test_what_others_could_read_or_write_is_refused_with_what_to_do(private_environment: Path) -> None:
    folder = keys_folder()
    path = save_key_pair(make_key_pair(), folder)
    path.chmod(0o640)
    with pytest.raises(InputFileError, match=r"own\.key.*mode 0640, expected 0600.*chmod 600"):
        read_key_pair(folder)
    path.chmod(0o600)
    folder.chmod(0o755)
    with pytest.raises(InputFileError, match="chmod 700"):
        read_key_pair(folder)
    with pytest.raises(InputFileError, match="chmod 700"):
        save_allow_list(AllowList(), folder)
    folder.chmod(0o700)
    path.rename(private_environment / "elsewhere")
    path.symlink_to(private_environment / "elsewhere")
    with pytest.raises(InputFileError, match="a file of your own"):
        read_key_pair(folder)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("viewer 11", "allowed:2: expected three words"),
        (f"king {'11' * 32} bob", "allowed:2: role 'king': expected viewer, controller, worker, node"),
        ("viewer xx bob", "allowed:2: expected a public key"),
    ],
)
def test_a_line_that_is_wrong_is_told_by_its_place(line: str, expected: str) -> None:
    save_allow_list(AllowList(), keys_folder())
    with (keys_folder() / "allowed").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputFileError, match=expected):
        read_allow_list(keys_folder())
