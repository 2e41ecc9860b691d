"""Memory by module: trees of bytes out of a profile, where they lie in a drawing, what figures differ in."""

from .breakdown import Breakdown, KindBreakdown, make_breakdown
from .comparison import BreakdownComparison, ComparedNode, compare_profiles, compare_trees
from .differences import explain_differences
from .icicle_layout import IcicleCell, lay_out_icicle
from .points import make_point_tree
from .tree import Basis, BreakdownNode, choose_basis, find_node, size_of

__all__ = [
    "Basis",
    "Breakdown",
    "BreakdownComparison",
    "BreakdownNode",
    "ComparedNode",
    "IcicleCell",
    "KindBreakdown",
    "choose_basis",
    "compare_profiles",
    "compare_trees",
    "explain_differences",
    "find_node",
    "lay_out_icicle",
    "make_breakdown",
    "make_point_tree",
    "size_of",
]
