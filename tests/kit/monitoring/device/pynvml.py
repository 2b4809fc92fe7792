"""A GPU for machines without: what agents import as NVIDIA's library when this folder is on PYTHONPATH."""

import time
from types import SimpleNamespace

GIB = 1 << 30


class NVMLError(Exception):
    """No call fails."""


def nvmlInit() -> None:
    """Nothing has to be loaded."""


def nvmlDeviceGetCount() -> int:
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    """Return 70 to 95 percent."""
    return SimpleNamespace(gpu=70 + int(time.time()) * 7 % 26)


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(used=31 * GIB, total=80 * GIB)
