"""Keys that Kubernetes mounts: read-only, of root, behind links; taken where no other user may read them."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from vramscope.engine.cluster.keys import keys_folder, make_key_pair, save_key_pair

from ..cli.running import environment
from ..components import require

USER, GROUP = 65532, 65533
"""Of the pod: `runAsUser` and `fsGroup`."""
MOUNT = """
set -e
mount -t tmpfs tmpfs {folder}
mkdir -m 755 {folder}/..2026
cp {key} {folder}/..2026/own.key
chown {owner} {folder}/..2026/own.key
chmod {mode} {folder}/..2026/own.key
ln -s ..2026 {folder}/..data
ln -s {target} {folder}/own.key
mount -o remount,{access} {folder}
exec {setpriv} --reuid {user} --regid {user} --groups {group} {python} -m vramscope keys list
"""


def _list_keys(folder: Path, **given: str) -> "subprocess.CompletedProcess[str]":
    """List the keys of a Secret as the user of a pod, in a mount namespace of its own."""
    words = {"owner": f"0:{GROUP}", "mode": "440", "target": "..data/own.key", "access": "ro", **given}
    secret = folder / "config/vramscope/keys"
    secret.mkdir(parents=True, exist_ok=True)
    for place in (folder, secret.parent, secret.parent.parent):
        place.chmod(0o755)
    script = MOUNT.format(
        folder=shlex.quote(str(secret)),
        key=shlex.quote(str(keys_folder() / "own.key")),
        setpriv=require("setpriv"),
        user=USER,
        group=GROUP,
        python=shlex.quote(sys.executable),
        **words,
    )
    return subprocess.run(
        [require("unshare"), "--mount", "sh", "-c", script],
        env=environment(XDG_CONFIG_HOME=str(folder / "config"), HOME=str(folder)),
        cwd="/",
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.fixture
def public_key() -> str:
    """Return the public key of the pair that the Secret holds."""
    if os.geteuid() or subprocess.run([require("unshare"), "--mount", "true"], check=False).returncode:
        pytest.skip("mounting needs root and mount namespaces")
    as_other = [require("setpriv"), "--reuid", str(USER), "--clear-groups", sys.executable, "-c", ""]
    if subprocess.run(as_other, check=False, capture_output=True).returncode:
        pytest.skip("another user may not run this Python")
    pair = make_key_pair()
    save_key_pair(pair, keys_folder())
    return pair.public_text


def test_the_key_of_a_secret_is_taken_where_only_the_pod_may_read_it(
    public_key: str, private_environment: Path
) -> None:
    done = _list_keys(private_environment)
    assert (done.returncode, public_key in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"mode": "444"}, "mode 0444, expected 0400, or 0440 for a group of yours"),
        ({"owner": f"{USER}:{GROUP}"}, "is open to other users (mode 0440"),
        ({"owner": f"{USER - 1}:{GROUP}"}, f"belongs to user id {USER - 1}"),
        ({"target": "../key"}, "expected a file of your own"),
        ({"access": "rw"}, "expected a file of your own"),
    ],
    ids=lambda it: "-".join(it) if isinstance(it, dict) else None,
)
def test_what_others_could_read_or_replace_is_refused(
    given: dict[str, str], told: str, public_key: str, private_environment: Path
) -> None:
    done = _list_keys(private_environment, **given)
    assert done.returncode == 2
    assert told in done.stderr
    assert public_key not in done.stdout
