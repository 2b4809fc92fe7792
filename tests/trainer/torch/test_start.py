"""Trainings that begin with what others have trained: what fits is there bit for bit, all else is refused."""

from __future__ import annotations

import json
import os
import pickle  # noqa: TID251  # what a stranger could give
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elasticjob.trainer.checkpoint.opening import Readers
from elasticjob.trainer.torch.checkpoint import Checkpoint
from elasticjob.trainer.torch.exported import as_dcp
from elasticjob.trainer.torch.saving.tensors import Tensors
from elasticjob.trainer.torch.starting import begin
from tests.trainer.meeting import Meeting

State = dict[str, Tensor]


def model() -> nn.Sequential:
    """A model of which each start has other values."""
    made = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    nn.init.uniform_(made.get_buffer("1.running_var"))
    return made


def started(tmp_path: Path, start: Any, to: nn.Module, **more: Any) -> State:
    """Return what a model has where a training begins; nothing is written for that."""
    assert Checkpoint(tmp_path / "new", {"m": to}, environment={}, start=start, **more).load() == 0
    assert not (tmp_path / "new").exists()
    return to.state_dict()


def safe(path: Path, tensors: State, **changed: Any) -> Path:
    """Write tensors as safetensors has them, with some changes to its table."""
    table: dict[str, Any] = {}
    body = b""
    for name, each in tensors.items():
        raw, at = each.reshape(-1).view(torch.uint8).numpy().tobytes(), len(body)
        kind = {torch.float32: "F32", torch.int64: "I64"}[each.dtype]
        table[name] = {"dtype": kind, "shape": [*each.shape], "data_offsets": [at, at + len(raw)]}
        body += raw
    head = json.dumps({**table, **changed}).encode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(len(head).to_bytes(8, "little") + head + body)
    return path


def hugging_face(folder: Path, state: State, index: str = "", **more: str) -> Path:
    """Write a folder with two files of safetensors; `more` is what the index names wrongly."""
    halves = {name: number % 2 for number, name in enumerate(state)}
    for half in (0, 1):
        safe(folder / f"{half}.safetensors", {name: state[name] for name, of in halves.items() if of == half})
    weights = {**{name: f"{of}.safetensors" for name, of in halves.items()}, **more}
    (folder / "model.safetensors.index.json").write_text(index or json.dumps({"weight_map": weights}))
    return folder


def saved(path: Path, state: Any) -> Path:
    torch.save(state, path)
    return path


def dcp(folder: Path, state: State, spoil: Callable[[Path], object] = lambda _: None) -> Path:
    as_dcp({"model": state, "optimizer": {"state": {"0.weight": torch.ones(9)}}, "epoch": 3}, folder)
    spoil(folder)
    return folder


def ours(folder: Path, state: State) -> Path:
    other = model()
    other.load_state_dict(state)
    Checkpoint(folder, {"m": other, "notes": {"a": 1}}, every=1, save_every=1, environment={}).save(7)
    return folder


def named(state: State, prefix: str) -> State:
    return {prefix + name: each for name, each in state.items()}


FORMS: dict[str, Callable[[Path, State], Path]] = {
    "safetensors": lambda at, state: safe(at / "m.safetensors", state),
    "of torch.compile": lambda at, state: safe(at / "m.safetensors", named(state, "_orig_mod.")),
    "Hugging Face": lambda at, state: hugging_face(at / "hf", state),
    "of DDP": lambda at, state: saved(at / "m.pt", named(state, "module.")),
    "Lightning": lambda at, state: saved(
        at / "m.ckpt", {"epoch": 1, "states": [torch.ones(1)], "state_dict": named(state, "model.")}
    ),
    "DCP": lambda at, state: dcp(at / "dcp", state),
    "another training": lambda at, state: ours(at / "other", state),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_training_begins_with_what_others_have_trained(tmp_path: Path, form: str) -> None:
    there = model().state_dict()
    found = started(tmp_path, FORMS[form](tmp_path, there), model())
    assert found.keys() == there.keys()
    assert all(torch.equal(found[name], each) for name, each in there.items())


class Stranger:
    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-1])
    return path


def pt(at: Path, state: State, **more: Any) -> Path:
    return saved(at / "m.pt", {**state, **more})


def st(at: Path, state: State, shape: int = 0, begin: int = 0, end: int = 0) -> Path:
    """Write safetensors with one more name in its table."""
    more = {"x": {"dtype": "F32", "shape": [shape], "data_offsets": [begin, end]}} if shape else {}
    return safe(at / "m.safetensors", state, **more)


def twice(at: Path, state: State) -> Path:
    """Write a folder in whose files a name has two values."""
    bias = {"0.bias": state["0.bias"] + 1}
    return safe(
        hugging_face(at / "hf", state) / "0.safetensors", {**dict([*state.items()][::2]), **bias}
    ).parent


def strange(folder: Path) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps(Stranger(folder / "ran")))


REFUSED: dict[str, Callable[[Path, State], Path]] = {
    "there is no": lambda at, _: at / "absent",
    "there is no checkpoint": lambda at, _: at,
    "1.bias is not in the checkpoint": lambda at, s: saved(at / "m.pt", dict([*s.items()][:3])),
    "m.more, m.most only in the": lambda at, s: pt(at, s, more=s["0.bias"], most=s["0.bias"]),
    "1.bias has the shape": lambda at, s: pt(at, s, **{"1.bias": torch.ones(3)}),
    "float64 there and float32 here .cast=True": lambda at, s: pt(
        at, s, **{"0.bias": torch.ones(2).double()}
    ),
    "weights_only=True": lambda at, s: pt(at, s, x=Stranger(at / "ran")),
    "is no plain tensor": lambda at, s: pt(at, s, x=torch.ones(3, device="meta")),
    "which runs no code of others": lambda at, s: cut(pt(at, s)),
    "it is cut": lambda at, s: cut(st(at, s)),
    "its table would end": lambda at, s: saved(at / "m.safetensors", s),
    "can have .8, 32. alone": lambda at, s: st(at, s, 2, 0, 8),
    "has the range .900, 908.": lambda at, s: st(at, s, 2, 900, 908),
    "no table of safetensors": lambda at, s: st(at, s, -1),
    "index.json cannot be read": lambda at, s: hugging_face(at / "hf", s, '{"weight_map": {"0.w'),
    "that are not there: x in 0": lambda at, s: hugging_face(at / "hf", s, x="0.safetensors"),
    "'../m.pt', which is not in": lambda at, s: hugging_face(pt(at, s).parent / "hf", s, x="../m.pt"),
    "0.bias in two files, with other bytes": twice,
    "posix.system, which is none of torch's": lambda at, s: dcp(at / "dcp", s, strange),
    "distcp is cut": lambda at, s: dcp(at / "dcp", s, lambda to: cut(to / "__0_0.distcp")),
    "metadata cannot be read": lambda at, s: dcp(at / "dcp", s, lambda to: cut(to / ".metadata")),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_does_not_fit_or_is_damaged_is_refused_in_a_sentence(tmp_path: Path, sentence: str) -> None:
    start = REFUSED[sentence](tmp_path, model().state_dict())
    with pytest.raises(ValueError, match=sentence) as error:
        started(tmp_path, start, model())
    assert "\n" not in str(error.value)
    assert not [*tmp_path.rglob("ran"), *tmp_path.glob("new")]


def test_floats_of_another_type_names_to_leave_and_tied_weights_are_allowed(tmp_path: Path) -> None:
    there = {"a.weight": torch.ones(2, 2).double(), "head.bias": torch.ones(3)}
    to = nn.ModuleDict(
        {"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False), "c": nn.Linear(1, 1)}
    )
    to["b"].weight = to["a"].weight
    own = to.get_parameter("c.weight").clone()
    found = started(tmp_path, pt(tmp_path, there), to, cast=True, allow_missing=["m.c.*", "m.head.*"])
    assert torch.equal(found["b.weight"], torch.ones(2, 2))
    assert torch.equal(found["c.weight"], own)


def test_each_of_several_models_has_a_start_of_its_own(tmp_path: Path) -> None:
    states = {name: nn.Linear(2, 2).state_dict() for name in ("a", "b")}
    paths = {name: saved(tmp_path / name, each) for name, each in states.items()}
    models = {name: nn.Linear(2, 2) for name in states}
    Checkpoint(tmp_path / "new", models, environment={}, start=paths).load()
    assert all(torch.equal(models[name].weight, states[name]["weight"]) for name in states)
    for start, wrong in ((paths["a"], "the state has 2: give"), ({"c": paths["a"]}, "start has 'c'")):
        with pytest.raises(ValueError, match=wrong):
            Checkpoint(tmp_path / "new", models, environment={}, start=start).load()


def test_an_optimizer_goes_on_with_its_moments_and_the_rate_of_the_script(tmp_path: Path) -> None:
    def training(place: str, rate: float, **more: Any) -> tuple[Checkpoint, torch.optim.Optimizer]:
        linear = nn.Linear(1, 1)
        adam = torch.optim.Adam(linear.parameters(), lr=rate)
        linear(torch.ones(1)).sum().backward()
        state = {"model": linear, "optimizer": adam, "notes": {"of": place}}
        return Checkpoint(tmp_path / place, state, every=1, save_every=1, environment={}, **more), adam

    first, adam = training("first", 0.5)
    adam.step()
    first.save(1)
    second, other = training("second", 0.25, start=tmp_path / "first")
    assert second.load() == 0
    assert [each["exp_avg"] for each in other.state.values()] == [
        each["exp_avg"] for each in adam.state.values()
    ]
    assert other.param_groups[0]["lr"] == 0.25


def test_what_one_worker_cannot_use_none_does(tmp_path: Path) -> None:
    path, meeting = pt(tmp_path, model().state_dict()), Meeting(2)

    def worker(rank: int, mine: nn.Module) -> str:
        before = {name: each.clone() for name, each in mine.state_dict().items()}
        readers = Readers(meeting.exchange(rank), rank, True, lambda _: None)
        with pytest.raises(ValueError, match="has the shape") as error:
            begin(str(path), {"m": mine}, Tensors(), {}, readers, 2, cast=False)
        assert all(torch.equal(each, before[name]) for name, each in mine.state_dict().items())
        return str(error.value)

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(worker, (0, 1), (model(), nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))))
    assert one == other
