"""Time series of memory, from nvidia-smi, CSV and the logs of other tools."""
