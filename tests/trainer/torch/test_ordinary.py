"""Ordinary use of a training: killed anywhere, changed between lives, odd losses, random numbers, names."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import RandomSampler, WeightedRandomSampler

from elasticjob.trainer.agent.processes.warm import warm_up
from elasticjob.trainer.loop.losses import CALM, Losses
from elasticjob.trainer.loop.world import is_behind
from elasticjob.trainer.torch import Elastic, PerEpoch
from elasticjob.trainer.torch.records.randomness import seed_torch
from elasticjob.trainer.torch.saving.tree import StateParts, decode, together
from lab.jobs.training.device import DEVICE
from tests.trainer.torch.training import steps, trained

X = torch.arange(24, dtype=torch.float64).view(12, 2) / 24
Y = (X.sum(dim=1) > 1).long()
DATA = list(zip(X, Y, strict=True))


def model_of(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.3), nn.Linear(4, 2)).double().to(DEVICE)


def forked(act: Callable[[], Any]) -> Any:
    """Return what `act` returns in a process of its own; None if it ends itself before."""
    reader, writer = os.pipe()
    if not (pid := os.fork()):
        os.close(reader)
        with os.fdopen(writer, "w") as file:
            json.dump(act(), file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    os.waitpid(pid, 0)
    return json.loads(said) if said else None


def life(place: Path, save_every: int, ends: str = "") -> dict[str, Any]:
    """Train three epochs of four steps with all that an epoch's end has; end without a word at a place."""

    def here(mark: str) -> None:
        if mark == ends:
            os._exit(9)

    model = model_of()
    body = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    plateau = ReduceLROnPlateau(body, mode="max", factor=0.5, patience=0)
    notes: dict[str, Any] = {"steps": 0, "scores": []}
    elastic = Elastic(
        model,
        body,
        scheduler=[StepLR(body, 5, 0.9), PerEpoch(StepLR(body, 2, 0.8)), PerEpoch(plateau, "accuracy")],
        keep={"notes": notes},
        checkpoint=place,
        save_every=save_every,
    )
    data = elastic.loader(DATA, global_batch=3)
    test = elastic.loader(DATA, global_batch=6, shuffle=False)

    def score(batch: list[Tensor]) -> dict[str, Tensor]:
        return {"accuracy": (elastic.model(batch[0]).argmax(dim=1) == batch[1]).double().mean()}

    for step in elastic.steps(data, epochs=3):
        with step:
            for x, y in step:
                step.backward(F.cross_entropy(elastic.model(x), y))
            here(f"in {step.number}")
        notes["steps"] += 1
        here(f"after {step.number}")
        if step.ends_epoch:
            notes["scores"].append(elastic.evaluate(test, score)["accuracy"])
            here(f"evaluated {step.number}")
    weights = [value for each in model.parameters() for value in each.flatten().tolist()]
    return {
        "weights": weights,
        "notes": notes,
        "rate": body.param_groups[0]["lr"],
        "bad": plateau.num_bad_epochs,
    }


@pytest.mark.story
@pytest.mark.parametrize("save_every", [1, 4])
def test_an_epoch_ends_once_wherever_the_training_is_killed(tmp_path: Path, save_every: int) -> None:
    warm_up()
    expected = forked(lambda: life(tmp_path / "undisturbed", save_every))
    assert expected["notes"]["steps"] == 12
    places = ("in 4", "after 4", "evaluated 4", "after 5", "evaluated 8", "evaluated 12")
    for place in places:
        assert forked(partial(life, tmp_path / place, save_every, place)) is None
        assert forked(partial(life, tmp_path / place, save_every)) == expected, place


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"records": 10}, "records 12 became 10"),
        ({"seed": 1}, "seed 0 became 1"),
        ({"shuffle": False}, "shuffle True became False"),
        ({"global_batch": 4}, "global batch 3 became 4"),
        ({}, ""),
    ],
)
def test_other_data_within_an_epoch_are_refused(
    tmp_path: Path, changed: dict[str, Any], sentence: str
) -> None:
    def until(last: int, records: int = 12, seed: int = 0, **given: Any) -> None:
        elastic, _ = simple(seed=seed, checkpoint=tmp_path, save_every=1)
        data = elastic.loader(DATA[:records], **{"global_batch": 3, **given})
        trained(elastic, data, lambda batch: elastic.model(batch[0]).mean(), steps=last)

    until(2)
    if not sentence:
        until(6)
        return
    with pytest.raises(ValueError, match=f"has taken 6 records of epoch 0 in another order: .*{sentence}"):
        until(6, **changed)


def simple(**more: Any) -> tuple[Elastic, nn.Sequential]:
    model = model_of()
    return Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), **more), model


def test_a_training_that_is_over_says_that_nothing_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for said in (False, True):
        elastic, _ = simple(checkpoint=tmp_path)
        loss = lambda batch: elastic.model(batch[0]).mean()  # noqa: E731, B023  # of this turn
        trained(elastic, elastic.loader(DATA, global_batch=5), loss, steps=4)
        assert ("nothing is left to train: step 4 is done" in caplog.text) is said


@pytest.mark.parametrize("how", ["break", "raise"])
def test_what_is_left_is_saved_and_after_a_break_not_gone_on_with(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    def life(until: int, **limits: int) -> int:
        """Train; return the last step."""
        elastic, _ = simple(checkpoint=tmp_path)
        for step in elastic.steps(elastic.loader(DATA, global_batch=3), **limits):
            with step:
                for x, y in step:
                    step.backward(F.cross_entropy(elastic.model(x), y))
            if step.number == until and how == "break":
                break
            if step.number == until:
                raise ArithmeticError("of the script")
        return elastic.progress.step

    with suppress(ArithmeticError):
        life(5, epochs=9)
    assert simple(checkpoint=tmp_path)[0].progress.step == 5
    ended = [life(0, epochs=9, steps=6), life(0, epochs=9)]
    assert ended == ([5, 5] if how == "break" else [6, 36])
    assert ("step 5 is done, the script has ended its loop by itself after it" in caplog.text) is (
        how == "break"
    )
    assert life(0, epochs=10) == 40


def test_steps_without_epochs_are_as_many_as_asked_for() -> None:
    elastic, _ = simple()
    steps = trained(
        elastic, elastic.loader(DATA, global_batch=5), lambda b: elastic.model(b[0]).mean(), steps=10
    )
    assert [step.number for step in steps] == [*range(1, 11)]


def test_two_trainings_in_one_process() -> None:
    for _ in range(2):
        elastic, _ = simple()
        trained(elastic, elastic.loader(DATA, global_batch=4), lambda batch: elastic.model(batch[0]).mean())  # noqa: B023
        assert elastic.progress.step == 3


def test_drop_last_leaves_out_what_makes_no_whole_step() -> None:
    elastic, _ = simple()
    data = elastic.loader(DATA, global_batch=5, drop_last=True)
    steps = trained(elastic, data, lambda batch: elastic.model(batch[0]).mean(), epochs=2)
    assert [step.records for step in steps] == [5] * 4
    with pytest.raises(ValueError, match="drop_last leaves nothing of 12 records: a step takes 13"):
        elastic.loader(DATA, global_batch=13, drop_last=True)


@pytest.mark.parametrize(
    "sampler", [WeightedRandomSampler([0.9] * 3 + [0.1] * 9, 8), RandomSampler(DATA), list(range(0, 12, 2))]
)
def test_a_sampler_of_ones_own_draws_the_same_anew_in_each_epoch(sampler: Any) -> None:
    def drawn() -> list[list[int]]:
        elastic, _ = simple()
        order = elastic.loader(DATA, global_batch=3, sampler=sampler).order
        return [list(order.at(epoch, range(len(sampler)))) for epoch in (0, 1, 0)]

    first, second, again = drawn()
    assert first == again
    assert drawn() == [first, second, again]
    assert isinstance(sampler, list) or first != second
    with pytest.raises(TypeError, match="no shuffle"):
        simple()[0].loader(DATA, global_batch=3, sampler=sampler, shuffle=True)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.story
def test_reading_processes_start_in_every_way(method: str) -> None:
    elastic, _ = simple()
    more: dict[str, Any] = {"multiprocessing_context": multiprocessing.get_context(method)}
    data = elastic.loader(DATA, global_batch=4, workers=2, persistent_workers=True, **more)
    assert len(trained(elastic, data, lambda batch: elastic.model(batch[0]).mean(), epochs=2)) == 6


@pytest.mark.parametrize("find_unused", [False, True])
def test_a_loss_of_weight_0_counts_nothing_even_if_it_is_nan(find_unused: bool) -> None:
    elastic, model = simple(ddp={"find_unused_parameters": find_unused})
    before = [each.clone() for each in model.parameters()]
    masks = iter([1.0, 0.0, 0.0, 0.0])
    for step in elastic.steps(elastic.loader(DATA, global_batch=12, micro_batch=6), epochs=2):
        with step:
            for x, _ in step:
                mask = torch.full((6,), next(masks), dtype=torch.float64, device=DEVICE)
                loss = (elastic.model(x).sum(dim=1) * mask).sum() / mask.sum()
                step.backward(loss, weight=float(mask.sum()))
    assert all(each.isfinite().all() for each in model.parameters())
    assert any(not torch.equal(each, old) for each, old in zip(model.parameters(), before, strict=True))


def test_statistics_are_those_of_one_micro_batch_in_a_step() -> None:
    """Of several that a worker computes, the first, which is the main worker's in any world."""
    model = nn.BatchNorm1d(2, affine=True).double().to(DEVICE)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1))
    expected, tracked = torch.zeros(2, dtype=torch.float64, device=DEVICE), 0
    for step in elastic.steps(elastic.loader(DATA, global_batch=12, micro_batch=4), epochs=2):
        with step:
            for number, (x, _) in enumerate(step):
                if not number:
                    expected, tracked = 0.9 * expected + 0.1 * x.mean(dim=0), tracked + 1
                step.backward(elastic.model(x).pow(3).mean())
        assert torch.allclose(model.get_buffer("running_mean"), expected)
        assert model.get_buffer("num_batches_tracked").item() == tracked


def test_parameters_that_nobody_would_average_are_refused() -> None:
    model, temperature = model_of(), nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match=r"group 1 of AdamW trains parameters that the model does not have"):
        Elastic(model, torch.optim.AdamW([{"params": [*model.parameters()]}, {"params": [temperature]}]))


@pytest.mark.parametrize(
    "ddp", [{}, {"find_unused_parameters": True}, {"forward_sync_buffers": False}], ids=str
)
def test_buffers_may_be_of_types_that_gloo_does_not_know(ddp: dict[str, Any]) -> None:
    model = nn.Linear(1, 1)
    for name, kind in (("scale", torch.float8_e4m3fn), ("seen", torch.int16), ("code", torch.uint16)):
        model.register_buffer(name, torch.ones(3).to(kind))
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), ddp=ddp)
    trained(elastic, elastic.loader(torch.ones(8, 1), global_batch=4), lambda x: elastic.model(x).mean())
    assert elastic.evaluate(elastic.loader(torch.ones(8, 1), global_batch=4), lambda _: {"x": 1.0}) == {
        "x": 1
    }


def test_parameters_that_are_unfrozen_later_are_trained() -> None:
    elastic, model = simple()
    model[0].requires_grad_(False)
    reduction = elastic._run.reduction  # the wrapper that averages
    wrapped = []
    for step in elastic.steps(elastic.loader(DATA, global_batch=3)):
        if step.number == 3:
            model[0].requires_grad_(True)
        with step:
            for x, y in step:
                step.backward(F.cross_entropy(elastic.model(x), y))
            wrapped.append(reduction.model)
    assert len({id(each) for each in wrapped}) == 2
    assert not reduction.is_stale()


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("scale", [None, 8.0])
@pytest.mark.parametrize("remedy", ["skip", "rollback"])
def test_a_step_that_is_not_finite_is_left_out(remedy: str, scale: float | None, clips: bool) -> None:
    scaler = None if scale is None else GradScaler("cpu", init_scale=scale)
    elastic, model = simple(on_nan=remedy, nan_limit=1, memory_every=1, scaler=scaler)
    steps, before = elastic.steps(elastic.loader(DATA, global_batch=3)), list[Tensor]()

    def step_with(factor: float) -> bool:
        """Take a step; return whether it changed the model."""
        before[:] = [each.clone() for each in model.parameters()]
        step = next(steps)
        with step:
            for x, _ in step:
                step.backward(elastic.model(x).mean() * factor)
            if clips:
                step.clip_grad_norm_(1.0)
        assert step.done
        assert scaler is None or scaler.get_scale() == scale
        return any(not torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True))

    assert [step_with(factor) for factor in (1.0, math.nan, 1.0)] == [True, False, True]
    with pytest.raises(RuntimeError, match="the loss or the gradients of step 4 are not finite, and 1 steps"):
        step_with(math.nan)


def test_gradients_that_overflow_count_once_the_scale_cannot_be_the_cause() -> None:
    """A GradScaler looks for its scale by steps that it leaves out: more of them than `nan_limit`."""
    scaler = GradScaler("cpu", init_scale=16.0)
    elastic, model = simple(on_nan="skip", nan_limit=1, scaler=scaler)
    scales, before = list[float](), [each.clone() for each in model.parameters()]

    def train() -> None:
        loss = lambda batch: (elastic.model(batch[0]).mean() * 0.0).sqrt()  # noqa: E731
        for _ in steps(elastic, elastic.loader(DATA, global_batch=1), loss, epochs=9):
            scales.append(scaler.get_scale())
            assert all(torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True))

    with pytest.raises(RuntimeError, match="the loss or the gradients of step 6 are not finite, and 1 steps"):
        train()
    assert scales == [8.0, 4.0, 2.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("losses", "alarms"),
    [
        (
            [1.0] * 30 + [math.nan, math.nan, 1.0],
            {31: "the loss of step 31 is nan; the last finite one was 1 at step 30"},
        ),
        ([1.0, math.inf], {2: "the loss of step 2 is inf; the last finite one was 1 at step 1"}),
        ([1.0 + 0.1 * math.sin(n) for n in range(40)] + [9.0], {41: "the loss of step 41 is 9, after"}),
        ([5.0, 4.0, 6.0, 3.0, 8.0] * 10, {}),
        ([10 * 0.9**n for n in range(200)], {}),
        ([0.001] * 40 + [0.08, 0.001, 0.3], {43: "the loss of step 43 is 0.3, after"}),  # it has converged
        ([math.nan] * (CALM + 1), {1: "nan", CALM + 1: "nan"}),
    ],
)
def test_losses_that_are_not_as_usual_are_noticed(losses: list[float], alarms: dict[int, str]) -> None:
    seen = Losses()
    found = {step: said for step, loss in enumerate(losses, 1) if (said := seen.alarm(step, loss))}
    assert found.keys() == alarms.keys()
    assert all(alarms[step] in said for step, said in found.items())


def test_the_scripts_random_numbers_are_its_own() -> None:
    def drawn() -> tuple[float, ...]:
        torchs = [float(torch.rand((), device=each)) for each in dict.fromkeys(("cpu", DEVICE.type))]
        return random.random(), float(np.random.rand()), *torchs

    def seeded() -> None:
        random.seed(7), np.random.seed(7), torch.manual_seed(7)

    elastic, _ = simple()
    data = elastic.loader(DATA, global_batch=3)
    seeded()
    expected = [drawn() for _ in range(6)]
    seeded()
    found = [drawn()]
    for _ in elastic.evaluate(data, lambda batch: {"mean": elastic.model(batch[0]).mean()}):
        found.append(drawn())
    for _ in steps(elastic, data, lambda batch: F.cross_entropy(elastic.model(batch[0]), batch[1])):
        found.append(drawn())
    assert found == expected


def test_the_generator_of_the_models_own_gpu_is_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    generators = (torch.Generator(), torch.Generator())
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    seed_torch(7, torch.device("cuda", 1))
    assert [each.initial_seed() == 7 for each in generators] == [False, True]


def test_losses_of_half_precision_are_added_up_in_full() -> None:
    elastic, _ = simple()
    data = elastic.loader(DATA, global_batch=12)
    (step,) = trained(elastic, data, lambda batch: (elastic.model(batch[0]).mean() * 0 + 7_000).half())
    assert step.loss == 7_000


def test_no_two_tensors_have_one_name() -> None:
    state = {
        "ema": {"slow.w": torch.ones(1), "slow/w": torch.zeros(1), "~1": torch.full((1,), 3.0)},
        "ema.slow": {"w": torch.full((1,), 2.0)},
        "ema/slow": {"w": torch.full((1,), 4.0)},
    }
    taken = StateParts(state)
    again = together(decode(taken.encode()), taken.tensors.__getitem__)
    assert again == state
    assert len(taken.tensors) == 5
    with pytest.raises(ValueError, match="two tensors of the state are named 1"):
        StateParts({1: torch.ones(1), "1": torch.ones(1)})


@pytest.mark.parametrize(
    ("mine", "newest", "behind"),
    [
        ((7, 1), (7, 1), False),
        ((7, 1), (8, 1), False),
        ((7, 1), (7, 2), False),
        ((7, 1), (8, 2), True),
        ((7, 1), (9, 1), True),
        ((7, 2), (8, 1), True),
    ],
)
def test_survivors_are_one_step_or_one_evaluation_apart(mine: Any, newest: Any, behind: bool) -> None:
    assert is_behind(mine, newest) == behind


def test_a_metric_that_is_no_number_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    elastic, _ = simple()
    elastic.report(accuracy=0.5, names="none", many=torch.ones(2), odd=math.nan)  # type: ignore[arg-type]
    assert elastic._run.reports.metrics.keys() == {"accuracy", "odd"}
    assert [record.getMessage().split()[2] for record in caplog.records] == ["names", "many"]


def test_a_change_of_the_world_is_told() -> None:
    told: list[Any] = []
    elastic, _ = simple(on_change=lambda *given: told.append(given))
    trained(elastic, elastic.loader(DATA, global_batch=3), lambda batch: elastic.model(batch[0]).mean())
    assert told == [(1, 1, ())]
