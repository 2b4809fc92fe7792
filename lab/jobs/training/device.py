"""The device of the tests' scripts: the GPU, where there is one; all workers of a test share it.

`WORKERS` is how many workers a node may have whose script takes a GPU for each, as any user's does.
"""

import os
from typing import Final

import torch

WORKERS: Final = min(2, torch.cuda.device_count()) or 2
DEVICE: Final = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
if DEVICE.type == "cuda":  # NCCL refuses two workers of one host on one GPU
    os.environ |= {"NCCL_HOSTID": str(os.getpid()), "NCCL_SOCKET_IFNAME": "lo"}
