"""The runtime folder is this user's own, or it is refused in plain words."""

import errno
import os
import re
from pathlib import Path

import pytest

from vramscope.engine.errors import RuntimeFolderError
from vramscope.engine.paths import (
    SOCKET_PATH_LIMIT_BYTES,
    check_private,
    config_file,
    explain_unwritable,
    locate_runtime_folder,
    open_runtime_folder,
    state_folder,
)

OUR_UID = os.geteuid()


def test_the_variable_beats_the_session_folder(tmp_path: Path) -> None:
    session = tmp_path / "session"
    session.mkdir()
    environ = {"VRAMSCOPE_RUNTIME_DIR": "/tmp/chosen", "XDG_RUNTIME_DIR": str(session)}
    assert locate_runtime_folder(environ) == Path("/tmp/chosen")


def test_the_session_folder_of_this_user_is_taken(private_environment: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(private_environment / "run")}
    assert locate_runtime_folder(environ) == private_environment / "run" / "vramscope"


def test_the_session_folder_that_su_left_from_another_user_is_passed_over(private_environment: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(private_environment / "run")}
    assert locate_runtime_folder(environ, uid=OUR_UID + 1) == Path(f"/tmp/vramscope-{OUR_UID + 1}")


@pytest.mark.parametrize("session", ["", "relative/run", "/nowhere/at/all"])
def test_without_a_session_folder_each_user_has_one_below_tmp(session: str) -> None:
    environ = {"XDG_RUNTIME_DIR": session}
    assert locate_runtime_folder(environ, uid=1) == Path("/tmp/vramscope-1")
    assert locate_runtime_folder(environ, uid=2) == Path("/tmp/vramscope-2")


def test_a_path_too_long_for_sockets_leads_every_process_to_the_same_short_folder() -> None:
    environ = {"VRAMSCOPE_RUNTIME_DIR": "/tmp/" + "long/" * 30}
    folder = locate_runtime_folder(environ, uid=7)
    assert folder == locate_runtime_folder(environ, uid=7)
    assert folder.parent == Path("/tmp/vramscope-7")
    assert len(bytes(folder / "reports.sock")) <= SOCKET_PATH_LIMIT_BYTES
    other = {"VRAMSCOPE_RUNTIME_DIR": "/tmp/" + "long/" * 31}
    assert locate_runtime_folder(other, uid=7) != folder


def test_the_folder_is_made_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = open_runtime_folder(tmp_path / "run")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_opening_twice_finds_the_same_folder(tmp_path: Path) -> None:
    assert open_runtime_folder(tmp_path / "run") == open_runtime_folder(tmp_path / "run")


def test_a_folder_that_others_may_enter_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o750)
    with pytest.raises(RuntimeFolderError, match=re.escape("mode 0750, expected 0700): run chmod 700")):
        open_runtime_folder(folder)


def test_a_folder_that_somebody_else_made_first_is_refused(tmp_path: Path) -> None:
    folder = open_runtime_folder(tmp_path / "run")
    with pytest.raises(RuntimeFolderError, match=f"belongs to user id {OUR_UID}, not to you"):
        check_private(folder, uid=OUR_UID + 1)


def test_a_link_is_refused_even_to_a_folder_of_our_own(tmp_path: Path) -> None:
    open_runtime_folder(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(RuntimeFolderError, match="symbolic link"):
        open_runtime_folder(tmp_path / "link")


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(RuntimeFolderError, match="not a folder"):
        open_runtime_folder(tmp_path / "run")


def test_a_folder_that_cannot_be_made_is_told_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeFolderError, match=r"cannot create the runtime folder .*VRAMSCOPE_RUNTIME_DIR"):
        open_runtime_folder(tmp_path / "file" / "run")


def test_the_refusal_of_a_folder_is_a_matter_of_permission() -> None:
    assert RuntimeFolderError("").exit_code == 6


def test_settings_and_state_follow_the_desktop_conventions() -> None:
    assert config_file({"XDG_CONFIG_HOME": "/c", "HOME": "/h"}) == Path("/c/vramscope/config.toml")
    assert config_file({"HOME": "/h"}) == Path("/h/.config/vramscope/config.toml")
    assert state_folder({"HOME": "/h", "XDG_STATE_HOME": "relative"}) == Path("/h/.local/state/vramscope")


def test_a_user_without_a_home_still_has_a_place() -> None:
    uid = os.geteuid()
    assert config_file({}).is_relative_to(f"/tmp/vramscope-{uid}")
    assert state_folder({}).is_relative_to(f"/tmp/vramscope-{uid}")


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(errno.ENOSPC, "make room"), (errno.EISDIR, "remove that folder"), (errno.EROFS, "make it writable")],
)
def test_what_cannot_be_written_is_told_with_what_helps(code: int, remedy: str) -> None:
    told = explain_unwritable(Path("/run/v/hub.log"), OSError(code, "why"))
    assert (
        told
        == f"/run/v/hub.log cannot be written: why; {remedy}, or set VRAMSCOPE_RUNTIME_DIR to another folder"
    )
