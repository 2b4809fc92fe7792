"""How busy the NVIDIA devices of this node are, and their memory, by NVML: the library of the extra `gpu`.

Where there is no library, no driver or no device, nothing is said: 0 would be a lie. A driver may take long
to answer, or for ever, so a thread asks it; what it said last counts for a few seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from statistics import fmean
from typing import Any, Final, Protocol

from elasticjob.api.rpc.nodes import Gpus

log = logging.getLogger("elasticjob.agent")

EVERY: Final = 1.0  # seconds between two looks
STALE: Final = 5.0  # seconds after which a reading says nothing about now
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
NO_GPU: Final = frozenset({9, 12})
"""NVML's codes for a machine without: no driver is loaded, no library of the driver is installed."""


class Nvml(Protocol):
    """The part of the module pynvml that is used here."""

    @property
    def NVMLError(self) -> type[Exception]: ...
    def nvmlInit(self) -> object: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...


def library() -> Nvml | None:
    """Return NVML's library; None where the extra is not installed."""
    try:
        import pynvml  # by the thread: it takes a while
    except ImportError:
        return None
    found: Nvml = pynvml
    return found


class Devices:
    """The devices of this node; `visible` is the value of CUDA_VISIBLE_DEVICES, None if it is not set."""

    def __init__(self, visible: str | None, nvml: Callable[[], Nvml | None] = library) -> None:
        self._visible, self._find = visible, nvml
        self._said: tuple[float, Gpus] | None = None
        self._trouble = ""

    def start(self) -> None:
        """Read them from now on, until this process ends."""
        threading.Thread(target=self._run, name="gpus", daemon=True).start()

    def at(self, now: float) -> Gpus | None:
        """Return the last reading; None without one that is of now (time.monotonic)."""
        said = self._said
        return said[1] if said and now - said[0] <= STALE else None

    def _run(self) -> None:
        nvml = self._find()
        if nvml is None:
            return
        while self.look(nvml):
            time.sleep(EVERY)

    def look(self, nvml: Nvml) -> bool:
        """Read all devices once; return whether there are some, so that another look makes sense."""
        try:
            nvml.nvmlInit()  # counts calls only, after the first
            found = read(nvml, self._visible)
        except nvml.NVMLError as error:
            return self._failed(error)
        self._trouble = ""
        if found is None:
            return False
        self._said = time.monotonic(), found
        return True

    def _failed(self, error: Exception) -> bool:
        """Tell of an error once, until there is another; return whether there may be devices."""
        if getattr(error, "value", None) in NO_GPU:
            return False
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.warning("the GPUs of this node cannot be read: %s", error)
        return True


def read(nvml: Nvml, visible: str | None) -> Gpus | None:
    """Return what NVML says of the visible devices; None if there are none. Raises NVMLError."""
    handles = devices(nvml, visible)
    if not handles:
        return None
    rates = [nvml.nvmlDeviceGetUtilizationRates(handle) for handle in handles]
    memory = [nvml.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
    return Gpus(
        count=len(handles),
        utilization=round(fmean(rate.gpu for rate in rates) / 100, 3),
        memory=sum(each.used for each in memory),
        memory_total=sum(each.total for each in memory),
    )


def devices(nvml: Nvml, visible: str | None) -> list[Any]:
    """Return the devices that workers see: NVML knows them all, by index or UUID."""
    if visible is None:
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    names = [name for each in visible.split(",") if (name := each.strip()) not in ("", "-1")]
    by_index, by_uuid = nvml.nvmlDeviceGetHandleByIndex, nvml.nvmlDeviceGetHandleByUUID
    return [by_index(int(name)) if name.isdecimal() else by_uuid(name) for name in names]
