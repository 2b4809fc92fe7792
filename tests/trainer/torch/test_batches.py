"""What a script gives to `Elastic`, and what its loop gets; one worker, in this process."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import TensorDataset

from elasticjob.trainer.torch import Elastic, Part, PerEpoch
from tests.trainer.torch.training import steps, trained

X = torch.arange(12, dtype=torch.float32).view(6, 2)


class Pair(NamedTuple):
    x: Tensor
    number: int


def linear(**more: Any) -> Elastic:
    model = nn.Linear(2, 1)
    given: dict[str, Any] = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.5), **more}
    return Elastic(model, **given)


@pytest.mark.parametrize(
    ("dataset", "x_of"),
    [
        ([{"x": x, "number": 1} for x in X], lambda batch: batch["x"]),
        ([{"deep": {"x": [x]}} for x in X], lambda batch: batch["deep"]["x"][0]),
        (list(X), lambda batch: batch),
        (TensorDataset(X), lambda batch: batch[0]),
        (TensorDataset(X, X), lambda batch: batch[1]),
        ([Pair(x, 1) for x in X], lambda batch: batch.x),
    ],
    ids=["dict", "nested dict", "tensor", "tuple of one", "tuple", "named tuple"],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_have_the_shape_of_the_records(
    dataset: Any, x_of: Callable[..., Tensor], workers: int
) -> None:
    elastic, seen = linear(), list[Tensor]()

    def loss_of(batch: Any) -> Tensor:
        seen.append(x_of(batch))
        return elastic.model(seen[-1]).mean()  # type: ignore[no-any-return]  # as of any module

    trained(elastic, elastic.loader(dataset, global_batch=4, workers=workers), loss_of, epochs=2)
    for epoch in (seen[:2], seen[2:]):
        assert torch.equal(torch.cat(epoch).sort(dim=0).values, X)


def test_parts_of_a_stream_are_each_read_once_per_epoch() -> None:
    asked: list[Part] = []

    def read(part: Part) -> list[Tensor]:
        asked.append(part)
        return [torch.tensor([float(record), 1.0]) for record in range(part.start, part.stop)]

    elastic, seen = linear(), list[float]()

    def loss_of(batch: Tensor) -> Tensor:
        seen.extend(batch[:, 0].tolist())
        return elastic.model(batch / 25).mean()  # type: ignore[no-any-return]

    trained(
        elastic, elastic.stream(read, records=25, shard=10, global_batch=8, shuffle=True), loss_of, epochs=2
    )
    assert sorted(seen[:25]) == sorted(seen[25:]) == [float(record) for record in range(25)]
    assert seen[:25] != seen[25:]
    assert all(part.start // 10 == (part.stop - 1) // 10 for part in asked)


def test_stream_without_an_end_is_taken_in_turn_from_its_partitions() -> None:
    asked: list[Part] = []

    def read(part: Part) -> Tensor:
        asked.append(part)
        return torch.ones(part.stop - part.start, 2)

    elastic = linear()
    data = elastic.stream(read, records=None, shard=4, offsets=(100, 200), global_batch=6)
    trained(elastic, data, lambda batch: elastic.model(batch).mean(), steps=2)
    assert asked[:4] == [Part(100, 104, 0), Part(200, 202, 1), Part(202, 204, 1), Part(104, 108, 0)]
    assert elastic.progress.samples == 12


def test_part_that_is_read_short_is_an_error_that_names_it() -> None:
    elastic = linear()
    data = elastic.stream(lambda part: X[:1], records=6, global_batch=2)
    with pytest.raises(ValueError, match=r"read\(Part\(start=0, stop=2, partition=0\)\) returned 1 records"):
        trained(elastic, data, lambda batch: elastic.model(batch).mean())


def test_bare_model_is_noticed_in_every_step() -> None:
    elastic, bare = linear(), nn.Linear(2, 1)

    def loss_of(x: Tensor) -> Tensor:
        return (elastic.model if elastic.progress.step < 2 else bare)(x).mean()  # type: ignore[no-any-return]

    with pytest.raises(RuntimeError, match=r"computed with the bare model.*call elastic\.model"):
        trained(elastic, elastic.loader(list(X), global_batch=6), loss_of, epochs=5)
    assert elastic.progress.step == 2


def test_what_a_script_raises_about_gloo_is_its_own_error() -> None:
    elastic = linear()

    def loss_of(x: Tensor) -> Tensor:
        raise RuntimeError("this metric does not work with gloo")

    with pytest.raises(RuntimeError, match="this metric does not work with gloo"):
        trained(elastic, elastic.loader(list(X), global_batch=6), loss_of)


def nothing(step: Any, elastic: Elastic) -> None:
    pass


def no_backward(step: Any, elastic: Elastic) -> None:
    with step:
        for _ in step:
            pass


def stops_early(step: Any, elastic: Elastic) -> None:
    with step:
        for batch in step:
            step.backward(elastic.model(batch).mean())
            break


def twice(step: Any, elastic: Elastic) -> None:
    with step:
        for batch in step:
            step.backward(elastic.model(batch).mean())
            step.backward(elastic.model(batch).mean())


def many_losses(step: Any, elastic: Elastic) -> None:
    with step:
        for batch in step:
            step.backward(elastic.model(batch))


def no_block(step: Any, elastic: Elastic) -> None:
    for _ in step:
        pass


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (nothing, "step 1 was not taken: write `with step:` in the loop"),
        (no_backward, r"step 1 has a batch without step.backward\(loss\)"),
        (stops_early, "step 1 has not had all its batches"),
        (twice, "call step.backward once for each batch"),
        (many_losses, r"takes a mean loss, and this has the shape \(3, 1\)"),
        (no_block, "inside of `with step:`"),
    ],
)
def test_loop_that_cannot_work_says_what_to_write(
    body: Callable[[Any, Elastic], None], sentence: str
) -> None:
    elastic = linear()
    data = elastic.loader(list(X), global_batch=6, micro_batch=3)

    def loop() -> None:
        for step in elastic.steps(data):
            body(step, elastic)

    with pytest.raises(RuntimeError, match=sentence):
        loop()


@pytest.mark.parametrize(
    ("error", "sentence", "given"),
    [
        (TypeError, "optimizer is a str: give one Optimizer, or a list of them", {"optimizer": "adam"}),
        (TypeError, "optimizer is an empty list", {"optimizer": []}),
        (TypeError, "keep['best'] is a float: give objects with state_dict", {"keep": {"best": 0.5}}),
        (TypeError, "keep['s'] is a GradScaler: give it as", {"keep": {"s": torch.amp.GradScaler("cpu")}}),
        (ValueError, "memory_every is 0", {"memory_every": 0}),
        (ValueError, "memory_every is True", {"memory_every": True}),
        (ValueError, "save_every is 0", {"save_every": 0}),
        (ValueError, "save_every is '3': give a whole number of steps", {"save_every": "3"}),
        (ValueError, "on_change is 3: give a function", {"on_change": 3}),
        (ValueError, "noise_every is -1: give a whole number of steps, or 0 for never", {"noise_every": -1}),
        (ValueError, "noise_every is 0.5", {"noise_every": 0.5}),
        (ValueError, 'on_nan is \'pray\': give "skip", "rollback"', {"on_nan": "pray"}),
        (ValueError, "nan_limit is 0", {"on_nan": "skip", "nan_limit": 0}),
    ],
)
def test_wrong_argument_is_refused_by_name(
    error: type[Exception], sentence: str, given: dict[str, Any]
) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        linear(**given)


def test_checkpoints_in_an_object_store_need_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="checkpoints in 's3://bucket/run' need a Python package for s3://"):
        linear(checkpoint="s3://bucket/run")
    assert list(tmp_path.iterdir()) == []


def test_dataset_that_cannot_be_indexed_is_sent_to_stream() -> None:
    with pytest.raises(TypeError, match=r"dataset is a generator .* give elastic\.stream a function"):
        linear().loader((x for x in X), global_batch=6)


def test_several_optimizers_and_schedulers_step_together() -> None:
    model = nn.Linear(2, 1)
    optimizers = [torch.optim.SGD([parameter], lr=1.0) for parameter in model.parameters()]
    each_step = StepLR(optimizers[0], step_size=1, gamma=0.5)
    each_epoch = PerEpoch(StepLR(optimizers[1], step_size=1, gamma=0.1))
    elastic = Elastic(model, optimizers, scheduler=[each_step, each_epoch])
    trained(elastic, elastic.loader(list(X), global_batch=2), lambda x: elastic.model(x).mean(), epochs=2)
    rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    assert rates == pytest.approx([0.5**6, 0.1**2])


def test_plateau_follows_the_score_of_each_epoch() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    plateau = ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0)
    optimizer.param_groups[0]["lr"] = 1.0
    elastic = Elastic(model, optimizer, scheduler=PerEpoch(plateau, "score"))
    data = elastic.loader(list(X), global_batch=6)
    values = iter([1.0, 2.0, 1.0, 1.0])

    def score(batch: Tensor) -> dict[str, float]:
        return {"score": next(values)}

    for _ in steps(elastic, data, lambda batch: elastic.model(batch).mean(), epochs=4):
        elastic.evaluate(data, score)
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_plateau_without_its_score_says_what_to_call() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters())
    elastic = Elastic(model, optimizer, scheduler=PerEpoch(ReduceLROnPlateau(optimizer), "accuracy"))
    data = elastic.loader(list(X), global_batch=6)
    with pytest.raises(RuntimeError, match="no metric 'accuracy' at the end of the epoch"):
        trained(elastic, data, lambda x: elastic.model(x).mean())


def test_evaluation_is_the_mean_over_records_without_gradients() -> None:
    model = nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.9))
    elastic = Elastic(model, torch.optim.SGD(model.parameters()))
    data = elastic.loader(list(X), global_batch=4, shuffle=False)

    def score(batch: Tensor) -> dict[str, Tensor]:
        assert not elastic.model.training
        assert not elastic.model(batch).requires_grad
        return {"x": batch.mean()}

    assert elastic.evaluate(data, score) == {"x": pytest.approx(X.mean().item())}
    assert model.training


def test_gradients_can_be_clipped_and_are_those_of_the_mean_loss() -> None:
    elastic = linear()
    data = elastic.loader(list(X), global_batch=6, micro_batch=2, shuffle=False)
    for step in elastic.steps(data):
        with step:
            for batch in step:
                step.backward(elastic.model(batch).mean(), weight=10 * len(batch))
            step.unscale()
            (gradient,) = (p.grad for p in elastic.model.parameters() if p.shape == (1, 2))
            assert gradient is not None
            assert gradient.flatten().tolist() == pytest.approx(X.mean(dim=0).tolist())
            norm = step.clip_grad_norm_(0.1)
            assert norm == pytest.approx(float((X.mean(dim=0).square().sum() + 1).sqrt()))
            step.log(norm=norm)
        assert step.done


def test_scaler_scales_and_skips_like_by_hand() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1000)
    model = nn.Linear(2, 1)
    elastic = Elastic(model, torch.optim.SGD(model.parameters(), lr=1.0), scaler=scaler)
    data = elastic.loader(list(X), global_batch=6, shuffle=False)
    before = model.weight.detach().clone()
    for step in elastic.steps(data, epochs=2):
        with step:
            for batch in step:
                loss = elastic.model(batch).mean()
                step.backward(loss * float("inf") if step.number == 2 else loss)
            step.clip_grad_norm_(1e6)
    assert torch.allclose(before - model.weight, X.mean(dim=0))
    assert scaler.get_scale() == 4.0


def test_what_is_kept_travels_with_the_checkpoint(tmp_path: Path) -> None:
    notes: dict[str, Any] = {}
    ema = nn.Linear(2, 1)
    elastic = linear(checkpoint=tmp_path, keep={"ema": ema, "notes": notes})
    data = elastic.loader(list(X), global_batch=6)
    for _ in steps(elastic, data, lambda batch: elastic.model(batch).mean(), epochs=3):
        notes["steps"] = notes.get("steps", 0) + 1
    dist.destroy_process_group()
    again: dict[str, Any] = {}
    other = nn.Linear(2, 1)
    resumed = linear(checkpoint=tmp_path, keep={"ema": other, "notes": again})
    assert resumed.progress.step == again["steps"] == 3
    assert torch.equal(other.weight, ema.weight)
