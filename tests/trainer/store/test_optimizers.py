"""Optimizers on the servers beside torch's in float64.

Values and state are kept in float32, so each step rounds them: by half a unit in the last place, 2**-24 of a
value, and of the state on which the size of the step depends. A thousand steps cannot add more than a
thousand of such roundings, of the largest value there was and of the way that it went.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from elasticjob.trainer.store.optimizers import SGD, Adagrad, Adam
from elasticjob.trainer.store.tables import Normal, Slab, Table, Uniform, Zeros

STEPS, ROWS, DIM = 1_000, 3, 6
HALF_A_UNIT = 2.0**-24
SCALES = np.logspace(-6, 4, DIM)


def torchs(ours: SGD | Adagrad | Adam) -> Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]:
    """Return torch's optimizer of the same numbers."""
    match ours:
        case SGD(rate):
            return lambda values: torch.optim.SGD(values, lr=rate, foreach=False)
        case Adagrad(rate, initial, epsilon):
            return lambda values: torch.optim.Adagrad(
                values, lr=rate, initial_accumulator_value=initial, eps=epsilon, foreach=False
            )
        case Adam(rate, beta1, beta2, epsilon):
            return lambda values: torch.optim.Adam(
                values, lr=rate, betas=(beta1, beta2), eps=epsilon, foreach=False
            )


@pytest.mark.parametrize(
    "ours",
    [
        SGD(0.1),
        SGD(1e-7),
        Adagrad(0.05),
        Adagrad(0.05, initial=0.1),
        Adagrad(1.0, epsilon=1e-3),
        Adagrad(1e-4, initial=1e-6, epsilon=0.0),
        Adam(0.01),
        Adam(0.1, 0.0, 0.0),
        Adam(0.1, 0.5, 0.9, 1e-3),
        Adam(0.001, 0.99, 0.99999),
        Adam(0.001, 0.9, 1 - 1e-7),
        Adam(0.001, 0.9, 1 - 2**-40, 0.0),
    ],
    ids=repr,
)
def test_rows_change_as_by_torch_in_float64(ours: SGD | Adagrad | Adam) -> None:
    slab, chance = Slab(Table("t", DIM, ours, Normal(1.0))), np.random.default_rng(0)
    ids = np.arange(ROWS, dtype=np.int64) * 1_000
    theirs = torch.nn.Parameter(torch.from_numpy(slab.rows(ids).astype(np.float64)))
    exact, optimizer = theirs.detach().numpy(), torchs(ours)([theirs])
    way, most = np.zeros((ROWS, DIM)), np.zeros((ROWS, DIM))
    for _ in range(STEPS):
        gradients = (SCALES * chance.normal(0.3, 1.0, (ROWS, DIM))).astype(np.float32)
        slab.set(slab.change(ids, gradients))
        before, theirs.grad = exact.copy(), torch.from_numpy(gradients.astype(np.float64))
        optimizer.step()
        way += abs(exact - before)
        most = np.maximum(most, abs(exact))
    assert (way > 0).all()
    assert (abs(slab.rows(ids) - exact) <= STEPS * HALF_A_UNIT * (most + way)).all()


def test_adam_counts_the_steps_of_each_row() -> None:
    """A row that has no gradient does not change, and is as if there had been no such step."""
    slab, chance = Slab(Table("t", DIM, Adam(0.01), Normal(1.0))), np.random.default_rng(0)
    ids = np.arange(ROWS, dtype=np.int64)
    exact = [torch.nn.Parameter(torch.from_numpy(row.astype(np.float64))) for row in slab.rows(ids)]
    optimizers = [torchs(Adam(0.01))([row]) for row in exact]
    for step in range(20):
        chosen = ids[step % (ids + 1) == 0]
        gradients = chance.normal(size=(len(chosen), DIM)).astype(np.float32)
        slab.set(slab.change(chosen, gradients))
        for row, gradient in zip(chosen.tolist(), gradients, strict=True):
            exact[row].grad = torch.from_numpy(gradient.astype(np.float64))
            optimizers[row].step()
    np.testing.assert_allclose(slab.rows(ids), [row.detach().numpy() for row in exact], rtol=1e-5)


@pytest.mark.parametrize("beta2", [0.999, 0.99999, 1 - 1e-9, 1 - 2**-53])
def test_adams_first_step_is_the_rate_whatever_its_betas(beta2: float) -> None:
    slab, ids = Slab(Table("t", 1, Adam(0.5, 0.9, beta2), Zeros())), np.zeros(1, np.int64)
    values = slab.change(ids, np.full((1, 1), 3.0, np.float32)).values
    assert values[0, 0] == pytest.approx(-0.5, rel=1e-7)


def test_a_row_is_the_same_wherever_it_is_made() -> None:
    for initial in (Zeros(), Uniform(0.5), Normal(0.1)):
        table = Table("t", 4, initial=initial, seed=3)
        one, other = Slab(table), Slab(table)
        ids = np.array([5, 900, 64], np.int64)
        other.set(other.change(ids[:1], np.zeros((1, 4), np.float32)))
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
