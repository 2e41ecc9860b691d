"""The processes of a node that serve others: the hub and its workers, over ZeroMQ."""
