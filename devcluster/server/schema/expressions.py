"""CEL expressions of rules and match conditions. The only module that imports `cel_expr_python`.

Variables are untyped, so a mistyped expression is found when it is evaluated, not when it is compiled. Of the
functions that Kubernetes adds to CEL, those in `_FUNCTIONS` exist; an expression with another one is refused.
An evaluation ends after 10,000 iterations of its loops.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

from elasticjob.devcluster.quantity import parse
from elasticjob.kube.crd.patterns import find_all


class CompileError(ValueError):
    """An expression that has a syntax error, or names a variable or function that does not exist."""


class NoValue(Exception):
    """An evaluation that failed."""


@dataclass(frozen=True)
class Expression:
    """A compiled expression."""

    text: str
    program: cel.Expression

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the value as plain JSON. Raises NoValue."""
        try:
            found = self.program.eval(data=values)
            value = found.plain_value()
        except (RuntimeError, TypeError) as error:  # TypeError: a value without a Python equivalent
            raise NoValue(_first_line(error)) from None
        if found.type() == cel.Type.ERROR:
            raise NoValue(_first_line(value))
        return value


_OLD = "oldSelf__"
_OPTIONAL_OLD = f"cel.bind(oldSelf, size({_OLD}) > 0 ? optional.of({_OLD}[0]) : optional.none(), ({{}}\n))"


@lru_cache(maxsize=4096)
def compile_rule(text: str, *variables: str, optional_old: bool = False) -> Expression:
    """Compile an expression over some variables. Raises NotCompiled.

    With `optional_old`, `oldSelf` is an optional; `old_values` makes its variable.
    """
    try:
        program = _environment(variables).compile(text)
        if optional_old:  # the library takes no optionals as values, so the expression makes its own
            program = _environment((*variables, _OLD)).compile(_OPTIONAL_OLD.format(text))
    except RuntimeError as error:
        raise CompileError(f"devcluster cannot compile it: {_first_line(error)}") from None
    return Expression(text, program)


def condition(text: str) -> Expression:
    """Compile the expression of a match condition. Raises NotCompiled."""
    return compile_rule(text, "object", "oldObject", "request")


def optional_old(*value: Any) -> dict[str, Any]:
    """The variable of an optional `oldSelf`, which is present or absent."""
    return {_OLD: list(value)}


def _first_line(error: object) -> str:
    """The message without the library's status code and the quoted source."""
    line = str(error).split("\n")[0]
    return re.sub(r"^(?:[A-Z_]+: )?(?:ERROR: )?|\s*\[[A-Z_]+\]$", "", line)


@lru_cache
def _environment(variables: tuple[str, ...]) -> cel.Env:
    return cel.NewEnv(
        variables=dict.fromkeys(variables, cel.Type.DYN),
        extensions=[
            ext_bindings.ExtBindings(),
            ext_encoders.ExtEncoders(),
            ext_math.ExtMath(),
            ext_optional.ExtOptional(),
            ext_strings.ExtStrings(),
        ],
        functions=_functions(),
    )


# The functions that Kubernetes adds


def _quantity(text: str) -> str:
    """The number of a quantity, such as 1/2: the library has no values of types of our own."""
    return str(parse(text))


def _is(read: Callable[[str], object]) -> Callable[[str], bool]:
    """A function that answers whether a string can be read."""

    def answers(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return answers


def _url(text: str) -> None:
    parts = urlsplit(text)
    if (not (parts.scheme and parts.netloc) and not text.startswith("/")) or re.search(r"\s", text):
        raise ValueError(f"{text!r} is no URL")


def _cidr(text: str) -> None:
    if "/" not in text:
        raise ValueError(f"{text!r} has no prefix length")
    ipaddress.ip_interface(text)


def _compare(left: str, right: str) -> int:
    one, other = Fraction(left), Fraction(right)
    return (one > other) - (one < other)


def _functions() -> list[cel.FunctionDecl]:
    text, number, truth = cel.Type.STRING, cel.Type.INT, cel.Type.BOOL
    texts, items, anything = cel.Type.List(text), cel.Type.List(cel.Type.DYN), cel.Type.DYN
    functions: tuple[tuple[str, list[cel.Type], cel.Type, Callable[..., Any]], ...] = (
        ("isURL", [text], truth, _is(_url)),
        ("isIP", [text], truth, _is(ipaddress.ip_address)),
        ("isCIDR", [text], truth, _is(_cidr)),
        ("isQuantity", [text], truth, _is(parse)),
        ("quantity", [text], text, _quantity),
    )
    methods: tuple[tuple[str, list[cel.Type], cel.Type, Callable[..., Any]], ...] = (
        ("isLessThan", [text, text], truth, lambda left, right: _compare(left, right) < 0),
        ("isGreaterThan", [text, text], truth, lambda left, right: _compare(left, right) > 0),
        ("compareTo", [text, text], number, _compare),
        ("find", [text, text], text, lambda subject, pattern: next(iter(find_all(pattern, subject)), "")),
        ("findAll", [text, text], texts, lambda subject, pattern: find_all(pattern, subject)),
        ("sum", [items], anything, sum),
        ("min", [items], anything, min),
        ("max", [items], anything, max),
        ("isSorted", [items], truth, lambda each: each == sorted(each)),
    )
    return [
        cel.FunctionDecl(name, [cel.Overload(name, result, parameters, is_method, call)])
        for is_method, table in ((False, functions), (True, methods))
        for name, parameters, result, call in table
    ]
