"""The part of the Common Expression Language (CEL) that rules of custom resources are written in.

Grammar (lowest binding first): `c ? a : b`, `||`, `&&`, relations (`== != < <= > >= in`), `+ -`, `* / %`,
unary `! -`, member `.f`, `.?f`, call, index `[i]`, `[?i]`, literals, lists, maps. Macros: has, all, exists,
exists_one, filter, map.

`compiled(text)` gives a Program or raises CelSyntaxError; `Program.evaluate(values)` gives a value or raises
CelError. `&&` and `||` are commutative as CEL wants it: an error on one side does not matter when the other
side decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from elasticjob.kube.cel.parser import Parser
from elasticjob.kube.cel.values import ABSENT, CelError, CelSyntaxError, Node, Scope, optional

__all__ = ["ABSENT", "CelError", "CelSyntaxError", "Program", "compiled", "optional"]


@dataclass(frozen=True)
class Program:
    """A compiled expression. `names` are the variables it reads."""

    text: str
    node: Node
    names: frozenset[str]

    def evaluate(self, values: Scope) -> Any:
        return self.node(values)


@cache
def compiled(text: str) -> Program:
    """Parse an expression. Raises CelSyntaxError with the place of the mistake."""
    parser = Parser(text)
    node = parser.expression()
    parser.expect_end()
    return Program(text, node, frozenset(parser.names))
