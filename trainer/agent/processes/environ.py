"""The environment of a worker: torch elastic's own names, so that any torchrun script runs unchanged.

Elastic workers start without a world; `Elastic` sets RANK and the like on entering one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from elasticjob.trainer.agent.actions import Spawn
from elasticjob.trainer.agent.failures import restarts
from elasticjob.trainer.agent.group import Group
from elasticjob.trainer.agent.settings import Settings
from elasticjob.trainer.link import address
from elasticjob.trainer.link.channel import ADDRESS, ROUND, UNIT

THREADS: Final = "OMP_NUM_THREADS"


def with_defaults(environment: Mapping[str, str], workers: int, cpus: float | None = None) -> dict[str, str]:
    """Return torchrun's defaults for so many workers of a node, and `environment` over them.

    Workers share the `cpus` of a container: torch would start a thread for each core of the machine. The warm
    process is started with them too: torch reads the number of threads only once.
    """
    threads = {}
    if cpus is not None:
        threads = {THREADS: str(max(1, int(cpus / workers)))}
    elif workers > 1:
        threads = {THREADS: "1"}
    return {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", **threads, **environment}


def worker_environment(
    base: Mapping[str, str], settings: Settings, group: Group, spawn: Spawn, error_file: Path, way_file: Path
) -> dict[str, str]:
    """Return the whole environment of the worker in `spawn.slot`, on top of `base` (`with_defaults`)."""
    count = settings.workers
    own = {
        "LOCAL_RANK": str(spawn.slot),
        "LOCAL_WORLD_SIZE": str(len(group.seats) if spawn.enter else count),
        "ROLE_NAME": settings.name,
        "TORCHELASTIC_RESTART_COUNT": str(restarts(group.failures)),
        "TORCHELASTIC_MAX_RESTARTS": str(settings.max_restarts),
        "TORCHELASTIC_RUN_ID": settings.place.job,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": str(error_file),
        "TORCHELASTIC_SIGNALS_TO_HANDLE": ",".join(each.name for each in settings.signals),
        ADDRESS: settings.place.address,
        UNIT: str(way_file.with_name(f"unit-{spawn.start}")),
        address.FILE: str(way_file),
        address.SLOT: str(spawn.slot),
    }
    if settings.virtual_rank:
        own |= one_device(base, spawn.slot)
    return {**base, **own, **(world(group, spawn) if spawn.enter else {})}


def one_device(base: Mapping[str, str], slot: int) -> dict[str, str]:
    """Return the variables by which a worker sees its own device alone, as in torchrun."""
    visible = "HIP_VISIBLE_DEVICES" if base.get("HIP_VISIBLE_DEVICES") else "CUDA_VISIBLE_DEVICES"
    listed = [each.strip() for each in base.get(visible, "").split(",") if each.strip()]
    mine = listed[slot] if slot < len(listed) else str(slot)
    return {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": mine, visible: mine}


def world(group: Group, spawn: Spawn) -> dict[str, str]:
    """Return the variables that describe a worker's place in the world."""
    place = spawn.enter
    if place is None or group.world is None:
        return {}
    return {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(place.size),
        "ROLE_RANK": str(place.rank),
        "ROLE_WORLD_SIZE": str(place.size),
        "GROUP_RANK": str(group.world.node_rank(group.terms.node)),
        "GROUP_WORLD_SIZE": str(group.world.count),
        "MASTER_ADDR": place.address,
        "MASTER_PORT": str(place.port),
        ROUND: str(place.round),
    }
