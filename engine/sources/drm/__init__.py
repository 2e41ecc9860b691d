"""GPUs of Linux's Direct Rendering Manager (DRM), by what the kernel writes to /sys and /proc."""
