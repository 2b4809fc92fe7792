"""From text to a tree: recursive descent over the grammar of the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from elasticjob.kube.cel.overloads import FUNCTIONS
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
from elasticjob.kube.cel.tokens import RESERVED, Token, field, tokens, unquote
from elasticjob.kube.cel.values import CelSyntaxError, Uint

MOST_DEEP: Final = 64
"""What is compiled and evaluated by recursion stays far from the end of Python's stack."""

MOST_LONG: Final = 100_000
"""What servers read of a text, in characters."""

_END: Final = "expected the end"
_VALUE: Final = "expected a value"
_NAME: Final = "expected a field or function name"
_MISSING_ONE: Final = "missing {} at '{}'"
_MISSING: Final[Mapping[str, str]] = {
    "expected ':'": "mismatched input '{1}' expecting {0}",
    "expected ']'": "mismatched input '{1}' expecting {{']', ','}}",
    "expected '}'": "mismatched input '{1}' expecting {{'}}', ','}}",
}
_BEGINNINGS: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, "
    "IDENTIFIER}"
)

MACROS: Final = frozenset(
    {("all", 2), ("exists", 2), ("exists_one", 2), ("filter", 2), ("map", 2), ("map", 3)}
)
"""Methods that bind a variable, with the number of their arguments."""

_ONE_VARIABLE: Final = "write it with one variable, an element of a list or a key of a map"
_LEFT_OUT: Final[Mapping[tuple[str, int], str]] = {
    **dict.fromkeys((("optMap", 2), ("optFlatMap", 2)), "write x.hasValue() ? … : …"),
    **dict.fromkeys((("all", 3), ("exists", 3), ("exists_one", 3), ("existsOne", 3)), _ONE_VARIABLE),
    **dict.fromkeys(
        ((f"transform{what}", count) for what in ("List", "Map") for count in (3, 4)), _ONE_VARIABLE
    ),
    **dict.fromkeys((("transformMapEntry", 3), ("transformMapEntry", 4)), _ONE_VARIABLE),
    ("sortBy", 2): "write sort() over the keys",
}
"""Macros of servers that are not evaluated here, and what to write instead."""

_NO_NAME: Final[Mapping[str, str]] = {
    **dict.fromkeys(("all", "exists", "exists_one"), "argument must be a simple name"),
    **dict.fromkeys(("filter", "map"), "argument is not an identifier"),
}
_QUALIFIED: Final = frozenset(name for name in FUNCTIONS if "." in name)
_HELD: Final[Mapping[str, range]] = {"int": range(-(2**63), 2**63), "uint": range(2**64)}
_CONSTANTS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}
_LITERALS: Final[dict[str, Callable[[str], Any]]] = {
    "float": float,
    "hex": lambda text: _number(text, 16),
    "int": lambda text: _number(text, 10),
    "string": unquote,
}


def _number(text: str, base: int) -> int:
    """A whole number; one that ends in `u` has no sign."""
    return Uint(text.rstrip("uU"), base) if text[-1] in "uU" else int(text, base)


def parsed(text: str) -> Tree:
    """Return what an expression says, MOST_LONG characters and MOST_DEEP levels at most.

    Raises CelSyntaxError with the place of the mistake.
    """
    if len(text) > MOST_LONG:
        told = f"expression code point size exceeds limit: size: {len(text)}, limit {MOST_LONG}"
        raise CelSyntaxError(f"{told}: write several rules", told=told)
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

    def _place(self) -> int:
        return self._peek().place

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
            f"syntax error at column {token.place + 1} of {self._text!r}: {why}, found {shown}",
            token.place,
            self._told(why),
        )

    def _told(self, why: str) -> str:
        """A complaint in the words of the grammar that servers read with."""
        found = self._peek().text or "<EOF>"
        after = self._peek(1).kind
        if why == _VALUE:
            how = "extraneous" if found != "<EOF>" and after not in ("end", "sign") else "mismatched"
            return f"Syntax error: {how} input '{found}' expecting {_BEGINNINGS}"
        if why == _END:
            how = "extraneous" if after == "end" else "mismatched"
            return f"Syntax error: {how} input '{found}' expecting <EOF>"
        if why == _NAME:
            return f"Syntax error: no viable alternative at input '.{self._peek().text}'"
        return f"Syntax error: {_MISSING.get(why, _MISSING_ONE).format(why.removeprefix('expected '), found)}"

    def expect_end(self) -> None:
        if self._peek().kind != "end":
            self._fail(_END)

    # Grammar

    def expression(self) -> Tree:
        condition = self._logic("||")
        place = self._place()
        if not self._accept("?"):
            return condition
        then = self._logic("||")
        self._expect(":")
        return Choice(condition, then, self.expression(), place=place)

    def _logic(self, sign: str) -> Tree:
        read = self._relation if sign == "&&" else lambda: self._logic("&&")
        terms, place = [read()], self._place()
        while self._accept(sign):
            terms.append(read())
        return terms[0] if len(terms) == 1 else Logic(sign, tuple(terms), place=place)

    def _binary(self, read: Callable[[], Tree], *signs: str) -> Tree:
        tree, place = read(), self._place()
        while sign := self._accept(*signs):
            tree = Binary(sign, tree, read(), place=place)
            place = self._place()
        return tree

    def _relation(self) -> Tree:
        return self._binary(self._sum, "==", "!=", "<=", ">=", "<", ">", "in")

    def _sum(self) -> Tree:
        return self._binary(self._product, "+", "-")

    def _product(self) -> Tree:
        return self._binary(self._unary, "*", "/", "%")

    def _unary(self) -> Tree:
        """`!` and `-` twice take each other away; `-` before a number belongs to the number."""
        place, signs = self._place(), 0
        sign = self._peek().text if self._peek().kind == "sign" else ""
        while sign in ("!", "-") and not self._is_negative() and self._accept(sign):
            signs += 1
        tree = self._member()
        return Unary(sign, tree, place=place) if signs % 2 else tree

    def _is_negative(self) -> bool:
        return self._peek().text == "-" and self._peek(1).kind in ("float", "hex", "int")

    def _member(self) -> Tree:
        tree, place = self._primary(), self._place()
        while sign := self._accept(".", ".?", "[", "[?"):
            if sign.startswith("["):
                tree = Index(tree, self.expression(), sign == "[?", place=place)
                self._expect("]")
            else:
                tree = self._selected(tree, place, optional=sign == ".?")
            place = self._place()
        return tree

    def _selected(self, tree: Tree, place: int, *, optional: bool) -> Tree:
        if self._peek().kind != "name":
            self._fail(_NAME)
        name, opened = field(self._take().text), self._place()
        if optional or not self._accept("("):
            return Select(tree, name, optional, place=place)
        arguments = self._arguments(")")
        if (name, len(arguments)) in MACROS:
            return self._macro(tree, name, arguments, opened)
        if (name, len(arguments)) in _LEFT_OUT:
            instead = _LEFT_OUT[name, len(arguments)]
            raise CelSyntaxError(
                f"{name}() of {len(arguments)} is not known here, only to servers: {instead}", opened
            )
        return Call(name, tree, arguments, place=opened)

    def _macro(self, tree: Tree, name: str, arguments: tuple[Tree, ...], place: int) -> Tree:
        """`list.all(x, condition)` and its kin."""
        first, *bodies = arguments
        if not isinstance(first, Name):
            raise CelSyntaxError(
                f"{name}() needs a variable name first, in {self._text!r}", first.place, _NO_NAME[name]
            )
        return Fold(name, tree, first.name, tuple(bodies), place=place)

    def _arguments(self, end: str) -> tuple[Tree, ...]:
        found: list[Tree] = []
        while not self._accept(end):
            if found and not self._accept(","):
                self._fail(f"expected {end!r}")
            found.append(self.expression())
        return tuple(found)

    def _primary(self) -> Tree:
        place = self._place()
        if self._accept("("):
            tree = self.expression()
            self._expect(")")
            return tree
        if self._accept("["):
            return ListOf(self._arguments("]"), place=place)
        if self._accept("{"):
            return MapOf(self._pairs(), place=place)
        if self._is_negative():
            self._next += 1
            return Literal(self._held(-self._literal(), place), place=place)
        if self._peek().kind in _LITERALS:
            return Literal(self._held(self._literal(), place), place=place)
        if self._peek().kind != "name":
            self._fail(_VALUE)
        return self._named(self._take().text, place)

    def _held(self, value: Any, place: int) -> Any:
        """The value of a literal, if it is one that 64 bits hold."""
        kind = "uint" if isinstance(value, Uint) else "int"
        if isinstance(value, int) and value not in _HELD[kind]:
            told = f"invalid {kind} literal"
            raise CelSyntaxError(f"{value} is more than 64 bits hold, in {self._text!r}", place, told)
        return value

    def _literal(self) -> Any:
        token = self._take()
        return _LITERALS[token.kind](token.text)

    def _named(self, name: str, place: int) -> Tree:
        if name in _CONSTANTS:
            return Literal(_CONSTANTS[name], place=place)
        if name in RESERVED:
            raise CelSyntaxError(
                f"{name} is a word of its own, and no name", place, f"reserved identifier: {name}"
            )
        if f"{name}.{self._peek(1).text}" in _QUALIFIED and self._peek(2).text == "(":
            self._next += 1
            name = f"{name}.{self._take().text}"
        opened = self._place()
        if not self._accept("("):
            return Name(field(name), place=place)
        arguments = self._arguments(")")
        if (name, len(arguments)) == ("has", 1):
            return self._has(arguments[0], opened)
        return Call(name, None, arguments, place=opened)

    def _has(self, argument: Tree, place: int) -> Tree:
        if isinstance(argument, Select) and not argument.optional:
            return Has(argument.operand, argument.field, place=place)
        told = "invalid argument to has() macro"
        raise CelSyntaxError(f"{told} in {self._text!r}: it must end in a field", argument.place, told)

    def _pairs(self) -> tuple[tuple[Tree, Tree], ...]:
        pairs: list[tuple[Tree, Tree]] = []
        while not self._accept("}"):
            if pairs and not self._accept(","):
                self._fail("expected '}'")
            key = self.expression()
            self._expect(":")
            pairs.append((key, self.expression()))
        return tuple(pairs)
