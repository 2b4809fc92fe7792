"""The part of the Common Expression Language (CEL) that rules of custom resources are written in.

Grammar (lowest binding first): `c ? a : b`, `||`, `&&`, relations (`== != < <= > >= in`), `+ -`, `* / %`,
unary `! -`, member `.f`, `.?f`, call, index `[i]`, `[?i]`, literals, lists, maps. Macros: has, all, exists,
exists_one, filter, map.

`parsed(text)` gives a Tree, `compiled(text)` a Program; both raise CelSyntaxError. `Program.evaluate(values)`
gives a value or raises CelError. `&&` and `||` are commutative as CEL wants it: an error on one side does not
matter when the other side decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from elasticjob.kube.cel.parser import parsed
from elasticjob.kube.cel.program import runnable
from elasticjob.kube.cel.syntax import free_names
from elasticjob.kube.cel.tokens import escaped
from elasticjob.kube.cel.values import ABSENT, CelError, CelSyntaxError, Node, Scope, optional

__all__ = [
    "ABSENT",
    "CelError",
    "CelSyntaxError",
    "Program",
    "compiled",
    "escaped",
    "free_names",
    "optional",
    "parsed",
]


@dataclass(frozen=True)
class Program:
    """A compiled expression. `names` are the variables it reads."""

    text: str
    node: Node
    names: frozenset[str]

    def evaluate(self, values: Scope) -> Any:
        """Return the expression's value. Raises CelError where it has none for these values."""
        return self.node(values)


@lru_cache(4096)
def compiled(text: str) -> Program:
    """Return an expression that can be evaluated. Raises CelSyntaxError with the place of the mistake."""
    tree = parsed(text)
    try:
        node = runnable(tree)
    except CelSyntaxError as error:
        raise CelSyntaxError(f"{error} in {text!r}") from None
    return Program(text, node, frozenset(free_names(tree)))
