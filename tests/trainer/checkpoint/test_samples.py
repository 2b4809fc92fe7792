"""Checkpoints of earlier versions, in samples.tar.xz, are read, and loaded by the programs that wrote them.

`values.json` has what they held: two steps of `training` by two workers, replicated, by fully_shard over two
and over two of two × two, and by the version that joined names by `dots`; four steps of `Elastic`, replicated
and over node_mesh(), and of JAX's; the store's; those of loops of others.
"""

from __future__ import annotations

import json
import tarfile
import zlib
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import ExponentialLR

from elasticjob.trainer import store
from elasticjob.trainer.torch import Elastic
from elasticjob.trainer.torch.checkpoint import Checkpoint, RandomState, ResumableLoader
from elasticjob.trainer.torch.saved import read
from lab.archives import unpack


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with tarfile.open(Path(__file__).with_name("samples.tar.xz")) as archive:
        unpack(archive, folder := tmp_path_factory.mktemp("samples"))
    training()  # imports torch's compiler, which each fork would
    return folder


def flat(value: Any, name: str = "") -> dict[str, str]:
    """Return numbers and strings of a state by their names, and of tensors the checksum."""
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if isinstance(value, dict) and value:
        known = {key: each for key, each in value.items() if key != "layout"}  # newer than all samples
        return {at: of for key, each in known.items() for at, of in flat(each, f"{name}/{key}").items()}
    if not isinstance(value, torch.Tensor):
        return {name: str(value)}
    whole = getattr(value, "full_tensor", lambda: value)()
    bits = bytes(whole.detach().contiguous().view(-1).view(torch.uint8).tolist())
    return {name: f"{whole.dtype} {[*whole.shape]} {zlib.crc32(bits):08x}"}


def training(*, divided: bool = False) -> dict[str, Any]:
    """Return what a worker that wrote a sample had made; it began with `torch.manual_seed(0)`."""
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
    for each in (model[0], model) if divided else ():
        fully_shard(each, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    of = {"model": model, "optimizer": optimizer, "scheduler": ExponentialLR(optimizer, 0.9), "notes": {}}
    return of | {"random": RandomState(), "data": ResumableLoader(range(12), batch_size=2, shuffle=True)}


def loaded(where: Path, place: Path, rank: int, workers: int) -> dict[str, str]:
    """Load by `Checkpoint` as one of so many workers; return all but what is of another number."""
    if workers > 1:
        dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=workers)
    of = training(divided=workers > 1 and where.name != "replicated")
    own = {"data"} if workers > 1 and where.name != "hsdp" else {"data", "random"}
    given = {name: each for name, each in of.items() if where.name != "dots" or name not in own}
    assert Checkpoint(where, given, every=1, save_every=1, environment={}).load() == 2
    return flat({name: getattr(of[name], "state_dict", lambda: of["notes"])() for name in of.keys() - own})


def gone_on(where: Path, *_others: Any) -> dict[str, str]:
    """Load by `Elastic`, before its fifth step."""
    model, optimizer, scheduler, notes, *_ = training().values()
    elastic = Elastic(model, optimizer, scheduler=scheduler, keep={"notes": notes}, checkpoint=where)
    data = elastic.loader(torch.arange(24.0).reshape(8, 3), global_batch=4, shuffle=False)
    assert next(elastic.steps(data, epochs=3)).number == 5
    return flat(elastic._run.state.snapshot())


def stored(where: Path, *_: Any) -> dict[str, str]:
    """Read by the store's own."""
    ids, values = store.read(where, "seen")
    return flat({"seen": {"values": torch.tensor(values)}}) if ids.tolist() == [*range(6)] else {}


@pytest.mark.parametrize(
    ("name", "workers", "load"),
    [
        *((name, workers, loaded) for name in ("replicated", "fully_shard", "hsdp") for workers in (1, 2)),
        *(("dots", 1, loaded), ("elastic", 1, gone_on), ("divided", 1, gone_on), ("store", 1, stored)),
        *((name, 0, loaded) for name in ("jax", "huggingface", "accelerate", "lightning")),
    ],
)
def test_what_was_saved_is_there(tmp_path: Path, samples: Path, name: str, workers: int, load: Any) -> None:
    saved = json.loads((samples / "values.json").read_text())[name]
    assert flat(read(samples / name)) == saved
    given = [(samples / name, tmp_path / "store", rank, workers) for rank in range(workers)]
    with get_context("fork").Pool(workers or 1) as pool:
        for found in pool.starmap(load, given, chunksize=1):
            assert found and found == {each: saved.get(each) for each in found}  # noqa: PT018  # one law
