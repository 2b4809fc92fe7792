"""The workers of one node that share out a model among them: their process group outlives all worlds.

It is torch's default group, opened once in the life of the workers, which live and die together. Nodes come
and go; what they do together goes through another group for each world (`divided.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch.distributed import FileStore, HashStore  # type: ignore[attr-defined]  # documented there
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from elasticjob.trainer.link.address import SLOT
from elasticjob.trainer.link.channel import UNIT, Bound, encode
from elasticjob.trainer.link.worlds import channel_to
from elasticjob.trainer.torch.world.peers import TIMEOUT


def node_mesh() -> DeviceMesh:
    """Return the mesh of the workers of this node, over which `fully_shard` divides a model.

        fully_shard(model, mesh=node_mesh())

    An `Elastic` with such a model replicates it over the nodes, which come and go. The first call opens
    torch's default process group, of this node's workers. Without an agent this is the only worker.
    """
    cuda = torch.cuda.is_available()
    if not dist.is_initialized():
        open_unit(os.environ, "cpu:gloo,cuda:nccl" if cuda else "gloo")
    return init_device_mesh("cuda" if cuda else "cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))


def open_unit(environment: Mapping[str, str], backend: str) -> None:
    """Open the group of this node's workers, by a file of those that were started together."""
    channel = channel_to(environment)
    if channel is None:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        return
    with channel:
        channel.sendall(encode(Bound()))
    many = int(environment["LOCAL_WORLD_SIZE"])
    store = FileStore(environment[UNIT], many)
    dist.init_process_group(
        backend, store=store, rank=int(environment[SLOT]), world_size=many, timeout=TIMEOUT
    )
