"""Checkpoints of a training that runs alone, and of those that an agent keeps in memory for its workers."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import IterableDataset

from elasticjob.trainer.checkpoint import memory
from elasticjob.trainer.checkpoint.flash import Flash
from elasticjob.trainer.checkpoint.memory import blocks_of
from elasticjob.trainer.checkpoint.part import Damaged, Save
from elasticjob.trainer.link.channel import FD
from elasticjob.trainer.torch import checkpoint as module
from elasticjob.trainer.torch.checkpoint import Checkpoint, ResumableLoader
from elasticjob.trainer.torch.saving.tensors import Tensors
from elasticjob.trainer.torch.saving.tree import StateParts
from lab.jobs.training.device import DEVICE


def training(where: Path, **more: Any) -> tuple[Checkpoint, nn.Module, dict[str, Any]]:
    model = nn.Linear(3, 2, device=DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    notes: dict[str, Any] = {}
    state = {"model": model, "optimizer": optimizer, "notes": notes}
    checkpoint = Checkpoint(where, state, **{"every": 1, "save_every": 1, "environment": {}, **more})
    model(torch.ones(3, device=DEVICE)).sum().backward()
    optimizer.step()
    return checkpoint, model, notes


def test_what_was_saved_is_there_again(tmp_path: Path) -> None:
    checkpoint, model, notes = training(tmp_path)
    notes |= {"seen": [1, (2, "three")], "mean": torch.tensor(0.5), "of numpy": np.float64(2)}
    checkpoint.save(7)
    again, other, found = training(tmp_path)
    assert again.load() == 7
    assert torch.equal(other.get_parameter("weight"), model.get_parameter("weight"))
    assert found == notes


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(10)


@pytest.mark.parametrize("dataset", [Stream(), list(range(10))])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_were_taken_do_not_come_again(tmp_path: Path, dataset: Any, workers: int) -> None:
    def loader() -> ResumableLoader:
        shuffle = {} if isinstance(dataset, Stream) else {"shuffle": True}
        return ResumableLoader(dataset, batch_size=4, num_workers=0 if shuffle == {} else workers, **shuffle)

    def life(steps: int, last: int) -> list[Any]:
        data, taken = loader(), list[Any]()
        checkpoint = Checkpoint(tmp_path, {"data": data}, every=1, save_every=1, environment={})
        begun = checkpoint.load()
        batches = data.endless()
        for step in range(begun + 1, last + 1):
            taken.append(next(batches).tolist())
            if step > begun + steps:
                break  # killed before this step was saved
            checkpoint.save(step)
        return taken[: last - begun] if begun + steps >= last else taken[:steps]

    expected = [batch.tolist() for batch, _ in zip(loader().endless(), range(8), strict=False)]
    assert [batch for steps in (2, 1, 2, 3) for batch in life(steps, 8)] == expected


def test_only_some_steps_are_saved_and_the_last_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoint, _, _ = training(tmp_path, every=2, save_every=4, keep=9)
    assert list(checkpoint.steps(9)) == list(range(1, 10))
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"step-{n:09d}" for n in (4, 8, 9)]
    assert list(training(tmp_path)[0].steps(12)) == [10, 11, 12]
    assert not caplog.text
    assert list(training(tmp_path)[0].steps(12)) == []
    assert "the checkpoint is of step 12, and steps(12) asks for no more" in caplog.text


def left(checkpoint: Checkpoint, how: str) -> None:
    """Leave a loop of nine steps in the fourth."""

    def passed_on() -> Iterator[int]:
        yield from checkpoint.steps(9)

    def taken_on() -> Iterator[int]:
        for each in checkpoint.steps(9):  # noqa: UP028  # as tqdm does
            yield each

    by: dict[str, Callable[[], Iterator[int]]] = {
        "from": passed_on,
        "generator": taken_on,
        "zip": lambda: (each for each, _ in zip(checkpoint.steps(9), range(9), strict=True)),
    }
    for step in by.get(how, lambda: checkpoint.steps(9))():
        if step == 4 and how == "raise":
            raise ArithmeticError("the loss is nan")
        if step == 4 and how == "called":
            int("nan")
        if step == 4 and how == "return":
            return
        if step == 4:
            break


@pytest.mark.parametrize(
    ("how", "saved"),
    [
        *((how, True) for how in ("break", "return", "from", "generator", "zip")),
        ("raise", False),
        ("called", False),
    ],
)
def test_a_loop_that_the_script_leaves_is_saved_and_not_gone_on_with(
    tmp_path: Path, how: str, saved: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with suppress(ArithmeticError, ValueError):
        left(training(tmp_path, every=3, save_every=3)[0], how)
    assert training(tmp_path)[0].load() == (4 if saved else 3)
    for total, rest in (
        (9, [] if saved else [4, 5, 6, 7, 8, 9]),
        (10, [5, 6, 7, 8, 9, 10] if saved else [10]),
    ):
        assert list(training(tmp_path)[0].steps(total)) == rest
    assert ("ended its loop by itself before, after step 4 of the checkpoint" in caplog.text) is saved


def test_an_older_checkpoint_is_loaded_if_the_newest_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint, _, _ = training(tmp_path)
    checkpoint.save(5)
    checkpoint.save(10)
    path = next(tmp_path.glob("step-000000010/part*"))
    path.write_bytes(path.read_bytes()[:4100])
    assert training(tmp_path)[0].load() == 5
    assert "the checkpoint of step 10" in caplog.text
    path = next(tmp_path.glob("step-000000005/part*"))
    path.write_bytes(b"half of it")
    with pytest.raises(Damaged, match=r"no checkpoint in .* can be read"):  # it does not begin anew
        training(tmp_path)[0].load()


@pytest.mark.parametrize(
    ("notes", "sentence"),
    [({"f": print}, "could not be read again"), ({"f": np.ones(2)}, "could not be read again")],
)
def test_what_nobody_could_read_is_refused_when_it_is_written(
    tmp_path: Path, notes: dict[str, Any], sentence: str
) -> None:
    checkpoint, _, mine = training(tmp_path)
    mine |= notes
    with pytest.raises(TypeError, match=sentence):
        checkpoint.save(5)
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_a_worker_has_started_saves_by_itself(tmp_path: Path) -> None:
    """It inherits the variables of the agent, and not the descriptor of the channel."""
    inherited = {FD: "987", memory.FOLDER: str(tmp_path / "memory")}
    (tmp_path / "memory").mkdir()
    training(tmp_path / "kept", environment=inherited)[0].save(3)
    assert not list((tmp_path / "memory").iterdir())
    assert training(tmp_path / "kept", environment=inherited)[0].load() == 3


def test_checkpoints_in_two_places_do_not_mix(tmp_path: Path) -> None:
    agent = {memory.FOLDER: str(tmp_path)}
    one, other = (
        Flash(str(tmp_path / place), Tensors(), keep=1, environment=agent, say=lambda _: None)
        for place in "ab"
    )
    for flash, step in ((one, 4), (other, 9)):
        flash.save({"at": step}, Save(step, 1), 0, persist=False, exchange=alone)
    assert one.load(alone, 0, lambda rest, tensors: {}) == ({"at": 4}, Save(4, 1))
    one.close()
    other.close()


def alone(data: bytes) -> list[bytes]:
    """What one worker exchanges with itself."""
    return [data]


class Keeping(nn.Linear):
    """A model that keeps what it is given, as any object may that loads by itself."""

    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        self.given = dict(state)
        return super().load_state_dict(state, strict, assign)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment in which a Checkpoint uses the memory of a node."""
    ours, agents = socket.socketpair()
    with ours, agents:
        monkeypatch.setattr(module, "channel_to", lambda _: ours)
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        yield {memory.FOLDER: str(tmp_path)}


def test_what_was_loaded_stays_when_its_block_is_overwritten(tmp_path: Path, agent: dict[str, str]) -> None:

    def worker() -> tuple[Checkpoint, dict[str, Any]]:
        model, keeping = nn.Linear(3, 2, device=DEVICE), Keeping(3, 2)
        notes = {"mean": torch.ones(2, device=DEVICE)}
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(3, device=DEVICE)).sum().backward()
        optimizer.step()
        state = {"model": model, "keeping": keeping, "optimizer": optimizer, "notes": notes}
        return Checkpoint("memory://", state, every=1, save_every=1, environment=agent), state

    def content(state: dict[str, Any]) -> dict[str, Any]:
        whole = {name: each if name == "notes" else each.state_dict() for name, each in state.items()}
        taken = StateParts(whole | {"given": state["keeping"].given})
        return {name: each.tolist() for name, each in taken.tensors.items()}

    worker()[0].save(1)
    again, state = worker()
    place = state["model"].weight.data_ptr()
    assert again.load() == 1
    assert state["model"].weight.data_ptr() == place
    before = content(state)
    with torch.no_grad():
        state["keeping"].weight.zero_()  # not even in what it was given
    before["keeping/weight"] = [[0.0] * 3] * 2
    for step in (2, 3):
        worker()[0].save(step)
    assert [each.head.step for each in blocks_of(tmp_path)] == [3, 2]
    assert content(state) == before


def test_a_last_step_that_is_in_memory_alone_is_written(
    tmp_path: Path, agent: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its save may have failed, and those that had the other parts may be gone."""
    told: list[Any] = []
    monkeypatch.setattr(Checkpoint, "_say", lambda _, message: told.append(message))
    for _ in range(2):
        told.clear()
        checkpoint = Checkpoint(tmp_path / "kept", {"notes": {}}, every=1, save_every=5, environment=agent)
        list(checkpoint.steps(3))
        assert (told[-1].step, told[-1].persist) == (3, True)


def test_another_state_than_that_of_the_checkpoint_is_told(tmp_path: Path) -> None:
    training(tmp_path)[0].save(5)
    mine = nn.Linear(3, 2)
    before = mine.weight.tolist()
    with pytest.raises(ValueError, match=r"step 5 in .* has \['model', 'notes', 'optimizer'\], and C"):
        Checkpoint(tmp_path, {"model": mine}, environment={}).load()
    assert mine.weight.tolist() == before


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ({"every": 3, "save_every": 10}, ValueError, "save_every is 10: give a multiple of every, 3"),
        ({"every": 0}, ValueError, "every"),
        ({"state": {"best": 0.5}}, TypeError, r"state\['best'\] is a float: give objects with state_dict"),
    ],
)
def test_wrong_arguments_are_refused(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        Checkpoint(tmp_path, **{"state": {}, "environment": {}, **given})


class Parts:
    """Stands for the copies of one of several workers that have a part of the state each."""

    def __init__(self, divided: bool) -> None:
        self.divided, self.steps = divided, list[int]()

    def save(self, state: Any, save: Save, rank: int, **_: Any) -> None:
        self.steps.append(save.step)

    def expect(self, *_: Any) -> None:
        pass


@given(st.integers(1, 9), st.floats(0, 0.9), st.floats(0.01, 3.0), st.booleans())
def test_workers_that_are_asked_to_end_moments_apart_have_copied_one_step(
    asked: int, apart: float, takes: float, divided: bool
) -> None:
    """Two workers in lockstep: each step takes as long on both, and none ends without both."""
    now, flashes = [0.0], [Parts(divided), Parts(divided)]
    workers = [
        Checkpoint(
            "memory://", {"notes": {}}, every=100, save_every=100, environment={}, clock=lambda: now[0]
        )
        for _ in flashes
    ]
    for worker, flash in zip(workers, flashes, strict=True):
        worker._flash = flash  # type: ignore[assignment]  # a divided model takes two processes
    left = False
    for step in range(1, 1000):
        now[0] = step * takes
        for worker, late in zip(workers, (0.0, apart), strict=True):
            worker._asked |= now[0] >= asked * takes + late
            try:
                worker.save(step)
            except SystemExit:
                left = True
        if left:
            break
    assert left
    if divided:
        assert max(flashes[0].steps) in flashes[1].steps
    else:
        assert flashes[0].steps == [asked]
