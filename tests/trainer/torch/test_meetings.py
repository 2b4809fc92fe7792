"""`Elastic.mean` and `Elastic.gather`: what they return, alone and among others that are lost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from elasticjob.trainer.loop import whereabouts
from elasticjob.trainer.loop.whereabouts import At
from elasticjob.trainer.torch import Elastic
from elasticjob.trainer.torch.world.values import decode_value, encode_value, mean_of
from lab.jobs.training.harness import scenario
from lab.jobs.training.warm import Warm

CPU = torch.device("cpu")


def tensors() -> list[torch.Tensor]:
    """Return tensors of all kinds and forms."""
    kinds = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.uint16, torch.bool, torch.complex64)
    some = [torch.ones(3).to(kind) for kind in kinds]
    leaf = torch.ones(2, requires_grad=True)
    return [*some, torch.tensor(5), torch.zeros(0, 3), torch.arange(6).view(2, 3).t(), leaf, some[-1].conj()]


def test_values_are_the_same_from_their_bytes() -> None:
    given: dict[Any, Any] = {
        "a": [1, -2.5, None, True, "ü", b"\0", math.inf],
        3: ((), ([], {})),
        "tensors": tensors(),
    }
    got = decode_value(encode_value(given), CPU)
    for mine, theirs in zip(given.pop("tensors"), got.pop("tensors"), strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        assert mine.detach().tolist() == theirs.tolist()
    assert got == given


MEANS: list[tuple[list[Any], Any]] = [
    ([1, 2, True], 4 / 3),
    ([1e16, 1.0, -1e16], 1 / 3),
    ([math.inf, 1.0], math.inf),
    ([{"a": 1, "b": {"c": 2.0}}, {"b": {"c": 4.0}, "a": 2}], {"a": 1.5, "b": {"c": 3.0}}),
    ([torch.tensor([1, 2]), torch.tensor([2, 2])], torch.tensor([1.5, 2.0], dtype=torch.float64)),
    ([torch.tensor(1024.0).half()] * 65, torch.tensor(1024.0).half()),
    ([torch.tensor([True]), torch.tensor([False])], torch.tensor([0.5], dtype=torch.float64)),
    ([torch.ones(2), torch.ones(3)], "tensor of shape (2,) on rank 0 and a float32 tensor of shape (3,)"),
    ([1, torch.ones(())], "value is a number on rank 0 and a float32 tensor of shape () on rank 1"),
    ([{"a": {"b": 1}}, {"a": {"c": 1}}], "value['a'] is a dict of ['b'] on rank 0 and a dict of ['c'] on"),
]


@pytest.mark.parametrize(("values", "mean"), MEANS)
def test_a_mean_is_exact_and_of_values_of_one_kind(values: list[Any], mean: Any) -> None:
    if isinstance(mean, str):
        with pytest.raises(ValueError) as raised:  # noqa: PT011  # the sentence is compared below
            mean_of(values)
        assert mean in str(raised.value)
    elif isinstance(mean, torch.Tensor):
        torch.testing.assert_close(mean_of(values), mean, rtol=0, atol=0)
    else:
        assert mean_of(values) == mean


def test_a_worker_alone_is_all_of_them() -> None:
    model = nn.Linear(2, 1)
    elastic = Elastic(model, torch.optim.SGD(model.parameters()))
    assert elastic.mean({"a": 3}) == {"a": 3.0}
    assert elastic.gather((1, "two")) == [(1, "two")]
    for call, value, sentence in (
        (elastic.mean, {"a": "x"}, r"value\['a'\] is a str: give a number, a tensor, or a dict"),
        (elastic.gather, [{1, 2}], r"value\[0\] is a set: give numbers"),
        (elastic.gather, {(1, 2): 0}, "value is a dict: give numbers"),
        (elastic.gather, torch.ones(1, device="meta"), "whose numbers are not all here"),
    ):
        with pytest.raises(TypeError, match=sentence):
            call(value)
    step = next(elastic.steps(elastic.loader([torch.ones(2)], global_batch=1)))
    with (
        pytest.raises(RuntimeError, match=r"elastic\.mean was called inside of a step: call it outside"),
        step,
    ):
        elastic.mean(1)
    assert elastic.mean(1) == 1.0


@pytest.mark.parametrize(
    ("ats", "sentence"),
    [
        ([At.MEAN, At.MEAN, At.ELSEWHERE], ""),
        ([At.STEP, At.BOUNDARY], ""),
        ([At.MEAN, At.STEP, At.MEAN], r"after step 7: rank 1 in step 8, ranks 0, 2 in elastic\.mean; call"),
        ([At.EVALUATE, At.GATHER], r"rank 0 in elastic\.evaluate, rank 1 in elastic\.gather; call"),
    ],
)
def test_workers_at_different_places_are_told(ats: list[At], sentence: str) -> None:
    if not sentence:
        whereabouts.check(7, ats)
        return
    with pytest.raises(ValueError, match=sentence):
        whereabouts.check(7, ats)


@pytest.mark.story
async def test_a_collective_of_ones_own_that_a_loss_ends_says_what_to_use(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        (job.counted / "own-4-1").touch()
        agents = [await job.agent(index, "meeting.py", 9, "own") for index in (0, 1)]
        await job.strike("own-4")
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        assert job.said("use elastic.mean or elastic.gather")


@pytest.mark.story
async def test_means_and_gathers_survive_losses(tmp_path: Path, warm: Warm) -> None:
    """Newcomers have what the others had before their first step; survivors stay, and all have the same."""
    steps, losses = 40, {"early": 1, "mean-5": 0, "gather-20": 1}
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        for place, rank in losses.items():
            (job.counted / f"{place}-{rank}").touch()
        agents = [await job.agent(index, "meeting.py", steps) for index in (0, 1)]
        for place in losses:
            await job.strike(place)
        assert [await job.ends(agent) for agent in agents] == [0, 0]
    early, came = job.records("early"), job.records("came")
    assert len({each["early"] for each in early}) == 1
    assert len(early) == 2 + len(losses) - 1  # who is lost early has not said it
    assert {each["number"] for each in came} == {*range(1, steps + 1)}
    for number in range(1, steps + 1):
        those = [each for each in came if each["number"] == number]
        assert len({each["came"] for each in those}) == 1, number
        assert f"tensor([{number}., {number}.], dtype=torch.float64)" in those[0]["came"]
        assert all(each["mine"] for each in those)
    assert len({each["pid"] for each in came}) == 4


@pytest.mark.story
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("alone", "after step 3: rank 1 in step 4, rank 0 in elastic.mean; call evaluate"),
        ("kinds", "after step 3: rank 0 in elastic.mean, rank 1 in elastic.gather; call evaluate"),
    ],
)
async def test_calls_that_do_not_match_end_in_a_sentence(
    tmp_path: Path, warm: Warm, wrong: str, sentence: str
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        flags = ("--nproc-per-node", "2", "--max-restarts", "0")
        agent = await job.agent(0, "meeting.py", 9, wrong, flags=flags)
        assert await job.ends(agent) == 1
        assert sum(sentence in line.text for line in job.lines) >= 2
        assert not any(each["number"] > 3 for each in job.records("came"))
