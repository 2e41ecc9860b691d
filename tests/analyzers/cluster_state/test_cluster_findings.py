"""Findings across nodes: opened once by forecasts alone, held while a node is lost, closed at the end."""

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.cluster_state import (
    CLUSTER_DIVERGENCE,
    CLUSTER_IMBALANCE,
    CLUSTER_OOM,
    STAGE_SKEW,
    ClusterState,
)
from vramscope.engine.model import Finding, RankCoordinates, RiskLevel
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import Snapshot

from .clusters import Word, Words, follow, make_node, watch

GRAVE = Word("high", 300.0)


def _nodes(words: Words, at_s: float, nodes: int = 2, stages: int = 1) -> list[Snapshot]:
    return [make_node(number, at_s, words, nodes=nodes, stages=stages) for number in range(nodes)]


def test_a_job_near_an_error_is_one_finding_that_names_the_first_rank_and_closes_when_all_is_well() -> None:
    state = ClusterState()
    words = {1: Word("high", 500.0), 3: Word("critical", 90.0)}
    opened = watch(
        state,
        lambda at_s: _nodes(
            {n: it._replace(left_s=it.left_s - at_s) for n, it in words.items() if it.left_s}, at_s
        ),
        40,
    )
    found, *later = opened
    assert [(it.id, it.kind, it.is_open) for it in later] == [(found.id, CLUSTER_OOM, True)] * 3
    assert "out of memory in 54 s" in later[-1].title, "it is told anew as time goes by"
    assert found.title == (
        "Job run-0 (4 ranks on 2 nodes) out of memory in 1 m 18 s: rank 3 (GPU 1 of n1) first, "
        "then 1 more rank on n0"
    )
    assert (found.severity, found.node) == ("critical", "n1")
    closed = watch(state, lambda at_s: _nodes({}, at_s), 40, since_s=40)
    assert [(it.id, it.is_open) for it in closed] == [(found.id, False)]


def test_full_devices_without_a_forecast_and_one_odd_word_are_no_finding() -> None:
    full = dict.fromkeys(range(4), Word(floor_gib=75, peak_gib=78, reserved_gib=78.5))
    state = ClusterState()
    assert watch(state, lambda at_s: _nodes(full, at_s), 60) == []
    assert watch(state, lambda at_s: _nodes({0: GRAVE} if at_s == 70 else {}, at_s), 30, since_s=60) == []


def test_of_one_node_one_rank_is_left_to_its_own_agent() -> None:
    assert watch(ClusterState(), lambda at_s: _nodes({1: GRAVE}, at_s, nodes=1), 30) == []


def test_the_last_word_of_a_lost_node_opens_nothing() -> None:
    lost = make_node(1, 2.0, {3: GRAVE}, is_lost=True)
    assert watch(ClusterState(), lambda at_s: [make_node(0, at_s, {}), lost], 60) == []


def test_a_lost_node_is_told_and_holds_the_finding_until_it_is_forgotten() -> None:
    state = ClusterState()
    [found] = watch(state, lambda at_s: _nodes({3: GRAVE}, at_s), 30)
    lost = make_node(1, 29.0, {3: GRAVE}, is_lost=True)
    told = watch(state, lambda at_s: [make_node(0, at_s, {}), lost], 500, since_s=30)
    assert all(it.id == found.id and it.is_open for it in told)
    assert told[-1].title.endswith("rank 3 (GPU 1 of n1, by its last report) first; visible: 1 of 2 nodes")
    assert state.picture.coverage == "1 of 2 nodes"
    closed = watch(state, lambda at_s: [make_node(0, at_s, {}), lost], 200, since_s=530)
    assert [(it.id, it.is_open) for it in closed] == [(found.id, False)]


def test_a_rank_that_grows_away_from_peers_on_other_nodes_is_named_though_a_node_falls_silent() -> None:
    state = ClusterState()

    def tell(at_s: float) -> list[Snapshot]:
        words = {5: Word(floor_gib=30 + at_s / 30, peak_gib=48)}
        nodes = [make_node(number, at_s, words, nodes=4) for number in range(4)]
        return [make_node(0, 100.0, words, nodes=4, is_lost=True), *nodes[1:]] if at_s > 100 else nodes

    found = [it for it in watch(state, tell, 400) if it.kind == CLUSTER_DIVERGENCE]
    assert found
    assert {it.id for it in found} == {found[0].id}
    assert found[0].title.startswith("rank 5 grows away from its 7 peers first")
    assert (found[0].node, found[0].device_uuid) == ("n2", "GPU-5")
    [job] = state.picture.jobs
    assert job.first_diverging is not None
    assert (job.first_diverging.name, job.first_diverging.place) == ("rank 5", "GPU 1 of n2")


def test_a_stage_limits_its_job_where_an_error_is_foreseen_there_and_is_held_against_the_plan() -> None:
    state = ClusterState(planned=(40 * GIB, 40 * GIB))
    heavy = Word(floor_gib=60, peak_gib=70, reserved_gib=75)
    calm = heavy._replace(level="medium", left_s=3000.0)
    assert watch(state, lambda at_s: _nodes({0: heavy, 1: calm}, at_s, stages=2), 30) == []
    [job] = state.picture.jobs
    assert job.stage_skew is not None
    assert (round(job.stage_skew, 3), job.bottleneck_stages, job.planned_skew) == (
        round(70 / 55, 3),
        (0,),
        1.0,
    )
    grave = heavy._replace(level="high", left_s=300.0)
    found = watch(state, lambda at_s: _nodes({0: heavy, 1: grave}, at_s, stages=2), 30, since_s=30)
    titles = {it.kind: it.title for it in found}
    assert set(titles) == {CLUSTER_OOM, STAGE_SKEW, CLUSTER_IMBALANCE}
    assert titles[STAGE_SKEW] == (
        "Stage 0 limits job run-0 (4 ranks on 2 nodes): a rank of it peaks at 70.0 GiB, those of all other "
        "stages at 40.0 GiB at most; that is 30.0 GiB above its plan"
    )
    assert titles[CLUSTER_IMBALANCE].startswith(
        "n0 limits job run-0 (4 ranks on 2 nodes): its devices are 95 % full"
    )


LEVELS: tuple[RiskLevel, ...] = ("low", "medium", "high", "critical")
NO_TIMES = st.sampled_from([float("nan"), float("inf"), -float("inf"), 1e308])


@given(NO_TIMES, NO_TIMES, st.sampled_from([-1, 0, 2**63 - 1]))
def test_a_node_that_tells_nonsense_is_survived(time_s: float, left_s: float, number: int) -> None:
    state = ClusterState(planned=(GIB,))
    for at_s in range(16):
        odd = make_node(1, float(at_s), {2: Word("critical", left_s), 3: Word("high", 60.0)})
        assert odd.sample is not None
        place = RankCoordinates(number, number, pp=number)
        ranks = tuple(msgspec.structs.replace(it, coordinates=place) for it in odd.sample.ranks)
        sample = msgspec.structs.replace(odd.sample, time_s=time_s, ranks=ranks)
        follow(
            state, [make_node(0, float(at_s), {}), msgspec.structs.replace(odd, sample=sample)], float(at_s)
        )
    assert [it.node for it in state.picture.nodes] == ["n0", "n1"]


WORDS = st.dictionaries(
    st.integers(0, 5), st.tuples(st.sampled_from(LEVELS), st.integers(1, 9), st.integers(20, 60))
).map(
    lambda drawn: {
        rank: Word(level, 100.0 * soon + rank + 0.25, float(floor_gib))
        for rank, (level, soon, floor_gib) in drawn.items()
    }
)
"""No two ranks are foreseen to fail at the same moment."""


def _run(words: Words, orders: Sequence[Sequence[int]], shifts: dict[int, float]) -> tuple[object, ...]:
    state, found = ClusterState(), list[Finding]()
    for at_s, order in enumerate(orders):
        nodes = [make_node(it, float(at_s), words, nodes=3, clock_s=shifts.get(it, 0.0)) for it in order]
        found += follow(state, nodes, float(at_s))
    picture = msgspec.to_builtins(state.picture)
    for job in picture["jobs"]:
        for rank in job["ranks"]:
            del rank["key"], rank["age_s"], rank["oom_s"]  # told by the node's clock, or by when it came
    return picture, [(it.id, it.severity, it.title, it.is_open) for it in found]


@given(WORDS, st.lists(st.permutations([0, 1, 2]), min_size=25, max_size=25))
def test_the_order_in_which_nodes_tell_changes_nothing(words: Words, orders: list[list[int]]) -> None:
    assert _run(words, orders, {}) == _run(words, [[0, 1, 2]] * 25, {})


@given(WORDS, st.integers(0, 2), st.sampled_from([-3600.0, 3600.0]))
def test_a_clock_that_is_an_hour_off_changes_nothing(words: Words, node: int, clock_s: float) -> None:
    orders = [[0, 1, 2]] * 25
    assert _run(words, orders, {node: clock_s}) == _run(words, orders, {})


@given(WORDS)
def test_a_node_that_is_lost_changes_nothing_of_the_others(words: Words) -> None:
    def look(is_lost: bool) -> list[object]:
        state = ClusterState()
        for at_s in range(20):
            nodes = [make_node(it, float(at_s), words, nodes=3) for it in (0, 1)]
            third = make_node(2, min(at_s, 5.0), words, nodes=3, is_lost=is_lost and at_s > 5)
            follow(state, [*nodes, third], float(at_s))
        known = [rank for job in state.picture.jobs for rank in job.ranks if rank.key.node != "n2"]
        return [*known, *(it for it in state.picture.nodes if it.node != "n2")]

    assert look(is_lost=True) == look(is_lost=False)


def test_a_peak_between_two_comparisons_is_what_its_stage_needed() -> None:
    state = ClusterState()
    spike = {2: Word(peak_gib=70)}
    watch(state, lambda at_s: _nodes(spike if at_s == 8 else {}, at_s, stages=2), 20)
    told = [(it.stage, it.ranks, it.allocated_bytes) for it in state.picture.measured.stages]
    assert told == [(0, 2, 40 * GIB), (1, 2, 70 * GIB)]


def test_of_hundreds_of_nodes_conclusions_are_drawn_more_seldom() -> None:
    state, nodes = ClusterState(), 300
    words = dict.fromkeys(range(0, 2 * nodes, 2), GRAVE)
    found = watch(state, lambda at_s: _nodes(words, at_s, nodes=nodes), 20)
    assert state.period_s == 4.0
    assert [it.kind for it in found if it.is_open][:1] == [CLUSTER_OOM]
    assert len(state.picture.jobs[0].ranks) == 2 * nodes


def test_conclusions_go_on_when_our_clock_is_set_back() -> None:
    state = ClusterState()
    watch(state, lambda at_s: _nodes({}, at_s), 4, since_s=10_000)
    found = watch(state, lambda at_s: _nodes({0: GRAVE, 2: GRAVE}, at_s), 20)
    assert [it.kind for it in found if it.is_open] == [CLUSTER_OOM]
