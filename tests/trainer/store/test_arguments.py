"""Arguments that cannot be right are refused where they are given, by the constructor and by a decoder."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from elasticjob.trainer.link.address import Way
from elasticjob.trainer.shards import Dataset
from elasticjob.trainer.store import SGD, Adagrad, Adam, Normal, Store, Table, Uniform, Zeros

NO_NUMBERS = (math.nan, math.inf, -math.inf, True, "0.1", None, np.float32(0.1), 1j, 10**400)
NO_INTEGERS = (True, 1.0, "1", None, np.int64(1))
WRONG: dict[tuple[type, str], tuple[Any, ...]] = {
    (SGD, "rate"): (*NO_NUMBERS, -0.1),
    (Adagrad, "rate"): (*NO_NUMBERS, -0.1),
    (Adagrad, "initial"): (*NO_NUMBERS, -0.1, 1e38),
    (Adagrad, "epsilon"): (*NO_NUMBERS, -1),
    (Adam, "rate"): (*NO_NUMBERS, -0.1),
    (Adam, "beta1"): (*NO_NUMBERS, -0.1, 1.0),
    (Adam, "beta2"): (*NO_NUMBERS, -0.1, 1, 1.5),
    (Adam, "epsilon"): (*NO_NUMBERS, -1e-9),
    (Uniform, "scale"): (*NO_NUMBERS, -0.1, 1e38),
    (Normal, "deviation"): (*NO_NUMBERS, -0.1, 1e38),
    (Table, "name"): ("", "x" * 254, None, 7, b"t", "\ud800"),
    (Table, "dim"): (*NO_INTEGERS, 0, -1, 65_537),
    (Table, "optimizer"): (None, 0.1, "Adam", SGD, Zeros()),
    (Table, "initial"): (None, 0.0, Zeros, SGD()),
    (Table, "seed"): (*NO_INTEGERS, -1, 2**53 + 1),
}
USERS, DATA = Table("users", 2), Dataset(name="records", size=10, shard=5)
RIGHT: dict[type, dict[str, Any]] = {
    Table: {"name": "t", "dim": 1},
    Store: {"tables": [USERS], "dataset": DATA},
}


@pytest.mark.parametrize(
    ("kind", "field", "value"), [(*of, value) for of, values in WRONG.items() for value in values], ids=str
)
def test_a_constructor_names_field_value_and_right_ones(kind: type, field: str, value: Any) -> None:
    said = re.escape(f"{kind.__name__}: {field} is {value!r}: give ")
    with pytest.raises(ValueError, match=f"^{said}"):
        kind(**{**RIGHT.get(kind, {}), field: value})


def test_each_field_has_a_row() -> None:
    kinds = {SGD, Adagrad, Adam, Zeros, Uniform, Normal, Table}
    fields = {(kind, field) for kind in kinds for field in kind.__struct_fields__}
    assert fields == WRONG.keys()


@pytest.mark.parametrize(("kind", "field"), WRONG)
def test_a_decoder_refuses_what_the_constructor_does(kind: type, field: str) -> None:
    for value in WRONG[kind, field]:
        try:
            sent = msgspec.msgpack.encode({"type": kind.__name__, **RIGHT.get(kind, {}), field: value})
        except (TypeError, OverflowError, UnicodeEncodeError):
            continue  # no message can bring it
        if value == 1.0 and type(value) is float and "dim seed".count(field):
            continue  # which msgspec takes for 1
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(sent, type=kind)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"tables": [USERS, Table("users", 3)]},
            "the name of two tables is 'users': give each one of its own",
        ),
        ({"tables": []}, "the number of tables is 0: give 1 to 1024"),
        (
            {"tables": [Table(f"t{each}", 1) for each in range(1025)]},
            "the number of tables is 1025: give 1 to 1024",
        ),
        ({"tables": ["users"]}, "a table is 'users': give a Table"),
        ({"dataset": "records"}, "dataset is 'records': give a Dataset"),
        *(
            ({"save_every": value}, f"save_every is {value!r}: give seconds above 0")
            for value in (-1, 0, math.nan, math.inf, True, "60")
        ),
    ],
)
def test_a_store_refuses_what_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'Store: {said}')}"):
        Store(**(RIGHT[Store] | changed))


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "5", None, np.int64(5)])
def test_batches_of_no_size_are_refused_when_they_are_asked_for(tmp_path: Path, size: Any) -> None:
    with pytest.raises(ValueError, match=f"batches: size is {re.escape(repr(size))}: give an int"):
        store_in(tmp_path).batches(size)


def test_a_store_trains_within_a_with_block(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="within a `with` block"):
        next(store_in(tmp_path).batches(10))


def store_in(folder: Path) -> Store:
    """Return a store of a master that is not there."""
    (folder / "token").write_text("secret")
    return Store([USERS], DATA, way=Way(address="127.0.0.1:1", token_file=str(folder / "token"), node="w"))
