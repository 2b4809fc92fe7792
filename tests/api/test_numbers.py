"""Numbers of other processes: each request bounds its own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from math import inf, nan
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from elasticjob.api import rpc
from elasticjob.api.numbers import MOST, decode_metric
from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Failure, Progress

for module in pkgutil.iter_modules(rpc.__path__):
    importlib.import_module(f"elasticjob.api.rpc.{module.name}")


def unbounded(found: inspect.Type, where: str, seen: set[type]) -> Iterator[str]:
    """Return the places of numbers without a least or a most, which NaN passes, too."""
    match found:
        case inspect.IntType() | inspect.FloatType():
            if (found.ge, found.gt) == (None, None) or (found.le, found.lt) == (None, None):
                yield where
        case inspect.StructType(cls=of):
            for part in [] if of in seen else found.fields:
                yield from unbounded(part.type, f"{of.__name__}.{part.name}", seen | {of})
        case inspect.UnionType():
            for each in found.types:
                yield from unbounded(each, where, seen)
        case inspect.DictType():
            yield from unbounded(found.key_type, where, seen)
            yield from unbounded(found.value_type, where, seen)
        case inspect.VarTupleType() | inspect.ListType():
            yield from unbounded(found.item_type, where, seen)
        case inspect.TupleType():
            for each in found.item_types:
                yield from unbounded(each, where, seen)


@pytest.mark.parametrize("request_", Request.__subclasses__(), ids=lambda each: each.PATH)
def test_every_number_of_a_request_is_bounded(request_: type[Request[Any]]) -> None:
    assert not {*unbounded(inspect.type_info(request_), "", set())}


@pytest.mark.parametrize("value", [inf, -inf, nan])
def test_msgpack_carries_no_infinite_number_to_a_master(value: float) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode({"step": 1, "loss": value}), type=Progress)


def test_json_carries_no_integer_of_a_thousand_digits() -> None:
    named = {"node": "n", "incarnation": "i", "round": 1, "local_rank": 0, "message": ""}
    body = msgspec.json.encode(named)[:-1] + b',"exit_code":' + b"9" * 1000 + b"}"
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(body, type=Failure)


@pytest.mark.parametrize("value", [inf, -inf, nan, -1e-9, 2 * MOST, "1", None, 10**400])
def test_what_nothing_measures_is_not_decoded(value: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - msgspec's own words
        decode_metric(value)
