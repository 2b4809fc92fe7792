"""Optimizers on the servers beside torch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elasticjob.trainer.store.optimizers import SGD, Adagrad, Adam
from elasticjob.trainer.store.tables import Normal, Slab, Table, Uniform, Zeros

STEPS, ROWS, DIM = 7, 5, 3


@pytest.mark.parametrize(
    ("ours", "torchs"),
    [
        (SGD(0.1), lambda values: torch.optim.SGD(values, lr=0.1)),
        (Adagrad(0.05), lambda values: torch.optim.Adagrad(values, lr=0.05)),
        (
            Adagrad(0.05, initial=0.1),
            lambda v: torch.optim.Adagrad(v, lr=0.05, initial_accumulator_value=0.1),
        ),
        (Adam(0.01), lambda values: torch.optim.Adam(values, lr=0.01)),
    ],
    ids=["sgd", "adagrad", "adagrad-initial", "adam"],
)
def test_rows_change_as_by_torch(ours, torchs) -> None:  # type: ignore[no-untyped-def]
    slab = Slab(Table("t", DIM, ours, Normal(1.0)))
    ids = np.arange(ROWS, dtype=np.int64) * 1_000
    values = torch.nn.Parameter(torch.from_numpy(slab.rows(ids).copy()))
    optimizer = torchs([values])
    chance = np.random.default_rng(0)
    for _ in range(STEPS):
        gradients = chance.normal(size=(ROWS, DIM)).astype(np.float32)
        slab.update(ids, gradients)
        values.grad = torch.from_numpy(gradients)
        optimizer.step()
    np.testing.assert_allclose(slab.rows(ids), values.detach().numpy(), rtol=2e-5, atol=1e-6)


def test_a_row_is_the_same_wherever_it_is_made() -> None:
    for initial in (Zeros(), Uniform(0.5), Normal(0.1)):
        table = Table("t", 4, initial=initial, seed=3)
        one, other = Slab(table), Slab(table)
        ids = np.array([5, 900, 64], np.int64)
        other.update(ids[:1], np.zeros((1, 4), np.float32))
        np.testing.assert_array_equal(one.rows(ids), other.rows(ids))


def test_first_values_are_spread_as_asked() -> None:
    ids = np.arange(20_000, dtype=np.int64)
    normal = Slab(Table("t", 4, initial=Normal(0.1))).rows(ids)
    uniform = Slab(Table("t", 4, initial=Uniform(0.5))).rows(ids)
    assert normal.std() == pytest.approx(0.1, rel=0.02)
    assert abs(normal.mean()) < 0.002
    assert (uniform.min() >= -0.5, uniform.max() < 0.5) == (True, True)
    assert uniform.std() == pytest.approx(1 / 12**0.5, rel=0.02)
    assert abs(np.corrcoef(uniform.T) - np.eye(4)).max() < 0.05
