"""Ids and gradients as users give them: what does not fit is refused, and nothing is given another shape."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from elasticjob.trainer.store.optimizers import Rows, as_float32
from elasticjob.trainer.store.tables import Ids, Table

HIGHEST: Final = 2**63 - 1
SMALL_FLOATS: Final = ("bfloat16", "float8")  # of ml_dtypes, which JAX uses: numpy knows them by name alone


class StoreError(Exception):
    """A server refuses a request, and would do so again: the message says what to change."""


def ids_of(table: str, ids: npt.ArrayLike) -> Ids:
    """Return the ids of rows of a table. Raises StoreError unless they are a list of integers from 0."""
    given = np.asarray(ids)
    if given.shape == (0,):  # of float64, if it was a list
        return np.zeros(0, np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise StoreError(
            f"table {table}: ids are {given.dtype} of shape {given.shape}: give a list of integers"
        )
    if not 0 <= given.min() <= given.max() <= HIGHEST:
        raise StoreError(
            f"table {table}: ids are {given.min()} to {given.max()}: give some of 0 to 2**63 - 1"
        )
    return given.astype(np.int64)


def sum_rows(table: Table, ids: npt.ArrayLike, gradients: npt.ArrayLike) -> tuple[Ids, Rows]:
    """Return each row once, with the sum of its gradients, which are added in float64."""
    rows, given = ids_of(table.name, ids), plain(table.name, gradients)
    floats = given.dtype.kind == "f" or given.dtype.name.startswith(SMALL_FLOATS)
    if not floats or given.shape != (len(rows), table.dim):
        raise StoreError(
            f"table {table.name}: gradients are {given.dtype} of shape {given.shape}: give floating-point"
            f" numbers of shape {(len(rows), table.dim)}, a row for each id"
        )
    order = np.argsort(rows, kind="stable")
    starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
    found = rows[order][starts]
    with np.errstate(over="ignore", invalid="ignore"):  # asked below
        sums = given[order].astype(np.float64)
        if len(starts) < len(rows):
            sums = np.add.reduceat(sums, starts)
    if not np.isfinite(sums).all():
        raise StoreError(
            f"table {table.name}: a gradient is no number (NaN or infinite): leave the batch out"
        )
    try:
        return found, as_float32(sums)
    except OverflowError as error:
        raise StoreError(f"table {table.name}: sums of gradients: {error}") from None


def plain(table: str, gradients: Any) -> npt.NDArray[Any]:
    """Return gradients as numpy has them: tensors of torch without a graph, half precision as float32."""
    try:
        if hasattr(gradients, "detach"):
            gradients = gradients.detach()
            if gradients.is_floating_point() and gradients.element_size() < 4:
                gradients = gradients.float()  # numpy has no bfloat16
        return np.asarray(gradients)
    except (TypeError, ValueError, RuntimeError) as error:
        raise StoreError(
            f"table {table}: gradients: {error}: give a dense matrix in the CPU's memory"
        ) from error
