"""Keys that Kubernetes mounts: read-only, of root, behind links; taken where no other user may read them."""

from pathlib import Path

import pytest

from vramscope.engine.cluster.keys import keys_folder, make_key_pair, save_key_pair

from ...deployment.pod import Secret, read_field, skip_without_mounts, start_in_pod

GROUP = read_field("fsGroup")


@pytest.fixture(scope="module", autouse=True)
def _mounts() -> None:
    skip_without_mounts(Path(__file__))


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        (Secret(), None),
        (Secret(mode="444"), "mode 0444, expected 0400, or 0440 for a group of yours"),
        (Secret(owner=f"{read_field('runAsUser')}:{GROUP}"), "is open to other users (mode 0440"),
        (Secret(owner=f"65500:{GROUP}"), "belongs to user id 65500"),
        (Secret(target="../key"), "expected a file of your own"),
        (Secret(access="rw"), "expected a file of your own"),
    ],
    ids=["as-it-is", "for-all", "of-the-user", "of-another", "leads-away", "writable"],
)
def test_a_key_is_taken_only_where_no_other_user_reads_or_replaces_it(
    secret: Secret, told: str | None
) -> None:
    pair = make_key_pair()
    path: Path = save_key_pair(pair, keys_folder())
    said, complained = start_in_pod(path, "keys", "list", secret=secret).communicate(timeout=60)
    assert (pair.public_text in said) is (told is None)
    assert (told or "") in complained
