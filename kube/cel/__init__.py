"""The part of the Common Expression Language (CEL) that rules of custom resources are written in.

Grammar (lowest binding first): `c ? a : b`, `||`, `&&`, relations (`== != < <= > >= in`), `+ -`, `* / %`,
unary `! -`, member `.f`, `.?f`, call, index `[i]`, `[?i]`, literals, lists, maps. Macros: has, all, exists,
exists_one, filter, map, each of one variable. Functions: all that Kubernetes 1.35 has for rules, `overloads`.

    read      parsed(text) → a Tree: parser ← tokens, syntax
    type      refusal(rule, field, shape_of(schema)) → why a server refuses it, or None: compiling ← checker,
              overloads, types, literals; mistakes (in a server's words), advice (in ours)
    price     cost.cost_of(tree, shape): the most it may cost ← prices, seen, shapes
    evaluate  compiled(text).evaluate(values, meter) ← program, operators, macros, functions; spent (its cost)

`reader(schema)` makes of an object's values what rules see: moments, spans, bytes. `parsed` and `compiled`
raise CelSyntaxError; `evaluate` raises CelError where there is no value, TooCostly beyond a meter's limit.
`&&` and `||` are commutative as CEL wants it: an error on one side does not matter when the other decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from elasticjob.kube.cel.compiling import Refusal, refusal
from elasticjob.kube.cel.natives import Reader, reader
from elasticjob.kube.cel.parser import parsed
from elasticjob.kube.cel.program import runnable
from elasticjob.kube.cel.seen import UNBOUNDED
from elasticjob.kube.cel.shapes import Shape, shape_of
from elasticjob.kube.cel.syntax import free_names
from elasticjob.kube.cel.tokens import escaped
from elasticjob.kube.cel.values import (
    ABSENT,
    NO_OVERLOAD,
    CelError,
    CelSyntaxError,
    Meter,
    Node,
    Scope,
    TooCostly,
    hashed,
    optional,
)

__all__ = [
    "ABSENT",
    "NO_OVERLOAD",
    "UNBOUNDED",
    "CelError",
    "CelSyntaxError",
    "Meter",
    "Program",
    "Reader",
    "Refusal",
    "Shape",
    "TooCostly",
    "compiled",
    "escaped",
    "free_names",
    "hashed",
    "optional",
    "parsed",
    "reader",
    "refusal",
    "shape_of",
]


@dataclass(frozen=True)
class Program:
    """A compiled expression. `names` are the variables it reads."""

    text: str
    node: Node
    names: frozenset[str]

    def evaluate(self, values: Mapping[str, Any], meter: Meter | None = None) -> Any:
        """Return the expression's value; the meter counts what it costs.

        Raises CelError where it has none for these values, TooCostly where the meter has a limit.
        """
        try:
            return self.node(Scope(values, meter or Meter()))
        except RecursionError:
            raise CelError("the values are nested too deeply") from None


@lru_cache(4096)
def compiled(text: str) -> Program:
    """Return an expression that can be evaluated. Raises CelSyntaxError with the place of the mistake."""
    tree = parsed(text)
    try:
        node = runnable(tree)
    except CelSyntaxError as error:
        raise CelSyntaxError(f"{error} in {text!r}") from None
    return Program(text, node, frozenset(free_names(tree)))
