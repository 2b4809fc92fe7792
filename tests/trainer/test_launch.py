"""`elasticjob.launch`: functions in elastic workers that are forks of the calling process."""

from __future__ import annotations

import asyncio
import functools
import gc
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn

import elasticjob
from elasticjob.trainer.launch import LaunchFailed, check, keep, meeting, result
from elasticjob.trainer.launched import Running
from elasticjob.trainer.link.channel import FD
from elasticjob.trainer.references import uses_elastic
from elasticjob.trainer.torch import Elastic, saved


class Trainer:
    def __init__(self, make: Any = None) -> None:
        self.make = make

    def fit(self) -> None:
        made()

    def plain(self) -> None:
        len("")


def made() -> Any:
    return Elastic(nn.Linear(1, 1), torch.optim.SGD([torch.zeros(1)]))


def imported() -> None:
    from elasticjob.trainer.torch import Elastic as Other

    Other.__name__.lower()


def summed(scale: int) -> dict[str, float]:
    dist.init_process_group("gloo")
    total = torch.ones(1) * dist.get_rank() * scale
    dist.all_reduce(total)
    return {"sum": total.item()}


def of_closure() -> Callable[[], Any]:
    make = Elastic
    return lambda: make.__name__


@pytest.mark.parametrize(
    ("fn", "elastic"),
    [
        (made, True),
        (lambda: made(), True),
        (lambda: [made() for _ in range(2)], True),
        (functools.partial(made), True),
        (of_closure(), True),
        (imported, True),
        (Trainer().fit, True),
        (summed, False),
        (lambda: summed(2), False),
        (len, False),
    ],
)
def test_a_function_that_makes_an_elastic_is_told_by_its_code(fn: Callable[..., Any], elastic: bool) -> None:
    assert uses_elastic(fn) is elastic


def test_launch_is_refused_where_a_fork_would_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    check(2)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(RuntimeError, match=r"CUDA is in use in this process.*restart the kernel"):
        check(2)
    monkeypatch.undo()
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    with pytest.raises(RuntimeError, match="destroy_process_group"):
        check(2)
    monkeypatch.setenv(FD, "3")
    with pytest.raises(RuntimeError, match="called in a worker"):
        check(2)
    for wrong in ({"nproc": 0}, {"nodes": 0}, {"nodes": "many"}):
        monkeypatch.undo()
        with pytest.raises(ValueError, match="give 1 or more"):
            elasticjob.launch(summed, **wrong)


def test_several_nodes_meet_at_an_endpoint_with_a_secret_of_their_own() -> None:
    assert meeting(1, 1) == ["--standalone"]
    one, other = meeting("1:3", 3), meeting(3, 3)
    assert one[:2] == ["--nnodes", "1:3"]
    assert one[-1] != other[-1]


@pytest.mark.parametrize(
    ("value", "back"), [({"a": [1.5, (2,)]}, {"a": [1.5, [2]]}), (None, None), ({1: 2}, {"1": 2})]
)
def test_what_json_has_comes_back(tmp_path: Path, value: Any, back: Any) -> None:
    path = tmp_path / "result.json"
    assert result(path, "train") is None, "rank 0 has not returned"
    keep(value, path)
    assert result(path, "train") == back


ITSELF: list[Any] = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (torch.ones(1), "a Tensor, which is not JSON"),
        ({"loss": [1, torch.ones(1)]}, "a dict with a Tensor, which is not JSON"),
        ({(1, 2): 3}, "a dict, which is not JSON (keys must be str, int, float, bool or None, not tuple)"),
        (ITSELF, "a list, which is not JSON (Circular reference detected)"),
    ],
)
def test_what_json_has_not_is_told(tmp_path: Path, value: Any, told: str) -> None:
    keep(value, tmp_path / "result.json")
    with pytest.warns(UserWarning, match=re.escape(f"train returned {told}: launch returns None")):
        assert result(tmp_path / "result.json", "train") is None


def test_keyword_arguments_of_the_function_have_a_place() -> None:
    with pytest.raises(TypeError, match=r"'ck'.*kwargs=\{'ck': …\}"):
        elasticjob.launch(summed, 16, ck="x")


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        ([{"reason": "Completed"}], ""),
        ([{"reason": "WorkerFailed", "message": "worker 0 failed"}, {"reason": "Completed"}], ""),
        ([{"reason": "Stopped", "message": "the job ended"}, {"reason": "Failed", "message": "why"}], "why"),
        ([None], "the agent ended with exit code -9"),
    ],
)
@pytest.mark.parametrize("returned", [True, False])
def test_a_job_failed_unless_rank_0_returned_and_a_node_completed_it(
    tmp_path: Path, ends: list[Any], reason: str, returned: bool
) -> None:
    job = Running(0, tmp_path, agents=[*range(len(ends))], ended={0: 9})
    for node, words in enumerate(ends):
        if words is not None:
            (tmp_path / f"end-{node}").write_text(json.dumps(words))
    if returned or reason:
        assert job.reason(returned) == reason
    else:
        told = (
            "worker 0 failed" if len(ends) > 1 else "rank 0 has not returned: it was killed, or ended itself;"
        )
        assert job.reason(returned).startswith(told)


@pytest.mark.story
def test_a_main_worker_that_ends_itself_has_returned_nothing(nothing_left: None) -> None:
    """As one that is killed after the others have ended."""
    with pytest.raises(LaunchFailed, match="rank 0 has not returned"):
        elasticjob.launch(lambda: os._exit(0), nproc=1)
    assert elasticjob.launch(lambda: sys.exit(0), nproc=1) is None


@pytest.fixture
def nothing_left() -> Any:
    """After the test this process has no children, descriptors or exit handlers more than before."""
    mine = psutil.Process()
    before = mine.children()  # such as the server of a multiprocessing test
    files = {each: os.readlink(f"/proc/self/fd/{each}") for each in map(int, os.listdir("/proc/self/fd"))
             if os.path.exists(f"/proc/self/fd/{each}")}  # fmt: skip
    yield
    assert [each for each in mine.children() if each not in before] == []
    assert len(os.listdir("/proc/self/fd")) <= len(files) + 1


@pytest.mark.story
def test_functions_run_again_and_again_in_one_process(
    capsys: pytest.CaptureFixture[str], nothing_left: None
) -> None:
    """This process has computed, with threads and backwards: a fork of it trains all the same."""
    weights = torch.randn(300, 300, requires_grad=True)
    torch.autograd.backward((weights @ weights).sum())

    def learn(width: int) -> list[float]:
        model = nn.Linear(4, width)
        elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1))
        table = torch.arange(64.0).view(16, 4) / 64
        data = elastic.loader(list(table), global_batch=8)
        losses = []
        for step in elastic.steps(data, epochs=2):
            with step:
                for batch in step:
                    step.backward((elastic.model(batch) - 1).square().mean())
            losses.append(step.loss)
        print("learnt", width, "as one of", elastic.world_size)
        return losses

    results = [elasticjob.launch(learn, width, nproc=2) for width in (2, 2, 3)]
    assert [len(each) for each in results] == [4, 4, 4]
    assert results[0][0] > results[0][-1]

    async def cell() -> Any:  # of a notebook, in its event loop
        return elasticjob.launch(lambda: summed(2), nodes=2, nproc=1)

    assert asyncio.run(cell()) == {"sum": 2.0}
    assert elasticjob.launch(summed, nproc=2, kwargs={"scale": 3}) == {"sum": 3.0}
    assert capsys.readouterr().out.count("learnt 2 as one of 2") == 4
    assert not dist.is_initialized()


class Native:
    """A cycle that must end in the process that made it, as a process group of torch."""

    def __init__(self, told: Path) -> None:
        self.me, self.told, self.owner = self, told, os.getpid()

    def __del__(self) -> None:
        if os.getpid() != self.owner:
            self.told.touch()


@pytest.mark.story
def test_what_the_launcher_has_not_collected_is_left_alone(tmp_path: Path, nothing_left: None) -> None:
    gc.disable()
    try:
        Native(tmp_path / "collected")
        assert elasticjob.launch(lambda: gc.collect() >= 0, nproc=1) is True
    finally:
        gc.enable()
    assert not list(tmp_path.iterdir())


@pytest.mark.story
def test_a_failure_is_raised_with_the_last_lines(
    capsys: pytest.CaptureFixture[str], nothing_left: None
) -> None:
    def fail() -> None:
        raise ValueError("what a pity")

    with pytest.raises(LaunchFailed) as caught:
        elasticjob.launch(fail, nproc=1, flags=("--max-restarts", "0"))
    assert "ValueError: what a pity" in caught.value.reason
    assert "    raise ValueError" in str(caught.value)
    assert "master of job" not in str(caught.value)

    def once(path: Path) -> str:
        if not path.exists():
            path.touch()
            os._exit(9)
        return "again"

    mark = Path(os.environ.get("TMPDIR", "/tmp")) / f"once-{os.getpid()}"
    try:
        assert elasticjob.launch(once, mark, nproc=1) == "again"
    finally:
        mark.unlink()


@pytest.mark.story
def test_an_interrupt_ends_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], nothing_left: None
) -> None:
    def interrupted(self: Running) -> bool:
        found = read(self)
        if any("at work" in line for line in self.tail):
            monkeypatch.undo()
            raise KeyboardInterrupt
        return found

    def work() -> None:
        print("at work")
        while True:
            torch.ones(1)

    read = Running._read
    monkeypatch.setattr(Running, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        elasticjob.launch(work, nproc=1)
    assert (
        "elasticjob: the launch ends, with all its workers (KeyboardInterrupt)\n" in capsys.readouterr().out
    )


@pytest.mark.story
def test_a_checkpoint_that_fsdp_divided_is_read_whole(tmp_path: Path, nothing_left: None) -> None:
    """Saved by two workers with a part each; rows that do not divide evenly."""

    def save() -> list[float]:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        from elasticjob.trainer.torch.checkpoint import Checkpoint

        dist.init_process_group("gloo")
        torch.manual_seed(0)
        model = nn.Linear(3, 5)
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        optimizer = torch.optim.Adam(model.parameters())
        checkpoint = Checkpoint(tmp_path, {"model": model, "optimizer": optimizer}, every=1, save_every=1)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        checkpoint.save(1, last=True)
        whole = model.get_parameter("weight").full_tensor().detach()  # type: ignore[attr-defined]
        return [float(each) for each in whole.flatten()]

    weight = elasticjob.launch(save, nproc=2)
    found, manifest = saved.found(str(tmp_path))
    assert len(manifest.parts) == 2
    state = saved.Saved(found, manifest).state(saved.in_memory)
    assert state["model"]["weight"].flatten().tolist() == weight
    assert state["optimizer"]["state"]["weight"]["exp_avg"].shape == (5, 3)
