"""From text to a tree: recursive descent over the grammar of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from elasticjob.kube.cel.syntax import (
    Binary,
    Call,
    Choice,
    Fold,
    Has,
    Index,
    ListOf,
    Literal,
    Logic,
    MapOf,
    Name,
    Select,
    Tree,
    Unary,
    depth,
)
from elasticjob.kube.cel.tokens import Token, field, tokens, unquote
from elasticjob.kube.cel.values import CelSyntaxError

MOST_DEEP: Final = 64
"""What is compiled and evaluated by recursion stays far from the end of Python's stack."""

MACROS: Final = frozenset({"all", "exists", "exists_one", "filter", "map"})
_NAMESPACES: Final = frozenset({"optional", "ip", "cidr", "format", "sets", "math", "strings", "jsonpatch"})
_CONSTANTS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_LITERALS: Final[dict[str, Callable[[str], Any]]] = {
    "float": float,
    "hex": lambda text: int(text.rstrip("u"), 16),
    "int": lambda text: int(text.rstrip("u")),
    "string": unquote,
}


def parsed(text: str) -> Tree:
    """Return what an expression says, MOST_DEEP levels deep at most.

    Raises CelSyntaxError with the place of the mistake.
    """
    parser = _Parser(text)
    try:
        tree = parser.expression()
    except RecursionError:
        raise CelSyntaxError(f"more than {MOST_DEEP} levels deep: write several rules") from None
    parser.expect_end()
    if depth(tree) > MOST_DEEP:
        raise CelSyntaxError(f"more than {MOST_DEEP} levels deep: write several rules")
    return tree


class _Parser:
    """Recursive descent; every method returns the tree of what it read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found = list(tokens(text))
        self._next = 0

    # Reading tokens

    def _peek(self, ahead: int = 0) -> Token:
        return self._found[min(self._next + ahead, len(self._found) - 1)]

    def _take(self) -> Token:
        self._next += 1
        return self._found[self._next - 1]

    def _accept(self, *signs: str) -> str:
        token = self._peek()
        if token.kind in ("sign", "name") and token.text in signs:
            self._next += 1
            return token.text
        return ""

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            self._fail(f"expected {sign!r}")

    def _fail(self, why: str) -> NoReturn:
        token = self._peek()
        shown = repr(token.text) if token.text else "the end"
        raise CelSyntaxError(
            f"syntax error at column {token.place + 1} of {self._text!r}: {why}, found {shown}"
        )

    def expect_end(self) -> None:
        if self._peek().kind != "end":
            self._fail("expected the end")

    # Grammar

    def expression(self) -> Tree:
        condition = self._logic("||")
        if not self._accept("?"):
            return condition
        then = self._logic("||")
        self._expect(":")
        return Choice(condition, then, self.expression())

    def _logic(self, sign: str) -> Tree:
        read = self._relation if sign == "&&" else lambda: self._logic("&&")
        terms = [read()]
        while self._accept(sign):
            terms.append(read())
        return terms[0] if len(terms) == 1 else Logic(sign, tuple(terms))

    def _relation(self) -> Tree:
        tree = self._sum()
        while sign := self._accept("==", "!=", "<=", ">=", "<", ">", "in"):
            tree = Binary(sign, tree, self._sum())
        return tree

    def _sum(self) -> Tree:
        tree = self._product()
        while sign := self._accept("+", "-"):
            tree = Binary(sign, tree, self._product())
        return tree

    def _product(self) -> Tree:
        tree = self._unary()
        while sign := self._accept("*", "/", "%"):
            tree = Binary(sign, tree, self._unary())
        return tree

    def _unary(self) -> Tree:
        if sign := self._accept("!", "-"):
            return Unary(sign, self._unary())
        return self._member()

    def _member(self) -> Tree:
        tree = self._primary()
        while sign := self._accept(".", ".?", "[", "[?"):
            if sign.startswith("["):
                tree = Index(tree, self.expression(), sign == "[?")
                self._expect("]")
            else:
                tree = self._selected(tree, optional=sign == ".?")
        return tree

    def _selected(self, tree: Tree, *, optional: bool) -> Tree:
        if self._peek().kind != "name":
            self._fail("expected a field or function name")
        name = field(self._take().text)
        if optional or not self._accept("("):
            return Select(tree, name, optional)
        return self._macro(tree, name) if name in MACROS else Call(name, tree, self._arguments(")"))

    def _macro(self, tree: Tree, name: str) -> Tree:
        """`list.all(x, condition)` and its kin."""
        token = self._take()
        if token.kind != "name":
            raise CelSyntaxError(f"{name}() needs a variable name first, in {self._text!r}")
        self._expect(",")
        bodies = self._arguments(")")
        if not 1 <= len(bodies) <= (2 if name == "map" else 1):
            raise CelSyntaxError(
                f"{name}() has {len(bodies)} expressions after its variable, in {self._text!r}"
            )
        return Fold(name, tree, token.text, bodies)

    def _arguments(self, end: str) -> tuple[Tree, ...]:
        found: list[Tree] = []
        while not self._accept(end):
            if found:
                self._expect(",")
            found.append(self.expression())
        return tuple(found)

    def _primary(self) -> Tree:
        if self._accept("("):
            tree = self.expression()
            self._expect(")")
            return tree
        if self._accept("["):
            return ListOf(self._arguments("]"))
        if self._accept("{"):
            return self._map()
        token = self._peek()
        if token.kind in _LITERALS:
            self._next += 1
            return Literal(_LITERALS[token.kind](token.text))
        if token.kind != "name":
            self._fail("expected a value")
        self._next += 1
        return self._named(token.text)

    def _named(self, name: str) -> Tree:
        if name in _CONSTANTS:
            return Literal(_CONSTANTS[name])
        if name in _NAMESPACES and self._peek().text == "." and self._peek(2).text == "(":
            self._next += 1
            name = f"{name}.{self._take().text}"
        if not self._accept("("):
            return Name(field(name))
        arguments = self._arguments(")")
        return self._has(arguments) if name == "has" else Call(name, None, arguments)

    def _has(self, arguments: tuple[Tree, ...]) -> Tree:
        match arguments:
            case (Select(operand, name, False),):
                return Has(operand, name)
            case _:
                raise CelSyntaxError(
                    f"invalid argument to has() macro in {self._text!r}: it must end in a field"
                )

    def _map(self) -> Tree:
        pairs: list[tuple[Tree, Tree]] = []
        while not self._accept("}"):
            if pairs:
                self._expect(",")
            key = self.expression()
            self._expect(":")
            pairs.append((key, self.expression()))
        return MapOf(tuple(pairs))
