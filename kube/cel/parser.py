"""From text to a node: recursive descent over the grammar of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elasticjob.kube.cel.functions import FUNCTIONS, METHODS, called
from elasticjob.kube.cel.macros import MACROS
from elasticjob.kube.cel.operators import (
    ARITHMETIC,
    RELATIONS,
    binary,
    decide,
    has_field,
    index,
    select,
    variable,
)
from elasticjob.kube.cel.tokens import Token, field, tokens, unquote
from elasticjob.kube.cel.values import NONE, CelSyntaxError, Node, boolean, wrapped

_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_LITERALS: dict[str, Callable[[str], Any]] = {
    "float": float,
    "hex": lambda text: int(text.rstrip("u"), 16),
    "int": lambda text: int(text.rstrip("u")),
    "string": unquote,
}


class Parser:
    """Recursive descent; every method returns the function that evaluates what it read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found = list(tokens(text))
        self._next = 0
        self._bound: list[str] = []
        self.names: set[str] = set()

    # Reading tokens

    def _peek(self) -> Token:
        return self._found[self._next]

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

    def _fail(self, why: str) -> None:
        token = self._peek()
        shown = repr(token.text) if token.text else "the end"
        raise CelSyntaxError(
            f"syntax error at column {token.place + 1} of {self._text!r}: {why}, found {shown}"
        )

    def expect_end(self) -> None:
        if self._peek().kind != "end":
            self._fail("expected the end")

    # Grammar

    def expression(self) -> Node:
        condition = self._or()
        if not self._accept("?"):
            return condition
        then = self._or()
        self._expect(":")
        otherwise = self.expression()
        return lambda scope: then(scope) if boolean(condition(scope)) else otherwise(scope)

    def _or(self) -> Node:
        terms = [self._and()]
        while self._accept("||"):
            terms.append(self._and())
        return terms[0] if len(terms) == 1 else lambda scope: decide(terms, scope, True)

    def _and(self) -> Node:
        terms = [self._relation()]
        while self._accept("&&"):
            terms.append(self._relation())
        return terms[0] if len(terms) == 1 else lambda scope: decide(terms, scope, False)

    def _relation(self) -> Node:
        node = self._sum()
        while sign := self._accept("==", "!=", "<=", ">=", "<", ">", "in"):
            node = binary(RELATIONS[sign], node, self._sum())
        return node

    def _sum(self) -> Node:
        node = self._product()
        while sign := self._accept("+", "-"):
            node = binary(ARITHMETIC[sign], node, self._product())
        return node

    def _product(self) -> Node:
        node = self._unary()
        while sign := self._accept("*", "/", "%"):
            node = binary(ARITHMETIC[sign], node, self._unary())
        return node

    def _unary(self) -> Node:
        if self._accept("!"):
            negated = self._unary()
            return lambda scope: not boolean(negated(scope))
        if self._accept("-"):
            number = self._unary()
            return lambda scope: -number(number(scope))
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while sign := self._accept(".", ".?", "[", "[?"):
            if sign.startswith("["):
                node = index(node, self.expression(), optional=sign == "[?")
                self._expect("]")
            else:
                node = self._selected(node, optional=sign == ".?")
        return node

    def _selected(self, node: Node, *, optional: bool) -> Node:
        token = self._take()
        if token.kind != "name":
            self._next -= 1
            self._fail("expected a field or function name")
        name = field(token.text)
        if optional or not self._accept("("):
            return select(node, name, optional=optional)
        if name in MACROS:
            return self._macro(node, name)
        method = METHODS.get(name)
        if method is None:
            raise CelSyntaxError(f"undeclared reference to function {name!r} in {self._text!r}")
        arguments = self._arguments()
        return lambda scope: called(method, name, [node(scope), *(each(scope) for each in arguments)])

    def _macro(self, node: Node, name: str) -> Node:
        """`list.all(x, condition)` and its kin; the variable is known inside only."""
        token = self._take()
        if token.kind != "name":
            raise CelSyntaxError(f"{name}() needs a variable name first, in {self._text!r}")
        self._expect(",")
        self._bound.append(token.text)
        bodies = [self.expression()]
        while self._accept(","):
            bodies.append(self.expression())
        self._bound.pop()
        self._expect(")")
        return MACROS[name](node, token.text, bodies)

    def _arguments(self) -> list[Node]:
        found: list[Node] = []
        while not self._accept(")"):
            if found:
                self._expect(",")
            found.append(self.expression())
        return found

    def _primary(self) -> Node:
        if self._accept("("):
            node = self.expression()
            self._expect(")")
            return node
        if self._accept("["):
            return self._list()
        if self._accept("{"):
            return self._map()
        token = self._peek()
        if token.kind in _LITERALS:
            self._next += 1
            value = _LITERALS[token.kind](token.text)
            return lambda _: value
        if token.kind != "name":
            self._fail("expected a value")
        self._next += 1
        return self._named(token.text)

    def _named(self, name: str) -> Node:
        if name in _CONSTANTS:
            value = _CONSTANTS[name]
            return lambda _: value
        if name == "optional" and self._accept("."):
            return self._optional()
        if not self._accept("("):
            name = field(name)
            if name not in self._bound:
                self.names.add(name)
            return lambda scope: variable(scope, name)
        if name == "has":
            return self._has()
        function = FUNCTIONS.get(name)
        if function is None:
            raise CelSyntaxError(f"undeclared reference to function {name!r} in {self._text!r}")
        arguments = self._arguments()
        return lambda scope: called(function, name, [each(scope) for each in arguments])

    def _optional(self) -> Node:
        name = self._take().text
        self._expect("(")
        arguments = self._arguments()
        if name == "none":
            return lambda _: NONE
        if name in ("of", "ofNonZeroValue") and len(arguments) == 1:
            inner, always = arguments[0], name == "of"
            return lambda scope: wrapped(inner(scope), always)
        raise CelSyntaxError(f"undeclared reference to function 'optional.{name}' in {self._text!r}")

    def _has(self) -> Node:
        """`has(a.b)`: the argument must end in a field selection."""
        begin = self._next
        node = self._member()
        self._expect(")")
        chosen = self._found[begin : self._next - 1]
        if len(chosen) < 3 or chosen[-2].text != "." or chosen[-1].kind != "name":
            raise CelSyntaxError(f"invalid argument to has() macro in {self._text!r}: it must end in a field")
        self._next, end = begin, self._next
        parent = self._parent_of(end - 3)
        self._next = end
        name = field(chosen[-1].text)
        del node
        return lambda scope: has_field(parent(scope), name)

    def _parent_of(self, end: int) -> Node:
        """Parse again up to (and without) the last `.field`."""
        kept = self._found
        self._found = [*kept[:end], Token("end", "", kept[end].place)]
        node = self._member()
        self._found = kept
        return node

    def _list(self) -> Node:
        found: list[Node] = []
        while not self._accept("]"):
            if found:
                self._expect(",")
            found.append(self.expression())
        return lambda scope: [each(scope) for each in found]

    def _map(self) -> Node:
        pairs: list[tuple[Node, Node]] = []
        while not self._accept("}"):
            if pairs:
                self._expect(",")
            key = self.expression()
            self._expect(":")
            pairs.append((key, self.expression()))
        return lambda scope: {key(scope): value(scope) for key, value in pairs}
