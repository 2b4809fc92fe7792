"""Readings of NVIDIA devices: from a stand-in for the library of the driver, and from the real one."""

from __future__ import annotations

import logging
import time
from types import SimpleNamespace
from typing import Any

import pytest

from elasticjob.api.rpc.nodes import Gpus
from elasticjob.trainer.agent.seeing.gpus import STALE, Devices, read


class Trouble(Exception):
    def __init__(self, value: int, words: str) -> None:
        super().__init__(words)
        self.value = value


class Library:
    """Devices by UUID: busy in percent, and bytes used of 80; the next readings fail with `failures`."""

    NVMLError = Trouble

    def __init__(self, devices: dict[str, tuple[int, int]], *failures: Trouble) -> None:
        self.devices, self.failures = devices, list(failures)

    def nvmlInit(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return [*self.devices][index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=self.devices[handle][0])

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(used=self.devices[handle][1], total=80)


TWO = {"GPU-a": (100, 60), "GPU-b": (50, 20)}
BOTH = Gpus(count=2, utilization=0.75, memory=80, memory_total=160)
SECOND = Gpus(count=1, utilization=0.5, memory=20, memory_total=80)


@pytest.mark.parametrize(
    ("devices", "visible", "expected"),
    [
        (TWO, None, BOTH),
        (TWO, "0,1", BOTH),
        (TWO, "1", SECOND),
        (TWO, "GPU-b", SECOND),
        (TWO, "", None),
        (TWO, "-1", None),
        ({}, None, None),
    ],
)
def test_devices_that_workers_see_are_read(
    devices: dict[str, tuple[int, int]], visible: str | None, expected: Gpus | None
) -> None:
    assert read(Library(devices), visible) == expected


@pytest.mark.parametrize(
    ("failure", "again", "lines"),
    [
        (Trouble(12, "NVML Shared Library Not Found"), False, []),
        (Trouble(9, "Driver Not Loaded"), False, []),
        (Trouble(15, "GPU is lost"), True, ["the GPUs of this node cannot be read: GPU is lost"]),
    ],
)
def test_a_trouble_is_told_once_and_a_machine_without_devices_is_none(
    failure: Trouble, again: bool, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    library, found = Library(TWO, failure, failure), Devices(None)
    assert [found.look(library) for _ in range(2)] == [again, again]
    assert [record.message for record in caplog.records] == lines
    assert found.at(time.monotonic()) is None


def test_a_reading_counts_until_it_is_old() -> None:
    found = Devices(None)
    assert found.look(Library(TWO))
    now = time.monotonic()
    assert (found.at(now), found.at(now + STALE + 1)) == (BOTH, None)


def test_the_real_library_says_nothing_where_there_is_no_driver(caplog: pytest.LogCaptureFixture) -> None:
    nvml: Any = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        found = Devices(None)
        assert not found.look(nvml)
        assert (found.at(time.monotonic()), caplog.records) == (None, [])
    else:
        assert read(nvml, None) is None or read(nvml, None)
