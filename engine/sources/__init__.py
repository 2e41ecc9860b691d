"""Where figures come from: NVML devices, the host, traces."""
