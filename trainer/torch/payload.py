"""The payload of a node check: matrix products on this machine's device, then collectives with the others.

The agent starts one process for each device and writes it one task as a line of JSON: `rank`, `size`, `local`
(the device), `address` and `port` of the store, `alone`, and `limit` in seconds. The result is a line too:
`seconds`, `error`, `device`. Alone the products are timed, with others the collectives. After an error the
process ends; the agent starts another one for the next task.

This file imports nothing of ours, so that a check costs the import of torch and no more.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any, Final, TextIO

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

IN_USE: Final = 0.3  # of the device's memory before we use any: a leftover of somebody else
EDGE, PRODUCTS = {"cpu": 128, "cuda": 16384}, 500
FLOATS = {"cpu": 2**20, "cuda": 2**24}
COLLECTIVES: Final = 10


def main() -> int:
    """Answer tasks until stdin ends; the exit code is 1 after an error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no result
    for line in sys.stdin:
        if not answer(json.loads(line), answers):
            return 1
    return 0


def answer(task: dict[str, Any], answers: TextIO) -> bool:
    """Write the result of one task; return whether it went well."""
    device, result = device_of(task["local"]), {"seconds": 0.0, "error": ""}
    try:
        result["seconds"] = run(task, device)
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    answers.write(json.dumps({**result, "device": name}) + "\n")
    return not result["error"]


def device_of(local: int) -> torch.device:
    """Return the device of this process."""
    return torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")


def run(task: dict[str, Any], device: torch.device) -> float:
    """Run the payload; return the seconds that count."""
    if not task["alone"]:
        return together(task, device)
    check_memory(device)
    taken = products(device)
    if task["size"] > 1:
        together(task, device)
    return taken


def check_memory(device: torch.device) -> None:
    """Raise MemoryError if much of the device's memory is in use already."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        if (used := 1 - free / total) > IN_USE:
            raise MemoryError(f"{used:.0%} of the memory of device {device.index} is in use already")


def products(device: torch.device) -> float:
    """Return the seconds that the products take."""
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    left = torch.ones(EDGE[device.type], EDGE[device.type], device=device, dtype=kind)
    right = left / EDGE[device.type]
    for _ in range(5):
        left @ right
    settle(device)
    began, product = time.perf_counter(), left
    for _ in range(PRODUCTS):
        product = product @ right
    settle(device)
    taken = time.perf_counter() - began
    if not torch.allclose(product, left):
        raise ArithmeticError("the product of matrices is wrong")
    return taken


def together(task: dict[str, Any], device: torch.device) -> float:
    """Return the seconds that collectives of all processes take, from the moment when all are there."""
    limit = timedelta(seconds=task["limit"])
    rank, size = task["rank"], task["size"]
    store = TCPStore(task["address"], task["port"], size, is_master=rank == 0, timeout=limit)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    try:
        tensor = torch.ones(FLOATS[device.type], device=device)
        all_ = [torch.empty_like(tensor) for _ in range(size)]
        collectives(tensor.clone(), all_, 1)
        settle(device)
        began = time.perf_counter()
        collectives(tensor, all_, COLLECTIVES)
        settle(device)
        taken = time.perf_counter() - began
        if any(not bool((one == 1).all()) for one in (tensor, *all_)):
            raise ArithmeticError("the result of a collective is wrong")
    finally:
        dist.destroy_process_group()
    return taken


def collectives(tensor: torch.Tensor, all_: list[torch.Tensor], times: int) -> None:
    """Average and gather a tensor of ones."""
    for _ in range(times):
        dist.all_reduce(tensor)
        tensor /= len(all_)
        dist.all_gather(all_, tensor)


def settle(device: torch.device) -> None:
    """Wait until the device has done all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    sys.exit(main())
