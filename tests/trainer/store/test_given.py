"""Ids and gradients of users, and of what claims to be a worker: taken as they are, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from elasticjob.trainer.store import Table
from elasticjob.trainer.store.given import StoreError, ids_of, sum_rows

ml_dtypes = pytest.importorskip("ml_dtypes")  # JAX and TensorFlow bring it along
DIM = 3
USERS = Table("users", DIM)
FLOATS = ("float16", "float32", "float64", "longdouble", "bfloat16", "float8_e5m2")
OTHERS = ("bool", "int8", "int32", "int64", "uint64", "complex64", "object", "U3", "M8[s]", "int4")
SHAPES = st.one_of(
    st.sampled_from([(), (DIM,), (2, DIM), (DIM, 2), (2, 1, DIM), (1, 2, DIM), (2 * DIM,), (DIM, DIM)]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


def dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


@given(st.integers(0, 4), SHAPES, st.sampled_from((*FLOATS, *OTHERS)))
def test_gradients_are_taken_if_they_are_floats_with_a_row_for_each_id(
    ids: int, shape: tuple[int, ...], kind: str
) -> None:
    """Others with as many numbers would change the wrong ones: a transposed matrix, a flat one."""
    gradients = np.zeros(shape, dtype(kind))
    if shape == (ids, DIM) and kind in FLOATS:
        found, sums = sum_rows(USERS, range(ids), gradients)
        assert (len(found), sums.shape, sums.dtype.name) == (ids, shape, "float32")
    else:
        with pytest.raises(StoreError, match=rf"table users: gradients are .*give .* of shape \({ids}, 3\)"):
            sum_rows(USERS, range(ids), gradients)


@given(SHAPES, st.sampled_from((*FLOATS, *OTHERS)))
def test_ids_are_taken_if_they_are_a_list_of_integers(shape: tuple[int, ...], kind: str) -> None:
    ids = np.zeros(shape, dtype(kind))
    if shape == (0,) or (len(shape) == 1 and kind in ("int8", "int32", "int64", "uint64")):
        assert ids_of("users", ids).tolist() == [0] * shape[0]
    else:
        with pytest.raises(StoreError, match=r"table users: ids are .*give a list of integers"):
            ids_of("users", ids)


@pytest.mark.parametrize("ids", [[-1, 5], np.array([2**63], np.uint64), [2**63]])
def test_ids_that_no_row_has_are_refused(ids: Any) -> None:
    with pytest.raises(StoreError, match=r"table users: ids are .* give some of 0 to 2\*\*63 - 1"):
        ids_of("users", ids)


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (np.nan, "no number"),
        (-np.inf, "no number"),
        (1e39, "beyond those of float32"),
        (np.longdouble("1e4000"), "no number"),
    ],
)
def test_gradients_that_are_no_numbers_of_float32_are_refused(number: Any, why: str) -> None:
    with pytest.raises(StoreError, match=why):
        sum_rows(USERS, [7, 8], np.array([[0, 1, 2], [3, number, 5]], np.longdouble))


def test_gradients_of_a_row_that_comes_often_are_added_in_float64() -> None:
    chance = np.random.default_rng(5)
    ids, gradients = chance.integers(0, 3, 100_000), chance.normal(1.0, 1.0, (100_000, DIM))
    for kind in ("float16", "bfloat16", "float32"):
        given = gradients.astype(dtype(kind))
        found, sums = sum_rows(USERS, ids, given)
        exact = np.stack([given[ids == each].astype(np.float64).sum(axis=0) for each in range(3)])
        assert found.tolist() == [0, 1, 2]
        np.testing.assert_allclose(sums, exact, rtol=2**-24)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_tensors_of_torch_are_taken_whatever_their_floats_and_graph(kind: torch.dtype) -> None:
    tensor = torch.full((2, DIM), 1.5, dtype=kind).requires_grad_()
    assert sum_rows(USERS, torch.tensor([7, 8]), tensor)[1].tolist() == [[1.5] * DIM] * 2


def test_tensors_of_torch_that_numpy_does_not_take_are_refused_with_the_table() -> None:
    for tensor in (torch.ones(2, DIM).to_sparse(), torch.ones(2, DIM, device="meta")):
        with pytest.raises(StoreError, match=r"table users: gradients: .*give a dense matrix"):
            sum_rows(USERS, [7, 8], tensor)
