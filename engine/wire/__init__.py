"""What travels between processes: the envelope, its bodies, their bounds, and where sockets are."""
