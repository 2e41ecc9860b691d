"""What `vramscope guard` prints on stderr: a plan without effect, and a hook that fails."""

import msgspec
import pytest

from tests.analyzers.cluster_state.clusters import make_node, watch
from vramscope.analyzers.cluster_state import ClusterState
from vramscope.cli.verbs.guard import GRACE_S, HookNotices, PlanNotices
from vramscope.engine.model import HookStatus, RankCoordinates
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import Snapshot

PLANNED = (61 * GIB, 58 * GIB)


def _hide_stages(snapshot: Snapshot) -> Snapshot:
    """Return a node as it is before its program has laid out the model."""
    sample = snapshot.sample
    assert sample is not None
    ranks = []
    for it in sample.ranks:
        assert it.coordinates is not None
        place = RankCoordinates(it.coordinates.rank, it.coordinates.world_size)
        ranks.append(msgspec.structs.replace(it, coordinates=place))
    return msgspec.structs.replace(snapshot, sample=msgspec.structs.replace(sample, ranks=tuple(ranks)))


def test_a_plan_without_stages_is_told_once_and_again_when_they_appear(
    capsys: pytest.CaptureFixture[str],
) -> None:
    state, notices = ClusterState(PLANNED), PlanNotices(PLANNED)
    told: list[str] = []
    for at_s in range(120):
        nodes = [make_node(number, float(at_s), {}, stages=2, job="gpt") for number in (0, 1)]
        has_stages = at_s >= 80
        watch(state, lambda _: nodes if has_stages else map(_hide_stages, nodes), 1, since_s=at_s)  # noqa: B023
        notices.note(state.picture)
        said = capsys.readouterr().err
        told += said.splitlines()
        assert not said or at_s >= GRACE_S
    assert len(told) == 2
    assert "--planned has no effect: no job reports its pipeline stages" in told[0]
    assert "job gpt (4 ranks on 2 nodes) reports its pipeline stages now" in told[1]


def test_a_plan_of_fewer_stages_than_the_job_has_is_told_at_the_end_at_the_latest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    state, notices = ClusterState(PLANNED[:1]), PlanNotices(PLANNED[:1])
    watch(state, lambda at_s: [make_node(it, at_s, {}, stages=2, job="gpt") for it in (0, 1)], 20)
    notices.note(state.picture)
    assert not capsys.readouterr().err
    notices.note(state.picture, is_last=True)
    assert "it has 1 stage, and job gpt has stage 1; give one size for each stage" in capsys.readouterr().err


def test_why_a_hook_fails_is_told_once_until_it_works_again(capsys: pytest.CaptureFixture[str]) -> None:
    notices, works = HookNotices(), HookStatus("command", "tell", 1, 0, 0, 0, None)
    fails = msgspec.structs.replace(works, failed=1, reason="command: tell ended with status 3")
    for status in (works, fails, fails, works, fails):
        notices.note([status])
    said = capsys.readouterr().err.splitlines()
    assert said == ["vramscope: alert not delivered: command: tell ended with status 3"] * 2
