"""Expressions beside what Kubernetes' own libraries make of them: types, complaints, values, costs.

`recorded.json` holds what the compiler and the libraries that an API server 1.35.4 uses for rules (its CEL
environment over cel-go) said of each expression: the estimate or the complaint, the value and its cost.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from elasticjob.kube.cel import CelError, Meter, Shape, compiled, parsed, reader, refusal, shape_of, texts
from elasticjob.kube.cel.cost import cost_of
from elasticjob.kube.cel.values import NONE, Optional, Uint, kind

RECORDED: Final = json.loads(Path(__file__).with_name("recorded.json").read_text())
COMPILED: Final[dict[str, int | str]] = RECORDED["compiled"]
EVALUATED: Final[dict[str, dict[str, Any]]] = RECORDED["evaluated"]


def shape() -> Shape:
    found = shape_of(RECORDED["schema"])
    assert found is not None
    return found


def told(value: Any) -> Any:
    """A value as it was recorded."""
    match value:
        case Optional():
            return "optional.none" if value is NONE else {"optional": told(value.value)}
        case list():
            return [told(each) for each in value]
        case dict():
            return {str(key): told(each) for key, each in value.items()}
        case None | bool():
            return value
        case Uint():
            return f"uint:{int(value)}"
        case str() | int():
            return value
        case bytes():
            return f"bytes:[{' '.join(map(str, value))}]"
        case float():
            return f"double:{texts.written(value)}"
    return f"{kind(value)}:{value}"


def evaluated(text: str) -> dict[str, Any]:
    read = reader(RECORDED["schema"])
    assert read is not None
    meter = Meter()
    try:
        value = compiled(text).evaluate({"self": read(RECORDED["self"])}, meter)
    except CelError as error:
        return {"failed": str(error)}
    return {"value": told(value), "cost": meter.spent}


@pytest.mark.parametrize(("text", "expected"), COMPILED.items(), ids=list(COMPILED))
def test_rules_compile_or_are_refused_in_the_servers_words(text: str, expected: int | str) -> None:
    refused = refusal({"rule": text}, "rule", shape())
    if refused is None:
        assert cost_of(parsed(text), shape()) == expected
    else:
        assert refused.message == expected


@pytest.mark.parametrize(("text", "expected"), EVALUATED.items(), ids=list(EVALUATED))
def test_values_and_what_they_cost(text: str, expected: dict[str, Any]) -> None:
    assert evaluated(text) == expected


def test_what_is_refused_says_what_to_write_instead() -> None:
    refused = {
        text: found for text in COMPILED if (found := refusal({"rule": text}, "rule", shape())) is not None
    }
    assert len(refused) > 100
    assert all(found.advice for found in refused.values())
