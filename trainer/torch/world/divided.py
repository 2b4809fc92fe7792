"""A model that `fully_shard` divides over the workers of a node, and that each node has whole.

Operations between nodes have two stages. First the workers with the same part of the model, one on each node,
meet in a group that lasts for a world. Then the workers of the node, whose group lasts as long as they do,
tell each other how that went: if it failed for one it counts for none, so all parts stay at the same step.
A failure of the second stage is the end of these workers: the agent starts them again as those of a new node.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore, ProcessGroupGloo  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.nn.utils import get_total_norm

from elasticjob.trainer.checkpoint.pieces import listed
from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.link.connections import connections
from elasticjob.trainer.torch.saving.tree import local, settle
from elasticjob.trainer.torch.world.chunks import hand_over, overwrite, spread
from elasticjob.trainer.torch.world.peers import TIMEOUT, Peers, gather

BUCKET: Final = 25 << 20  # bytes of gradients that are sent at once
DIVIDED: Final = "\0divided"
"""The key of a dict that stands for a DTensor on its way to another node."""

_encode = msgspec.msgpack.Encoder().encode
_column = msgspec.msgpack.Decoder(list[bytes]).decode
_numbers = msgspec.msgpack.Decoder(list[int]).decode


class Lost(dist.DistNetworkError):
    """Another node was lost: all workers of this one have noticed, and are at the same place."""


class DividedPeers(Peers):
    """The workers of one world, of nodes that have a model each; ranks count node by node."""

    def __init__(self, place: Enter, device: torch.device, mesh: DeviceMesh) -> None:
        super().__init__(place, device)
        self._mesh = mesh
        self._group: ProcessGroupGloo | None = None  # of the workers with the same part
        self._those: ProcessGroupGloo | None = None  # the same, of those nodes that exchange
        self._lost = False

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.size // self._mesh.size()

    @property
    def node(self) -> int:
        """The place of this worker's node among them."""
        return self.rank // self._mesh.size()

    def open(self, listener: socket.socket | None) -> None:
        """Join the group of the workers with the same part."""
        self.across(lambda: self._open(listener))

    def across(self, stage: Callable[[], object]) -> None:
        """Do something with the other nodes; Lost if that failed for a worker of this one."""
        self.sum_over_node(torch.zeros(0), stage)

    def sum_over_node(self, numbers: Tensor, stage: Callable[[], object]) -> Tensor:
        """Do something with the other nodes that changes `numbers`; return their sum over this node.

        Lost if it failed for a worker of this node.
        """
        failed: RuntimeError | None = None
        try:
            super().check()
            stage()
        except RuntimeError as error:
            if not super().broken_by(error):
                raise
            failed = error
        both = torch.cat([numbers, torch.tensor([float(failed is not None)])])
        if self._mesh.size() > 1:
            dist.all_reduce(both)
        if both[-1]:
            self._lost = True
            why = str(failed or "a connection of another worker of this node to another node failed")
            raise Lost(why) from failed
        return both[:-1]

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Add `tensors` up over the nodes; a stage of `added`."""
        self._wait(self._group.allreduce([each]) for each in tensors)  # type: ignore[union-attr]

    def give(self, tensors: Sequence[Tensor], source: int) -> None:
        """Overwrite `tensors` by those of the node of worker `source`; a stage of `added`."""
        node = source // self._mesh.size()
        overwrite(tensors, lambda block: self._group.broadcast(block, node))  # type: ignore[union-attr]

    def gather(self, numbers: Sequence[int]) -> list[list[int]]:
        return [_numbers(each) for each in self.exchange(_encode([*map(int, numbers)]))]

    def gives(self, source: int) -> bool:
        return self.node == source // self._mesh.size()

    def broadcast(self, tensors: Sequence[Tensor], source: int) -> None:
        self.across(lambda: self.give(tensors, source))

    def hand_over(self, tensors: Sequence[Tensor], sources: Sequence[int]) -> None:
        nodes = sorted({each // self._mesh.size() for each in sources})
        self.across(lambda: hand_over(self._group, tensors, nodes))  # type: ignore[arg-type]

    def share(self, state: Any, sources: Sequence[int]) -> Any:
        return whole(super().share(bare(state), sources), self._mesh)

    def divide(self, ranks: Sequence[int]) -> None:
        nodes = sorted({rank // self._mesh.size() for rank in ranks})
        if self.node in nodes:
            self.across(lambda: self._divide(nodes))

    def place_in_exchange(self) -> tuple[int, int]:
        group, many = self._those or self._group, self._mesh.size()
        assert group is not None
        return group.rank() * many + dist.get_rank(), group.size() * many

    def unify(self, tensors: Sequence[Tensor]) -> None:
        """Do nothing: after each step buffers are those of the first worker."""

    def unite(self) -> None:
        self._those = None

    def exchange(self, data: bytes) -> list[bytes]:
        column: list[bytes] = []
        self.across(lambda: column.extend(gather(data, self._column)))
        columns = [_column(each) for each in gather(_encode(column), self._row)]
        return [each for row in zip(*columns, strict=True) for each in row]

    def broken_by(self, error: RuntimeError) -> bool:
        return isinstance(error, Lost)

    def abort(self) -> None:
        self._aborted = True
        self._shut()

    def check(self) -> None:
        """Do nothing: a loss is noticed by all workers of a node at once, in the next stage of both kinds."""

    def close(self, *, broken: bool = False) -> None:
        if self._lost and not self._aborted:
            self.abort()  # what raised the error may hold the group, and the others would wait for us
        self._those = self._group = self._opened = None

    def _open(self, listener: socket.socket | None) -> None:
        many, here = self._mesh.size(), dist.get_rank()
        store = self._opened = self._store(listener)
        super().check()  # before there was a connection to shut down
        if self.rank == 0:
            store.set("workers", str(many))
        if int(store.get("workers")) != many or self.size % many or self.rank % many != here:
            raise ValueError(
                f"a node of this world divides the model over {many} workers, and another one does not: all "
                "need the same --nproc-per-node"
            )
        group = PrefixStore(f"part-{here}", store)
        self._group = ProcessGroupGloo(group, self.node, self.nodes, TIMEOUT)
        self._links = connections() - self._before

    def _divide(self, nodes: Sequence[int]) -> None:
        assert self._opened is not None
        group = PrefixStore(f"some-{dist.get_rank()}", self._opened)
        self._those = ProcessGroupGloo(group, nodes.index(self.node), len(nodes), TIMEOUT)
        self._links = connections() - self._before
        super().check()

    def _column(self, tensor: Tensor) -> list[Tensor]:
        group = self._those or self._group
        assert group is not None
        every = [torch.empty_like(tensor) for _ in range(group.size())]
        group.allgather(every, tensor).wait()  # type: ignore[attr-defined]  # the stubs have only its base
        return every

    def _row(self, tensor: Tensor) -> list[Tensor]:
        every = [torch.empty_like(tensor) for _ in range(self._mesh.size())]
        dist.all_gather(every, tensor)
        return every

    @staticmethod
    def _wait(works: Iterable[dist.Work]) -> None:
        for work in list(works):
            work.wait()


class Sharding:
    """How workers train such a model: `fully_shard` averages gradients in a node, this over the nodes."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._mesh = mesh_of(model)
        self._peers: DividedPeers | None = None
        self._sent: Tensor | None = None
        self._means: list[float] | None = None

    @property
    def together(self) -> int:
        """How many workers compute each micro-batch together."""
        return self._mesh.size()

    def peers(self, place: Enter) -> DividedPeers:
        """Return the workers of a world."""
        return DividedPeers(place, torch.device(self._mesh.device_type), self._mesh)

    def enter(self, peers: Peers) -> None:
        """Train in a world whose group is open."""
        assert isinstance(peers, DividedPeers)
        self._peers = peers

    def is_stale(self) -> bool:
        """Whether anything has to be wrapped anew: `begin` looks at what is trained."""
        return False

    def leave(self) -> None:
        """Leave the world."""

    def begin(self) -> None:
        """Begin a step."""
        self._parameters = [each for each in self.model.parameters() if each.requires_grad]
        self._sent = self._means = None

    def adding_up(self, _: bool) -> AbstractContextManager[None]:
        """Let `fully_shard` add the gradients up: it needs least memory if it reduces each of them."""
        return nullcontext()

    def check_used(self) -> None:
        """Do nothing: the model is called as it is."""

    def without_gradients(self, loss: Tensor) -> AbstractContextManager[None]:
        """Refuse a loss of weight 0 that is not finite: its gradients are reduced as they come."""
        if not bool(torch.isfinite(loss)):
            raise RuntimeError(
                f"a micro-batch of weight 0 has the loss {loss.item()}: where nothing counts, compute a "
                "loss of 0, as by mask.sum().clamp(min=1)"
            )
        return nullcontext()

    def send(self, numbers: Tensor) -> None:
        """Keep the `numbers` of this step for the reduction, which comes after the last backward pass."""
        self._sent = numbers

    def means(self) -> list[float]:
        """Average the gradients, and what was sent, over all workers; return what that came to."""
        if self._means is None:
            assert self._sent is not None
            self._means = self._average(self._sent)
        return self._means

    def clip(self, parameters: Sequence[Tensor], max_norm: float, norm_type: float) -> Tensor:
        """Clip the gradients by the norm of all parts together; return it."""
        gradients = [each.grad for each in parameters if each.grad is not None]
        parts = [each.to_local() for each in gradients if isinstance(each, DTensor)]
        others = [each for each in gradients if not isinstance(each, DTensor)]
        device = self._mesh.device_type
        mine = get_total_norm([each for each in parts if each.numel()], norm_type).to(device).float()
        norms = [torch.empty_like(mine) for _ in range(self.together)]
        dist.all_gather(norms, mine)
        norms.append(get_total_norm(others, norm_type).to(device).float())
        total: Tensor = torch.linalg.vector_norm(torch.stack(norms), norm_type)
        for each in (*parts, *others):
            each.mul_((max_norm / (total + 1e-6)).clamp(max=1.0))
        return total

    def _average(self, numbers: Tensor) -> list[float]:
        """Average the gradients over the nodes; those that no worker has stay away.

        Buffers of the model become those of rank 0.
        """
        assert self._peers is not None
        peers, buffers = self._peers, list(self.model.buffers())
        there = torch.tensor([float(each.grad is not None) for each in self._parameters])
        sent = torch.cat([numbers.cpu().float(), there])
        gradients = [gradient_of(each) for each in self._parameters]
        buckets = list(in_buckets(gradients)) if peers.nodes > 1 else []
        flat = [torch.cat([each.flatten() for each in bucket]) for bucket in buckets]

        def stage() -> None:
            if peers.nodes > 1:
                peers.add([sent, *flat])
                peers.give(buffers, 0)

        sums = peers.sum_over_node(sent, stage).tolist()
        for bucket, sum_ in zip(buckets, flat, strict=True):
            spread(sum_.div_(peers.nodes), bucket)
        for parameter, gradient, count in zip(self._parameters, gradients, sums[len(numbers) :], strict=True):
            if count and parameter.grad is None:
                parameter.grad = like(parameter, gradient)
        self._average_in_the_node(buffers)
        return [each / peers.size for each in sums[: len(numbers)]]

    def _average_in_the_node(self, buffers: Sequence[Tensor]) -> None:
        """Do for what is not divided what `fully_shard` does for the rest."""
        if self.together == 1:
            return
        overwrite(buffers, lambda block: dist.broadcast(block, 0))
        for each in self._parameters:
            if not isinstance(each, DTensor) and each.grad is not None:
                dist.all_reduce(each.grad)
                each.grad.div_(self.together)


def mesh_of(model: nn.Module) -> DeviceMesh:
    """Return the mesh over which a model is divided; ValueError if that is not this node's workers."""
    settle(model)
    meshes = {each.device_mesh for each in model.parameters() if isinstance(each, DTensor)}
    mesh = meshes.pop()
    if meshes or mesh.ndim != 1 or mesh.size() != dist.get_world_size():
        raise ValueError(
            "Elastic trains a model that is divided over the workers of one node, and replicates it over the "
            "nodes: use fully_shard(module, mesh=node_mesh()) for each module"
        )
    if others := sorted(not_of_fully_shard(model)):
        raise ValueError(
            f"Elastic gives each worker records of its own, and {listed(others)} is divided in another way "
            "than by fully_shard (tensor, sequence or context parallel): workers that share it need the same "
            "records; use fully_shard alone, or a script of your own with Checkpoint"
        )
    return mesh


def not_of_fully_shard(model: nn.Module) -> set[str]:
    """Return the parameters that are divided, and not by a module of fully_shard above them."""
    by = [prefix for prefix, each in model.named_modules() if isinstance(each, FSDPModule)]
    divided = {name for name, each in model.named_parameters() if isinstance(each, DTensor)}
    return {name for name in divided if not any(not each or name.startswith(f"{each}.") for each in by)}


def gradient_of(parameter: Tensor) -> Tensor:
    """Return this worker's part of a gradient, zeros if there is none."""
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros_like(local(parameter), requires_grad=False)
    return local(gradient)


def like(tensor: Tensor, mine: Tensor) -> Tensor:
    """Return this worker's part as a tensor that is divided like another one."""
    if not isinstance(tensor, DTensor):
        return mine
    return DTensor.from_local(
        mine, tensor.device_mesh, tensor.placements, shape=tensor.shape, stride=tensor.stride()
    )


def in_buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield tensors of the same kind in buckets to be sent at once."""
    kinds: dict[Any, list[Tensor]] = defaultdict(list)
    sizes: dict[Any, int] = defaultdict(int)
    for each in tensors:
        kind = (each.dtype, each.device)
        if kinds[kind] and sizes[kind] + each.nbytes > BUCKET:
            yield kinds.pop(kind)
            del sizes[kind]
        kinds[kind].append(each)
        sizes[kind] += each.nbytes
    yield from kinds.values()


def bare(value: Any) -> Any:
    """Return a state with the parts of this worker instead of DTensors."""
    if isinstance(value, DTensor):
        placed = [each.dim if isinstance(each, Shard) else -1 for each in value.placements]
        return {DIVIDED: value.to_local(), "at": placed, "of": [*value.shape], "by": [*value.stride()]}
    if isinstance(value, dict):
        return {key: bare(each) for key, each in value.items()}
    return type(value)(map(bare, value)) if type(value) in (list, tuple) else value


def whole(value: Any, mesh: DeviceMesh) -> Any:
    """Return a state with DTensors again, of the parts of another node that are this worker's, too."""
    if isinstance(value, dict):
        if DIVIDED in value:
            placed: list[Placement] = [Shard(dim) if dim >= 0 else Replicate() for dim in value["at"]]
            shape = torch.Size(value["of"])
            mine = value[DIVIDED].to(mesh.device_type)
            return DTensor.from_local(mine, mesh, placed, shape=shape, stride=tuple(value["by"]))
        return {key: whole(each, mesh) for key, each in value.items()}
    return type(value)([whole(each, mesh) for each in value]) if type(value) in (list, tuple) else value
