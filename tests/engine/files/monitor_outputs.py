"""What other monitors print, in the layouts of their releases."""

import json

TABLE = """\
Mon Jun 23 10:30:{second:02d} 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   34C    P0             62W /  400W |    {used}MiB /  81920MiB |     98%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0F:00.0 Off |                   On |
| 30%   41C    P0             80W /  400W |    1024MiB /  81920MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
|   2  ERR!                           On  |   00000000:47:00.0 Off |                 ERR! |
|ERR!  ERR! ERR!             N/A /  ERR!  |                   ERR! |     ERR!        ERR! |
|                                         |                        |                 ERR! |
+-----------------------------------------+------------------------+----------------------+
+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
|  1    1   0   0  |              37MiB / 40192MiB    | 42      0 |  3   0    2    0    0 |
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|    0   N/A  N/A     12345      C   python train.py                             2039MiB  |
+-----------------------------------------------------------------------------------------+
"""

DMON = """\
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec     fb   bar1   ccpm
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %      %     MB     MB     MB
 20250623   10:30:00      0     62     34     45     98      6      0      0   2048      3      0
 20250623   10:30:00      1     80     41      -      -      -      -      -      -      -      -

 20250623   10:30:01      0     63     34     45     97      6      0      0   3072      3      0
 20250623   10:30:01      1     81     41      -      -      -      -      -   1024      3      -
"""

PMON = """\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command
# Idx           #    C/G      %      %      %      %      %      %     MB     MB    name
    0      12345     C     98     45      -      -      -      -   2048      0    python train.py
    0      12399     C      1      0      -      -      -      -   1024      0    python eval.py
    1          -     -      -      -      -      -      -      -      -      -    -
    0      12345     C     98     45      -      -      -      -   4096      0    python train.py
    1          -     -      -      -      -      -      -      -      -      -    -
"""


def gpustat(second: int, used_mib: int | None = 2048, host: str = "node1") -> str:
    """Return what `gpustat --json` prints of two GPUs."""
    first = {
        "index": 0,
        "uuid": f"GPU-1111aaaa-000{host[-1]}",
        "name": "NVIDIA A100-SXM4-80GB",
        "temperature.gpu": 34,
        "fan.speed": None,
        "utilization.gpu": 98,
        "power.draw": 62,
        "enforced.power.limit": 400,
        "memory.used": used_mib,
        "memory.total": 81920,
        "processes": [{"username": "user1", "command": "python", "gpu_memory_usage": 2039, "pid": 12345}],
    }
    lost = {"index": 1, "name": "((GPU is lost))", "processes": None}
    query = {
        "hostname": host,
        "driver_version": "550.54.15",
        "query_time": f"2025-06-23T10:30:{second:02d}.250000",
        "gpus": [first, lost],
    }
    return json.dumps(query, indent=4) + "\n"


def all_smi(second: int, used_bytes: int = 2 << 30, host: str = "node1") -> str:
    """Return a frame of `all-smi record`."""
    gpu = {
        "uuid": f"GPU-1111aaaa-000{host[-1]}",
        "time": f"2025-06-23 10:30:{second:02d}",
        "name": "NVIDIA A100-SXM4-80GB",
        "device_type": "GPU",
        "hostname": host,
        "instance": host,
        "utilization": 98.0,
        "temperature": 34,
        "used_memory": used_bytes,
        "total_memory": 80 << 30,
        "frequency": 1410,
        "power_consumption": 62.5,
        "detail": {},
    }
    frame = {"schema": 1, "timestamp": f"2025-06-23T10:30:{second:02d}Z", "hostname": host, "gpus": [gpu]}
    return json.dumps(frame, separators=(",", ":")) + "\n"


ALL_SMI_HEADER = '{"schema":1,"header":true,"interval_ms":1000,"hosts":["node1"]}\n'
