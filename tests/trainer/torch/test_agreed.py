"""What two workers agree on before they save, and what each finds again: one pair plays all of it."""

from __future__ import annotations

from collections.abc import Callable
from logging import Handler, LogRecord, getLogger
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from elasticjob.trainer.torch.checkpoint import Checkpoint, Local

State = dict[str, Any]
ONE = torch.ones(4, 3)


class Wrapped:
    """An object of the script's own around a model."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def state_dict(self) -> State:
        return {"in": self.model.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self.model.load_state_dict(state["in"])


class Said(Handler):
    """Keeps the lines of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: LogRecord) -> None:
        self.lines.append(record.getMessage())


class Place:
    """An object without tensors."""

    def __init__(self, at: int) -> None:
        self.at = at

    def state_dict(self) -> State:
        return {"at": self.at}

    def load_state_dict(self, state: State) -> None:
        self.at = state["at"]


def linear(seed: int, *, divided: bool = False) -> nn.Linear:
    torch.manual_seed(seed)
    model = nn.Linear(3, 5)
    return fully_shard(model, mesh=init_device_mesh("cpu", (2,))) if divided else model  # type: ignore[return-value]


def averaged(seed: int, rank: int) -> State:
    torch.manual_seed(seed)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    average = AveragedModel(model)
    model(ONE * (rank + 1) + torch.eye(4, 3)).sum().backward()
    average.update_parameters(model)
    return {"model": model, "average": average}


MAKES: dict[str, Callable[[int, int], State]] = {
    "plain shards": lambda seed, rank: {"model": linear(seed + rank)},
    "another object on one worker": lambda seed, rank: {
        "model": linear(seed),
        **({"log": {}} if rank else {}),
    },
    "a model on meta": lambda seed, rank: {"model": nn.Linear(3, 5, device="meta")},
    "Local shards": lambda seed, rank: {"model": Local(linear(seed + rank))},
    "a place of each": lambda seed, rank: {"model": linear(seed), "place": Local(Place(10 * seed + rank))},
    "an object around a divided model": lambda seed, rank: {"app": Wrapped(linear(seed, divided=True))},
    "a dict of a model's tensors": lambda seed, rank: {"model": linear(seed, divided=True).state_dict()},
    "numbers of each": lambda seed, rank: {"model": linear(seed), "places": {"at": 10 * seed + rank}},
    "stages": lambda seed, rank: {"model": nn.ModuleDict({f"stage{rank}": linear(seed + rank)})},
    "an average under DDP": averaged,
}


def values(state: State) -> list[Any]:
    """Return all that this worker has, the tensors of dicts as the script's own have them."""
    found: list[Any] = []
    for each in state.values():
        inner: Any = getattr(each, "of", each)
        inner = inner if isinstance(inner, dict) else inner.state_dict()
        for value in (inner.get("in", inner) if isinstance(inner, dict) else inner).values():
            local = getattr(value, "to_local", lambda value=value: value)()
            found.append(local.tolist() if isinstance(local, torch.Tensor) else local)
    return found


def play(folder: Path, rank: int) -> dict[str, Any]:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    results: dict[str, Any] = {}
    said = Said()
    getLogger("elasticjob").addHandler(said)
    for name, make in MAKES.items():
        options: Any = {"every": 1, "save_every": 1, "environment": {}}
        try:
            said.lines.clear()
            first = make(1, rank)
            Checkpoint(folder / name, first, **options).save(1)
            again = make(5, rank)
            step = Checkpoint(folder / name, again, **options).load()
            results[name] = step, values(again) == values(first)
            results[f"{name}, said"] = [each for each in said.lines if "numbers" in each]
        except ValueError as error:
            results[name] = str(error)
    return results


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("agreed")
    with get_context("fork").Pool(2) as pool:
        found = pool.starmap(play, [(folder, 0), (folder, 1)], chunksize=1)
    return [*found, {name: list((folder / name).glob("*/manifest.json")) for name in MAKES}]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("plain shards", "other values of model/weight"),
        (
            "another object on one worker",
            "other objects in their states: log; give all workers the same names",
        ),
        ("a model on meta", "is on the meta device: call model.to_empty"),
    ],
)
def test_what_would_not_be_whole_is_refused_on_both(played: Any, name: str, sentence: str) -> None:
    *workers, written = played
    assert all(sentence in each[name] for each in workers), workers
    assert not written[name]


@pytest.mark.parametrize("name", [*MAKES][3:])
def test_each_worker_finds_its_own_again(played: Any, name: str) -> None:
    *workers, _ = played
    same = [(1, True), (1, True)]
    if name in ("an average under DDP", "numbers of each"):  # what is the first worker's
        same[1] = (1, False)
    assert [each[name] for each in workers] == same
    told = [each[f"{name}, said"] for each in workers]
    if name == "numbers of each":
        assert ["in places, and those of one" in each for each in told[0]] == [True]
    else:
        assert told == [[], []]
