"""Without an agent this process assesses for itself, and says so in the same words."""

from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.viewer.this_node import LocalNode

from ...engine.agent.assessors import UsedAssessor
from ...engine.agent.hubs import make_sample


def test_the_newest_assessment_of_each_device_is_told_until_it_is_gone() -> None:
    node = LocalNode(interval_s=1.0, memory_interval_s=0.1)
    node._host = AnalyzerHost([UsedAssessor()])
    first, second, again = (
        node.analyze(make_sample(seq, used_gib=gib)).assessments
        for seq, gib in ((1, 20.0), (2, 60.0), (3, 61.0))
    )
    assert first is not None
    assert [it.level for it in first] == ["low"]
    assert second is not None
    assert [it.level for it in second] == ["high"]
    assert again is None, "nothing has changed"
    assert node.assessments.all() == second
    other = node.analyze(make_sample(100, uuid="GPU-b")).assessments
    assert other is not None
    assert other[0].device_uuid == "GPU-b"
