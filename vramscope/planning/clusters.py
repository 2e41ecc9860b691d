"""`read_cluster`: a cluster from a short form."""

from vramscope.analyzers.cluster_graph import Cluster, parse_short_form


def read_cluster(cluster: str) -> Cluster:
    """Return the cluster that a text describes: a short form such as `128x8xh100`.

    Raises:
        UsageError: It is none that can be understood.
    """
    return parse_short_form(cluster)
