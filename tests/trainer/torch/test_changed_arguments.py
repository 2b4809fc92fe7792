"""A training goes on with other arguments than those of its checkpoint: refused, or told in one sentence."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Adamax, AdamW, Optimizer, RMSprop
from torch.optim import lr_scheduler as of
from torch.optim.lr_scheduler import LRScheduler

from elasticjob.trainer.torch import Elastic, saved
from elasticjob.trainer.torch.checkpoint import Checkpoint, RandomState
from elasticjob.trainer.torch.saving.tree import StateParts, decode, together
from elasticjob.trainer.torch.state import PerEpoch, State
from tests.trainer.torch.training import steps

Make = Callable[[Any], Optimizer]
Schedule = Callable[[Any], Any]
ELASTIC = "the checkpoint of step 0 in /mnt/run does not fit {}"
PLAIN = "the checkpoint of step 7 in {} does not fit state['{}']"
DATA = [(torch.ones(2) * each, torch.ones(2)) for each in range(4)]


def mse(elastic: Elastic, epochs: int) -> Iterator[Any]:
    """Train epochs of a step each."""
    loss = lambda batch: nn.functional.mse_loss(elastic.model(batch[0]), batch[1])  # noqa: E731
    return steps(elastic, elastic.loader(DATA, global_batch=4), loss, epochs=epochs)


def sgd(model: Any, **more: Any) -> Optimizer:
    return SGD(model.parameters(), **{"lr": 0.05, "momentum": 0.9, **more})


def adam(model: Any, **more: Any) -> Optimizer:
    return Adam(model.parameters(), **more)


def two_groups(model: Any, decays: tuple[float, float] = (0.1, 0.0)) -> Optimizer:
    pairs = zip(model.parameters(), decays, strict=True)
    return SGD([{"params": [each], "weight_decay": decay} for each, decay in pairs], lr=0.05, momentum=0.9)


def made(
    model: nn.Module, optimizer: Make = sgd, scheduler: Schedule | None = None, steps: int = 0, **more: Any
) -> State:
    """Return what a script has made, after some steps."""
    one = optimizer(model)
    schedule = [scheduler(one)] if scheduler else []
    for _ in range(steps):
        model(torch.ones(2)).sum().backward()
        one.step()
        for each in schedule:
            each.step(*([1.0] if isinstance(each, of.ReduceLROnPlateau) else []))
    per_epoch = [PerEpoch(each, "loss") for each in schedule if isinstance(each, of.ReduceLROnPlateau)]
    return State(model, [one], [each for each in schedule if not per_epoch], per_epoch, **more)


def stored(state: State) -> dict[str, Any]:
    """Return its snapshot as it comes back from a checkpoint."""
    taken = StateParts(state.snapshot())
    snapshot: dict[str, Any] = together(decode(taken.encode()), lambda name: taken.tensors[name].clone())
    return snapshot


def as_elastic(old: State, new: State, _: Path) -> None:
    new.restore(stored(old), "/mnt/run")


def as_plain(old: State, new: State, place: Path) -> None:
    def checkpoint(state: State) -> Checkpoint:
        objects = {"optimizer": state.optimizers[0], "model": state.model}
        return Checkpoint(place, objects, every=1, save_every=1, environment={})

    checkpoint(old).save(7)
    checkpoint(new).load()


@pytest.mark.parametrize("restored", [as_elastic, as_plain])
@pytest.mark.parametrize(
    ("before", "now", "sentence"),
    [
        (sgd, adam, "it has dampening, momentum, nesterov only there, and amsgrad, betas, eps and "),
        (adam, sgd, " more only there, and dampening, momentum, nesterov only here (SGD)"),
        (sgd, lambda model: RMSprop(model.parameters()), "only here (RMSprop)"),
        (adam, lambda model: Adamax(model.parameters()), "only there, and nothing only here (Adamax)"),
        (two_groups, sgd, "groups of 1, 1 parameters there, and of 2 here"),
        (sgd, lambda model: SGD([model.weight]), "groups of 2 parameters there, and of 1 here"),
    ],
)
def test_an_optimizer_of_another_class_or_of_other_parameters_is_refused(
    restored: Callable[..., None], before: Make, now: Make, sentence: str, tmp_path: Path
) -> None:
    old, new = made(nn.Linear(2, 2), before, steps=1), made(nn.Linear(2, 2), now)
    if restored is as_plain and "of 1 here" in sentence:  # another worker could have the rest
        with pytest.raises(
            ValueError, match=r"optimizer\.state\.bias\.momentum_buffer only in the checkpoint"
        ):
            restored(old, new, tmp_path)
        return
    with pytest.raises(ValueError, match=re.escape(sentence)) as refused:
        restored(old, new, tmp_path)
    first = ELASTIC.format("optimizer 0") if restored is as_elastic else PLAIN.format(tmp_path, "optimizer")
    assert str(refused.value).startswith(f"{first}: it has ")
    assert str(refused.value).endswith("; make it as it was, or give another folder")


def test_a_relative_of_the_optimizer_goes_on() -> None:
    old, new = (made(nn.Linear(2, 2), make) for make in (adam, lambda model: AdamW(model.parameters(), 1e-3)))
    assert new.restore(stored(old)) == [
        "the checkpoint of step 0 in memory has other arguments than the script: optimizer 0: weight_decay "
        "0.01 became the checkpoint's 0; to change one, set it after Elastic(...) in param_groups or on the "
        "scheduler (docs/training.md, Changing arguments)"
    ]


def test_a_state_of_an_older_torch_goes_on() -> None:
    snapshot = stored(made(nn.Linear(2, 2), adam, of_linear, steps=1))
    for name in ("decoupled_weight_decay", "fused", "foreach"):
        del snapshot["optimizers"][0]["param_groups"][0][name]
    assert made(nn.Linear(2, 2), adam, of_linear).restore(snapshot) == []


def layers(*sizes: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(*pair) for pair in pairwise(sizes)))


@pytest.mark.parametrize("restored", [as_elastic, as_plain])
@pytest.mark.parametrize(
    ("before", "now", "sentence"),
    [
        (
            layers(2, 3, 3, 2),
            layers(2, 4, 4, 2),
            "0.weight has the shape (3, 2) there and (4, 2) here, 0.bias has the shape (3,) there and (4,) "
            "here, 1.weight has the shape (3, 3) there and (4, 4) here",
        ),
        (layers(2, 2), layers(2, 2, 2), "1.weight is not in the checkpoint, 1.bias is not in the checkpoint"),
        (
            layers(2, 2, 2),
            layers(2, 2),
            "1.weight is only in the checkpoint, 1.bias is only in the checkpoint",
        ),
    ],
)
def test_a_model_of_another_shape_is_refused_in_one_line(
    restored: Callable[..., None], before: nn.Module, now: nn.Module, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="does not fit") as refused:
        restored(made(before, steps=1), made(now), tmp_path)
    first = ELASTIC.format("the model") if restored is as_elastic else PLAIN.format(tmp_path, "model")
    if restored is as_plain and "only in" in sentence:
        first, sentence = "the checkpoint of step 7", "model.1.bias, model.1.weight, optimizer.state.1.bias."
    assert str(refused.value).startswith(first)
    assert sentence in str(refused.value)
    assert "train with the model of the checkpoint" in str(refused.value)


def of_linear(optimizer: Any) -> LRScheduler:
    return of.LinearLR(optimizer, total_iters=8)


@pytest.mark.parametrize(
    ("before", "now", "changes"),
    [
        (sgd, sgd, ""),
        (sgd, lambda model: sgd(model, lr=0.01), "optimizer 0: lr 0.01 became the checkpoint's 0.05"),
        (sgd, lambda model: sgd(model, lr=0.01, nesterov=True, weight_decay=0.1),
         "optimizer 0: lr 0.01 became the checkpoint's 0.05; optimizer 0: weight_decay 0.1 became the "
         "checkpoint's 0; optimizer 0: nesterov True became the checkpoint's False"),
        (adam, lambda model: adam(model, betas=(0.8, 0.9)),
         "optimizer 0: betas (0.8, 0.9) became the checkpoint's (0.9, 0.999)"),
        (two_groups, lambda model: two_groups(model, (0.3, 0.0)),
         "optimizer 0: group 0: weight_decay 0.3 became the checkpoint's 0.1"),
        (lambda model: adam(model, lr=torch.tensor(0.5)), lambda model: adam(model, lr=torch.tensor(0.25)),
         "optimizer 0: lr 0.25 became the checkpoint's 0.5"),
    ],
)  # fmt: skip
def test_arguments_of_the_optimizer_that_the_checkpoint_has_otherwise_are_told(
    before: Make, now: Make, changes: str
) -> None:
    new = made(nn.Linear(2, 2), now)
    assert told(new.restore(stored(made(nn.Linear(2, 2), before, steps=1)))) == changes


def told(warnings: list[str]) -> str:
    """Return what was changed according to the one warning."""
    text = "".join(warnings)
    return text.partition(" than the script: ")[2].partition("; to change one, ")[0]


def one_cycle(optimizer: Any, rate: float = 0.1, steps: int = 10) -> LRScheduler:
    return of.OneCycleLR(optimizer, rate, steps)


def in_turn(optimizer: Any, cosine: int = 5, begin: int = 3) -> LRScheduler:
    parts = [of.LinearLR(optimizer), of.CosineAnnealingLR(optimizer, cosine)]
    return of.SequentialLR(optimizer, parts, [begin])


@pytest.mark.filterwarnings("ignore:The epoch parameter in")
@pytest.mark.parametrize(
    ("before", "now", "changes"),
    [
        (of_linear, of_linear, ""),
        (one_cycle, one_cycle, ""),
        (in_turn, in_turn, ""),
        (lambda o: of.CyclicLR(o, 0.01, 0.1), lambda o: of.CyclicLR(o, 0.01, 0.1), ""),
        (lambda o: of.CosineAnnealingWarmRestarts(o, 1, 2), lambda o: of.CosineAnnealingWarmRestarts(o, 1, 2),
         ""),
        (lambda o: of.LambdaLR(o, lambda n: 1 / (n + 1)), lambda o: of.LambdaLR(o, lambda n: 1.0), ""),
        (lambda o: of.ReduceLROnPlateau(o, patience=0), lambda o: of.ReduceLROnPlateau(o, patience=0), ""),
        (lambda o: of.ReduceLROnPlateau(o, patience=0), lambda o: of.ReduceLROnPlateau(o, patience=2),
         "scheduler 0: patience 2 became the checkpoint's 0"),
        (lambda o: of.CosineAnnealingLR(o, 4), lambda o: of.CosineAnnealingLR(o, 8, 0.1),
         "scheduler 0: T_max 8 became the checkpoint's 4; scheduler 0: eta_min 0.1 became the "
         "checkpoint's 0.0"),
        (lambda o: of.MultiStepLR(o, [2, 4]), lambda o: of.MultiStepLR(o, [9]),
         "scheduler 0: milestones (9,) became the checkpoint's (2, 4)"),
        (one_cycle, lambda o: one_cycle(o, 0.5, 20),
         "optimizer 0: lr 0.02 became the checkpoint's 0.004; optimizer 0: max_lr 0.5 became the "
         "checkpoint's 0.1; scheduler 0: total_steps 20 became the checkpoint's 10"),
        (in_turn, lambda o: in_turn(o, 7, 2),
         "scheduler 0: milestones (2,) became the checkpoint's (3,); scheduler 0: T_max 7 became the "
         "checkpoint's 5"),
    ],
)  # fmt: skip
def test_arguments_of_schedulers_are_told_and_their_progress_is_not(
    before: Schedule, now: Schedule, changes: str
) -> None:
    new = made(nn.Linear(2, 2), scheduler=now)
    assert told(new.restore(stored(made(nn.Linear(2, 2), scheduler=before, steps=3)))) == changes


def test_the_rate_with_which_a_schedule_began_is_told() -> None:
    old = made(nn.Linear(2, 2), scheduler=of_linear, steps=3)
    new = made(nn.Linear(2, 2), lambda model: sgd(model, lr=0.5), of_linear)
    assert told(new.restore(stored(old))) == "optimizer 0: lr 0.5 became the checkpoint's 0.05"


@pytest.mark.parametrize(
    ("before", "now", "sentence"),
    [
        (
            {"scheduler": lambda o: of.CosineAnnealingLR(o, 4)},
            {"scheduler": lambda o: of.StepLR(o, 4)},
            "scheduler 0: it has T_max, eta_min only there, and gamma, step_size only here (StepLR); make",
        ),
        (
            {"scheduler": lambda o: of.StepLR(o, 4)},
            {"scheduler": lambda o: of.ExponentialLR(o, 0.5)},
            "scheduler 0: it has step_size only there, and nothing only here (ExponentialLR); make it as it",
        ),
        (
            {"scheduler": lambda o: of.ChainedScheduler([of.LinearLR(o), of.ExponentialLR(o, 0.9)])},
            {"scheduler": lambda o: of.ChainedScheduler([of.LinearLR(o)])},
            "scheduler 0: it has 2 schedulers in it there, and 1 here; make it as it was",
        ),
        (
            {"scheduler": lambda o: of.ChainedScheduler([of.ExponentialLR(o, 0.9)])},
            {"scheduler": lambda o: of.ChainedScheduler([of.LinearLR(o)])},
            "it has gamma only there, and end_factor, start_factor, total_iters only here (LinearLR); make",
        ),
        ({"scheduler": of_linear}, {}, "has 1 schedulers, and Elastic(...) got 0"),
        (
            {"keep": {"seen": {}}},
            {"keep": {"best": {}}},
            "keeps ['seen'], and Elastic(keep=...) has ['best']",
        ),
        (
            {"keep": {"ema": nn.Linear(2, 3)}},
            {"keep": {"ema": nn.Linear(2, 4)}},
            "does not fit keep['ema']: weight has the shape (3, 2) there and",
        ),
    ],
)
def test_schedulers_and_kept_objects_that_are_others_are_refused_by_name(
    before: dict[str, Any], now: dict[str, Any], sentence: str
) -> None:
    told = f"the checkpoint of step 0 in /mnt/run .*{re.escape(sentence)}"
    with pytest.raises(ValueError, match=told):
        made(nn.Linear(2, 2), **now).restore(stored(made(nn.Linear(2, 2), steps=3, **before)), "/mnt/run")


def test_a_name_that_is_new_in_keep_begins_as_the_script_made_it() -> None:
    old = made(nn.Linear(2, 2), keep={"seen": {"records": 5}})
    new = made(nn.Linear(2, 2), keep={"seen": {}, "best": {"score": 0.0}})
    assert new.restore(stored(old), "/mnt/run") == [
        "the checkpoint of step 0 in /mnt/run has no keep ['best']: they begin as the script has made them"
    ]
    assert new.keep == {"seen": {"records": 5}, "best": {"score": 0.0}}


def test_going_back_to_a_copy_is_no_change_of_arguments(caplog: pytest.LogCaptureFixture) -> None:
    mine = made(nn.Linear(2, 2))
    snapshot = mine.snapshot()
    mine.optimizers[0].param_groups[0]["lr"] = 0.5
    mine.model.requires_grad_(False)
    mine.roll_back(snapshot)
    assert caplog.text == ""


def life(
    place: Path, epochs: int, rate: float, after: Callable[[Any, Any], None] | None = None
) -> list[float]:
    """Train with a rate, with a schedule if that is set again; return the rates after all steps."""
    model = nn.Linear(2, 2)
    optimizer = sgd(model, lr=rate)
    scheduler = of.ExponentialLR(optimizer, 0.5) if after is scaled else None
    elastic = Elastic(model, optimizer, scheduler=scheduler or (), checkpoint=place)
    if after is not None:
        after(optimizer, scheduler)
    return [optimizer.param_groups[0]["lr"] for _ in mse(elastic, epochs)]


def set_again(optimizer: Any, _: Any) -> None:
    optimizer.param_groups[0]["lr"] = 0.01


def scaled(optimizer: Any, scheduler: Any) -> None:
    """The recipe of docs/training.md for a rate with a schedule; a worker that comes later does it again."""
    for group in optimizer.param_groups:
        group["lr"] *= 0.25 / group["initial_lr"]
        group["initial_lr"] = 0.25
    scheduler.base_lrs = [0.25] * len(optimizer.param_groups)


def test_a_rate_is_that_of_the_checkpoint_until_it_is_set_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert life(tmp_path, 1, 0.05) == [0.05]
    assert life(tmp_path, 2, 0.01) == [0.05]
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert (
        "optimizer 0: lr 0.01 became the checkpoint's 0.05; to change one, set it after Elastic("
        in caplog.text
    )
    assert life(tmp_path, 3, 0.01, set_again) == [0.01]
    caplog.clear()
    assert life(tmp_path, 4, 0.01) == [0.01]
    assert caplog.text == ""


def test_a_rate_with_a_schedule_is_set_again_by_its_beginning(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = sgd(model, lr=1.0)
    elastic = Elastic(model, optimizer, scheduler=of.ExponentialLR(optimizer, 0.5), checkpoint=tmp_path)
    assert len(list(mse(elastic, 2))) == 2
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert life(tmp_path, 4, 0.25, scaled) == [0.25 / 8, 0.25 / 16]
    assert life(tmp_path, 5, 0.25, scaled) == [0.25 / 32]  # set again, to the same


def test_a_new_folder_begins_with_the_old_model_and_moments_and_the_scripts_rate(tmp_path: Path) -> None:
    """The recipe of docs/training.md for a new folder."""
    life(tmp_path / "old", 2, 0.05)
    before, model = saved.read(tmp_path / "old"), nn.Linear(2, 2)
    optimizer = sgd(model, lr=0.01)
    scheduler = of.ExponentialLR(optimizer, 0.5)
    model.load_state_dict(before["model"])
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({**before["optimizers"][0], "param_groups": groups})
    elastic = Elastic(model, optimizer, scheduler=scheduler, checkpoint=tmp_path / "new")
    moments = before["optimizers"][0]["state"][0]["momentum_buffer"]
    assert torch.equal(optimizer.state[model.weight]["momentum_buffer"], moments)
    assert len(list(mse(elastic, 1))) == 1
    assert optimizer.param_groups[0]["lr"] == 0.005


def test_a_longer_schedule_is_set_on_the_scheduler() -> None:
    def rates(scheduler: Any, steps: int) -> list[float]:
        found = []
        for _ in range(steps):
            scheduler.optimizer.step()
            scheduler.step()
            found.append(scheduler.optimizer.param_groups[0]["lr"])
        return found

    old = made(nn.Linear(2, 2), scheduler=lambda o: of.CosineAnnealingLR(o, 4), steps=2)
    new = made(nn.Linear(2, 2), scheduler=lambda o: of.CosineAnnealingLR(o, 8))
    new.restore(stored(old))
    new.schedulers[0].T_max = 8  # type: ignore[attr-defined]
    falling = rates(new.schedulers[0], 6)
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] == pytest.approx(0.0)


def test_a_plain_checkpoint_tells_what_it_has_otherwise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def checkpoint(rate: float, horizon: int) -> tuple[Checkpoint, Any]:
        model = nn.Linear(2, 2)
        optimizer = sgd(model, lr=rate)
        scheduler = of.CosineAnnealingLR(optimizer, horizon)
        state = {"scheduler": scheduler, "optimizer": optimizer, "model": model, "random": RandomState()}
        return Checkpoint(tmp_path, state, every=1, save_every=1, environment={}), optimizer

    checkpoint(0.05, 4)[0].save(3)
    again, optimizer = checkpoint(0.01, 8)
    assert again.load() == 3
    assert optimizer.param_groups[0]["lr"] == 0.05
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith(f"the checkpoint of step 3 in {tmp_path} has other arguments than the script: ")
    assert told([text]) == (
        "state['scheduler']: T_max 8 became the checkpoint's 4; "
        "state['optimizer']: lr 0.01 became the checkpoint's 0.05"
    )
    assert "set it after checkpoint.load() in param_groups or on the scheduler" in text
