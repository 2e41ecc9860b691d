"""What differs between two runs, and between two memory snapshots, as text and JSON."""
