"""The gradient's noise scale, as reported, against its formula in plain torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elasticjob.trainer.records.batch import bounds
from elasticjob.trainer.records.sampler import Position, Sampler
from elasticjob.trainer.torch.noise import KEEPS, Noise
from elasticjob.trainer.torch.records.data import permutation
from lab.jobs.training.harness import scenario
from lab.jobs.training.warm import Warm
from lab.scripts.shared import model_at_start, problem
from lab.truths.counted import BATCH, SIZE, check
from lab.truths.model import CLIP


def expected(pieces: int, epochs: int) -> float:
    """Return the noise scale after the training of counted.py, whose steps are cut into so many pieces."""
    (x, y), layer = problem(SIZE), model_at_start()
    weight, bias = layer.weight, layer.bias
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    sampler, position, number = Sampler(SIZE, BATCH, pieces), Position(), 0
    variance = norm = 0.0
    total = sampler.steps_left(position, epochs)
    while position.epoch < epochs:
        window, number = sampler.window(position), number + 1
        order = permutation(SIZE, 0, position.epoch)[window.places.start : window.places.stop]

        def square_of(records: Tensor) -> float:
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(F.linear(x[records], weight, bias), y[records]))
            assert weight.grad is not None and bias.grad is not None  # noqa: PT018
            return float(weight.grad.pow(2).sum() + bias.grad.pow(2).sum())

        cut = [order[part.start : part.stop] for part in bounds(len(order), window.count)]
        small = sum(len(part) / len(order) * square_of(part) for part in cut)
        big = square_of(order)
        if number % 2 == 0 and window.count > 1 and number < total:
            spread = (small - big) / (window.count - 1)
            variance = KEEPS * variance + (1 - KEEPS) * len(order) * spread
            norm = KEEPS * norm + (1 - KEEPS) * (big - spread)
        torch.nn.utils.clip_grad_norm_([weight, bias], CLIP)
        optimizer.step()
        position = sampler.following(window)
    return variance / norm


@pytest.mark.story
async def test_the_scale_is_reported_and_three_workers_compute_what_one_does(
    tmp_path: Path, warm: Warm
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        agent = await job.agent(0, "counted.py", 4, flags=("--nproc-per-node", "3"))
        assert await job.ends(agent) == 0
        check(job, slots=3, epochs=4)
        assert job.last()["world"] == 3
        training = job.master.job.training
        assert training.progress is not None
        assert training.progress.metrics["gradient_noise_scale"] == pytest.approx(expected(3, 4), rel=1e-4)


@pytest.mark.parametrize(
    ("every", "number", "pieces", "measures"),
    [(0, 10, 4, False), (5, 10, 4, True), (5, 11, 4, False), (5, 10, 1, False)],
)
def test_what_is_measured(every: int, number: int, pieces: int, measures: bool) -> None:
    model, noise = nn.Linear(2, 1), Noise(every)
    noise.begin(number, pieces, list(model.parameters()))
    assert noise.measures is measures
    assert noise.scale is None


def test_a_step_of_another_world_is_not_counted() -> None:
    model, noise = nn.Linear(2, 1), Noise(1)
    for round_, sent in ((1, 0.0), (2, 0.0), (2, 2.5)):
        parameters = list(model.parameters())
        noise.begin(1, 2, parameters)
        assert noise.mine(round_) == sent
        noise.weigh(0.5, 1.0)
        torch.autograd.backward(model(torch.tensor([[1.0, 2.0]])) - model(torch.zeros(1, 2)))
        noise.finish(round_, 2, 8, parameters)
        noise.learn(sent)
        assert not noise.measures
