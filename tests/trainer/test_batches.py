"""What `Elastic` takes from a script, and what it hands to `loss_of`; one worker, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from elasticjob.trainer.torch import Elastic

X = torch.arange(12, dtype=torch.float32).view(6, 2)


@pytest.fixture(autouse=True)
def closed_group() -> Iterator[None]:
    """Close the group that a failed training leaves open."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


class Pair(NamedTuple):
    x: Tensor
    number: int


def elastic(dataset: Any, **more: Any) -> Elastic:
    model = nn.Linear(2, 1)
    given: dict[str, Any] = {"optimizer": torch.optim.SGD(model.parameters()), **more}
    return Elastic(model, dataset=dataset, micro_batch=6, **given)


def train(training: Elastic, loss_of: Callable[..., Tensor]) -> None:
    for _ in training.steps(epochs=5):
        training.step(loss_of)


@pytest.mark.parametrize(
    ("dataset", "x_of"),
    [
        ([{"x": x, "number": 1} for x in X], lambda batch: batch["x"]),
        ([{"deep": {"x": [x]}} for x in X], lambda batch: batch["deep"]["x"][0]),
        (list(X), lambda batch: batch),
        (TensorDataset(X), lambda batch: batch),
        (TensorDataset(X, X), lambda x, _: x),
        ([Pair(x, 1) for x in X], lambda x, _: x),
    ],
    ids=["dict", "nested dict", "tensor", "tuple of one", "tuple", "named tuple"],
)
def test_loss_of_gets_the_records_in_the_shape_that_they_have(
    dataset: Any, x_of: Callable[..., Tensor]
) -> None:
    training, seen = elastic(dataset), []

    def loss_of(*batch: Any) -> Tensor:
        x = x_of(*batch)
        seen.append(x)
        return training.model(x).mean()  # type: ignore[no-any-return]  # as of any module

    train(training, loss_of)
    assert torch.equal(seen[0].sort(dim=0).values, X)


def test_bare_model_is_noticed_in_every_step() -> None:
    training, bare = elastic(list(X)), nn.Linear(2, 1)

    def loss_of(x: Tensor) -> Tensor:
        return (training.model if training.progress.step < 2 else bare)(x).mean()  # type: ignore[no-any-return]  # as of any module

    with pytest.raises(RuntimeError, match=r"loss_of called the bare model.*call elastic\.model"):
        train(training, loss_of)
    assert training.progress.step == 2


def test_what_a_script_raises_about_gloo_is_its_own_error() -> None:
    training = elastic(list(X))

    def loss_of(x: Tensor) -> Tensor:
        raise RuntimeError("this metric does not work with gloo")

    with pytest.raises(RuntimeError, match="this metric does not work with gloo"):
        train(training, loss_of)


def test_two_optimizers_are_refused_by_name() -> None:
    model = nn.Linear(2, 1)
    optimizers = [torch.optim.SGD([parameter]) for parameter in model.parameters()]
    with pytest.raises(TypeError, match="optimizer is a list: give one"):
        elastic(list(X), optimizer=optimizers)


def test_url_is_no_folder_for_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="checkpoint is 's3://bucket/run': URLs are not supported"):
        elastic(list(X), checkpoint="s3://bucket/run")
    assert list(tmp_path.iterdir()) == []
