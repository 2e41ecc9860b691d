"""Sources of values: NVML devices, the host, processes."""
