"""A small model of many kinds of layers, laid out over workers as torch does it, and trained."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import parallel as tp
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from elasticjob.trainer.torch.checkpoint import Local, RandomState
from lab.shardings.cases import APART

BLOCKS, VOCABULARY, SEQUENCE = 3, 11, 12
SIZES = {"tiny": (3, 2, 4), "uneven": (7, 13, 3)}
FROZEN = {"frozen": "embed norm", "lora": "embed up down"}
DATA = ("ddp", "rep", "cp", "fsdp", "ep", *APART)  # dimensions of the mesh whose workers have other records


class Net(nn.Module):
    """The layers of one pipeline stage, by their names in the whole model, with what the words add."""

    def __init__(self, words: Collection[str], stage: int, stages: int) -> None:
        super().__init__()
        sizes = next((SIZES[word] for word in SIZES if word in words), (8, 12, 4))
        self.words, (self.width, hidden, experts) = words, sizes
        if stage == 0 and "experts" in words:  # first: their mesh is not that of the rest
            self.experts = nn.Parameter(torch.rand(experts, 2))
        self.blocks: Any = nn.ModuleDict()
        for number in (each for each in range(BLOCKS) if each * stages // BLOCKS == stage):
            block = self.blocks[str(number)] = nn.ModuleDict({"norm": nn.LayerNorm(width := self.width)})
            block.up, block.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
            if "lora" in words:
                block.a, block.b = nn.Linear(width, 2, bias=False), nn.Linear(2, width, bias=False)
            if "batchnorm" in words:
                block.batch = nn.BatchNorm1d(width)
            if "buffers" in words:
                block.register_buffer("ramp", torch.rand(width))
                block.register_buffer("seen", torch.zeros((), dtype=torch.int64))
                block.register_buffer("turn", torch.linspace(0, 1, width), persistent=False)
        if stage == 0:
            self.embed = nn.Embedding(VOCABULARY, self.width)
        if stage == stages - 1:
            self.head = nn.Linear(self.width, VOCABULARY, bias=False)
        if "tied" in words:
            self.head.weight = self.embed.weight

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        if hasattr(self, "experts"):  # those of this worker; it may have none
            mine = self.experts.to_local() if isinstance(self.experts, DTensor) else self.experts
            x = x * (1 + mine.square().sum())
        x = x + self.embed(ids) if hasattr(self, "embed") else x
        for each in self.blocks.values():
            normed = each.norm(x)
            y = each.down(F.relu(each.up(normed)))
            y = y + each.b(each.a(normed)) if "lora" in self.words else y
            y = each.batch(y.transpose(1, 2)).transpose(1, 2) if "batchnorm" in self.words else y
            if "buffers" in self.words:
                each.seen.add_(1)
                y = y * each.ramp + each.turn
            x = x + F.dropout(y, 0.2, "random" in self.words)
        return self.head(x) if hasattr(self, "head") else x


class Training:
    """One worker's part of a training whose first values are drawn by `seed`; all make it at once."""

    def __init__(self, layout: Mapping[str, int], words: Collection[str], seed: int) -> None:
        mesh = init_device_mesh("cpu", tuple(layout.values()), mesh_dim_names=tuple(layout))
        place = {name: mesh.get_local_rank(name) for name in layout}
        self.index = sum(10**at * place.get(name, 0) for at, name in enumerate(DATA))
        self.chunk = (place["sp"], layout["sp"]) if "sp" in layout else (0, 1)
        torch.manual_seed(seed + place.get("megatron", 0))
        self.net = Net(words, place.get("pp", 0), layout.get("pp", 1))
        self.net.to(torch.bfloat16 if "bfloat16" in words else torch.float32)
        self.called = called = lay_out(self.net, layout, mesh)
        torch.manual_seed(1000 * seed + self.index)  # workers of one tensor drop the same of it
        self.own = nn.ParameterList([torch.rand(5)] if "zero" in layout else [])  # as ranges of ZeRO
        self.all = nn.ModuleDict({"model": self.net, "own": self.own})
        self.optimizers = optimizers_of(self.all, words)
        first, *_ = self.optimizers.values()
        self.schedulers = {"scheduler": CosineAnnealingLR(first, 20)} if "scheduler" in words else {}
        self.state: dict[str, Any] = {**self.all, "model": called, **self.optimizers, **self.schedulers}
        self.state = {name: Local(each) if "local" in words else each for name, each in self.state.items()}
        self.state |= {"random": RandomState()} if "random" in words else {}
        self.apart, self.is_first = not APART.isdisjoint(layout), place.get("ddp", 0) == 0

    def step(self, number: int, *, die: bool = False) -> None:
        """Train one step on records of its own; or die amid it."""
        self.all.zero_grad()
        chance = torch.Generator().manual_seed(1000 * number + self.index)
        x = torch.randn(2, SEQUENCE, self.net.width, generator=chance).to(next(self.net.parameters()).dtype)
        ids = torch.randint(VOCABULARY, (2, SEQUENCE), generator=chance)
        found = [self.called(x.chunk(self.chunk[1], 1)[self.chunk[0]], ids).float(), *self.own]
        torch.stack([each.square().mean() for each in found]).sum().backward()  # type: ignore[no-untyped-call]
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        for each in (*self.optimizers.values(), *self.schedulers.values()):
            each.step()

    def whole(self) -> dict[str, Tensor]:
        """Return all state by name, each tensor whole; all workers call it at once."""
        names = {id(each): name for name, each in self.all.named_parameters()}
        states = self.all.state_dict()
        for name in [] if self.is_first else [each for each in states if ".batch." in each]:
            del states[name]  # the next forward pass of DDP takes those of rank 0
        for key, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                for each in group["params"]:
                    values = {**optimizer.state[each], "lr": group["lr"]}
                    states |= {f"{key}/{names[id(each)]}/{what}": value for what, value in values.items()}
        states |= {key: [each.last_epoch, *each.get_last_lr()] for key, each in self.schedulers.items()}
        mine = f"rank {dist.get_rank()}: " if self.apart else ""
        return {f"{mine}{name}": full(each) for name, each in states.items()}


def lay_out(net: Net, layout: Mapping[str, int], mesh: DeviceMesh) -> nn.Module:
    """Give this worker its part of the model; return what is called."""
    for name in {"tp", "sp"} & layout.keys():
        divide_layers(net, mesh[name], Shard(1) if name == "sp" else Replicate())
    still = {part for word in net.words for part in FROZEN.get(word, "").split()}
    for name, each in net.named_parameters():  # SequenceParallel has thawed it
        each.requires_grad_(still.isdisjoint(name.split(".")))
    alone: set[nn.Parameter] = set()
    if "ep" in layout and hasattr(net, "experts"):
        over, rows = (("fsdp", "ep"), [Shard(1), Shard(0)]) if "fsdp" in layout else (("ep",), [Shard(0)])
        net.experts = nn.Parameter(distribute_tensor(net.experts.detach(), mesh[over], rows))
        alone = {net.experts}
    if several := tuple(name for name in ("cp", "fsdp", "ep") if name in layout):
        data = mesh[several]._flatten("data") if len(several) > 1 else mesh[several]
        shards = mesh["rep", *(data.mesh_dim_names or ())] if "rep" in layout else data
        fully_shard(net, mesh=shards, ignored_params=alone)
    for name in {"ddp", "zero"} & layout.keys():
        group = mesh[
            name
        ].get_group()  # its buckets change after a step, and the order of sums, but for this:
        return DistributedDataParallel(net, process_group=group, find_unused_parameters=True)
    return net


def divide_layers(net: Net, mesh: DeviceMesh, rows: Shard | Replicate) -> None:
    """Divide layers as tensor parallelism does; between them each worker has all rows, or a chunk of them."""
    plan = {
        "embed": tp.RowwiseParallel(input_layouts=Replicate(), output_layouts=rows),
        "head": tp.ColwiseParallel(input_layouts=rows, output_layouts=Replicate()),
        "up": tp.ColwiseParallel(input_layouts=rows, use_local_output=False),  # may be divided unevenly
        "down": tp.RowwiseParallel(output_layouts=rows),
        **({"norm": tp.SequenceParallel()} if isinstance(rows, Shard) else {}),
    }
    for name, module in net.named_modules():
        if (style := plan.get(name.rpartition(".")[2])) is not None:
            tp.parallelize_module(module, mesh, style)


def optimizers_of(model: nn.Module, words: Collection[str]) -> dict[str, Any]:
    """Return optimizers; `foreach` takes no tensors of several meshes."""
    sgd: Callable[..., Any] = partial(SGD, lr=0.01, momentum=0.9, foreach=False)
    adam: Callable[..., Any] = partial(AdamW, lr=0.01, foreach=False)
    named = [(".up." in name or ".a." in name, each) for name, each in model.named_parameters()]
    some, rest = ([each for up, each in named if up is one and each.requires_grad] for one in (True, False))
    if "two" in words:
        return {"adam": adam(rest), "sgd": sgd(some)}
    make, groups = sgd if "sgd" in words else adam, [{"params": rest, "lr": 0.02}, {"params": some}]
    return {"optimizer": make(groups if "groups" in words else rest + some)}


def full(value: Any) -> Tensor:
    """Return a copy of a value as a whole, plain tensor."""
    value = value.full_tensor() if isinstance(value, DTensor) else value
    return value.detach().clone() if isinstance(value, Tensor) else torch.tensor(value)
