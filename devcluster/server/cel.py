"""The part of the Common Expression Language (CEL) that rules of custom resources are written in.

Grammar (lowest binding first): `c ? a : b`, `||`, `&&`, relations (`== != < <= > >= in`), `+ -`, `* / %`,
unary `! -`, member `.f`, `.?f`, call, index `[i]`, `[?i]`, literals, lists, maps. Macros: has, all, exists,
exists_one, filter, map.

`compiled(text)` gives a Program or raises CelSyntaxError; `Program.evaluate(values)` gives a value or raises
CelError. `&&` and `||` are commutative as CEL wants it: an error on one side does not matter when the other
side decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]


class CelSyntaxError(ValueError):
    """The text is no expression of the supported subset."""


class CelError(Exception):
    """The expression has no value for this input: no such key, wrong types, division by zero."""


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
    parser = _Parser(text)
    node = parser.expression()
    parser.expect_end()
    return Program(text, node, frozenset(parser.names))


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    place: int


_TOKENS = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
  | (?P<hex>0[xX][0-9a-fA-F]+u?)
  | (?P<int>\d+u?)
  | (?P<string>[rR]?(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''
      |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`]+`)
  | (?P<sign>\|\||&&|==|!=|<=|>=|\.\?|\[\?|[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def _tokens(text: str) -> Iterator[_Token]:
    place = 0
    while place < len(text):
        match = _TOKENS.match(text, place)
        if match is None:
            raise CelSyntaxError(f"syntax error at column {place + 1}: unexpected {text[place]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            yield _Token(kind, match[0], place)
        place = match.end()
    yield _Token("end", "", len(text))


def _unquote(text: str) -> str:
    raw = text[0] in "rR"
    text = text[1:] if raw else text
    size = 3 if text[:3] in ('"""', "'''") else 1
    inner = text[size:-size]
    return (
        inner if raw else re.sub(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", _unescape, inner)
    )


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "xuU" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPES.get(escape, escape)


class _Parser:
    """Recursive descent; every method returns the function that evaluates what it read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found = list(_tokens(text))
        self._next = 0
        self._bound: list[str] = []
        self.names: set[str] = set()

    # Reading tokens

    def _peek(self) -> _Token:
        return self._found[self._next]

    def _take(self) -> _Token:
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
        return lambda scope: then(scope) if _boolean(condition(scope)) else otherwise(scope)

    def _or(self) -> Node:
        terms = [self._and()]
        while self._accept("||"):
            terms.append(self._and())
        return terms[0] if len(terms) == 1 else lambda scope: _decide(terms, scope, True)

    def _and(self) -> Node:
        terms = [self._relation()]
        while self._accept("&&"):
            terms.append(self._relation())
        return terms[0] if len(terms) == 1 else lambda scope: _decide(terms, scope, False)

    def _relation(self) -> Node:
        node = self._sum()
        while sign := self._accept("==", "!=", "<=", ">=", "<", ">", "in"):
            node = _binary(_RELATIONS[sign], node, self._sum())
        return node

    def _sum(self) -> Node:
        node = self._product()
        while sign := self._accept("+", "-"):
            node = _binary(_ARITHMETIC[sign], node, self._product())
        return node

    def _product(self) -> Node:
        node = self._unary()
        while sign := self._accept("*", "/", "%"):
            node = _binary(_ARITHMETIC[sign], node, self._unary())
        return node

    def _unary(self) -> Node:
        if self._accept("!"):
            negated = self._unary()
            return lambda scope: not _boolean(negated(scope))
        if self._accept("-"):
            number = self._unary()
            return lambda scope: -_number(number(scope))
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while sign := self._accept(".", ".?", "[", "[?"):
            if sign.startswith("["):
                node = _index(node, self.expression(), optional=sign == "[?")
                self._expect("]")
            else:
                node = self._selected(node, optional=sign == ".?")
        return node

    def _selected(self, node: Node, *, optional: bool) -> Node:
        token = self._take()
        if token.kind != "name":
            self._next -= 1
            self._fail("expected a field or function name")
        name = _field(token.text)
        if optional or not self._accept("("):
            return _select(node, name, optional=optional)
        if name in _MACROS:
            return self._macro(node, name)
        method = _METHODS.get(name)
        if method is None:
            raise CelSyntaxError(f"undeclared reference to function {name!r} in {self._text!r}")
        arguments = self._arguments()
        return lambda scope: _called(method, name, [node(scope), *(each(scope) for each in arguments)])

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
        return _MACROS[name](node, token.text, bodies)

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
            name = _field(name)
            if name not in self._bound:
                self.names.add(name)
            return lambda scope: _variable(scope, name)
        if name == "has":
            return self._has()
        function = _FUNCTIONS.get(name)
        if function is None:
            raise CelSyntaxError(f"undeclared reference to function {name!r} in {self._text!r}")
        arguments = self._arguments()
        return lambda scope: _called(function, name, [each(scope) for each in arguments])

    def _optional(self) -> Node:
        name = self._take().text
        self._expect("(")
        arguments = self._arguments()
        if name == "none":
            return lambda _: _NONE
        if name in ("of", "ofNonZeroValue") and len(arguments) == 1:
            inner, always = arguments[0], name == "of"
            return lambda scope: _wrapped(inner(scope), always)
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
        name = _field(chosen[-1].text)
        del node
        return lambda scope: _has_field(parent(scope), name)

    def _parent_of(self, end: int) -> Node:
        """Parse again up to (and without) the last `.field`."""
        kept = self._found
        self._found = [*kept[:end], _Token("end", "", kept[end].place)]
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


_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_LITERALS: dict[str, Callable[[str], Any]] = {
    "float": float,
    "hex": lambda text: int(text.rstrip("u"), 16),
    "int": lambda text: int(text.rstrip("u")),
    "string": _unquote,
}
# Names that CEL keeps for itself, and characters it has no place for, are escaped in field names.
_UNESCAPED = {"__underscores__": "__", "__dot__": ".", "__dash__": "-", "__slash__": "/"}


def _field(name: str) -> str:
    if name.startswith("`"):
        return name[1:-1]
    for escaped, plain in _UNESCAPED.items():
        name = name.replace(escaped, plain)
    reserved = re.fullmatch(r"__([a-z]+)__", name)
    return reserved[1] if reserved else name


# Values


@dataclass(frozen=True)
class _Optional:
    value: Any


_NONE = _Optional(None)


def _wrapped(value: Any, always: bool) -> _Optional:
    return _Optional(value) if always or value else _NONE


def optional(value: Any) -> Any:
    """An optional that holds a value, as `oldSelf` of rules with optionalOldSelf."""
    return _Optional(value)


ABSENT: Any = _NONE


def _variable(scope: Scope, name: str) -> Any:
    if name not in scope:
        raise CelError(f"no such variable: {name}")
    return scope[name]


def _select(node: Node, name: str, *, optional: bool) -> Node:
    def select(scope: Scope) -> Any:
        value = node(scope)
        if isinstance(value, _Optional) or optional:
            inner = value.value if isinstance(value, _Optional) else value
            return _Optional(inner[name]) if isinstance(inner, dict) and name in inner else _NONE
        if not isinstance(value, dict) or name not in value:
            raise CelError(f"no such key: {name}")
        return value[name]

    return select


def _has_field(value: Any, name: str) -> bool:
    inner = value.value if isinstance(value, _Optional) else value
    if not isinstance(inner, dict):
        raise CelError(f"no such key: {name}")
    return name in inner


def _index(node: Node, index: Node, *, optional: bool) -> Node:
    def at(scope: Scope) -> Any:
        value, key = node(scope), index(scope)
        lenient = optional or isinstance(value, _Optional)
        inner = value.value if isinstance(value, _Optional) else value
        try:
            found = inner[_place(key)] if isinstance(inner, list) else inner[key]
        except (KeyError, IndexError, TypeError):
            if lenient:
                return _NONE
            raise CelError(f"no such key or index: {key}") from None
        return _Optional(found) if lenient else found

    return at


def _place(key: Any) -> int:
    """An index of a list; CEL does not count from the end."""
    if isinstance(key, bool) or not isinstance(key, int) or key < 0:
        raise IndexError(key)
    return key


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"no such overload: expected a boolean, got {_kind(value)}")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CelError(f"no such overload: expected a number, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    kinds = {
        bool: "bool",
        int: "int",
        float: "double",
        str: "string",
        list: "list",
        dict: "map",
        type(None): "null",
    }
    return kinds.get(type(value), type(value).__name__)


def _decide(terms: list[Node], scope: Scope, deciding: bool) -> bool:
    """`||` (deciding = True) or `&&`: a deciding term wins over errors in the others."""
    failure: CelError | None = None
    for term in terms:
        try:
            if _boolean(term(scope)) is deciding:
                return deciding
        except CelError as error:
            failure = failure or error
    if failure:
        raise failure
    return not deciding


def _binary(act: Callable[[Any, Any], Any], left: Node, right: Node) -> Node:
    def combine(scope: Scope) -> Any:
        first, second = left(scope), right(scope)
        try:
            return act(first, second)
        except (TypeError, ZeroDivisionError) as error:
            raise CelError(f"no such overload: {_kind(first)} with {_kind(second)}: {error}") from error

    return combine


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


def _in(value: Any, container: Any) -> bool:
    if isinstance(container, list):
        return any(_equal(value, each) for each in container)
    return value in container


def _order(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        if isinstance(left, list | dict):
            raise TypeError("only scalars are ordered")
        return compare(left, right)

    return ordered


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, float) or isinstance(right, float):
        return _number(left) / _number(right)
    quotient = abs(_number(left)) // abs(_number(right))
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(left: Any, right: Any) -> Any:
    return _number(left) - _number(right) * _divide(left, right)


_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _order(lambda left, right: left < right),
    "<=": _order(lambda left, right: left <= right),
    ">": _order(lambda left, right: left > right),
    ">=": _order(lambda left, right: left >= right),
    "in": _in,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: _number(left) - _number(right),
    "*": lambda left, right: _number(left) * _number(right),
    "/": _divide,
    "%": _modulo,
}

# Macros


def _each(node: Node, name: str, scope: Scope) -> Iterator[Scope]:
    """The scopes of a macro's body: elements of a list, keys of a map."""
    value = node(scope)
    if not isinstance(value, list | dict):
        raise CelError(f"no such overload: a macro over {_kind(value)}")
    return ({**scope, name: each} for each in value)


def _all(node: Node, name: str, bodies: list[Node]) -> Node:
    return lambda scope: _decide(
        [_closed(bodies[0], inner) for inner in _each(node, name, scope)], scope, False
    )


def _exists(node: Node, name: str, bodies: list[Node]) -> Node:
    return lambda scope: _decide(
        [_closed(bodies[0], inner) for inner in _each(node, name, scope)], scope, True
    )


def _closed(body: Node, inner: Scope) -> Node:
    return lambda _: body(inner)


def _exists_one(node: Node, name: str, bodies: list[Node]) -> Node:
    return lambda scope: sum(_boolean(bodies[0](inner)) for inner in _each(node, name, scope)) == 1


def _filter(node: Node, name: str, bodies: list[Node]) -> Node:
    return lambda scope: [inner[name] for inner in _each(node, name, scope) if _boolean(bodies[0](inner))]


def _map(node: Node, name: str, bodies: list[Node]) -> Node:
    """`map(x, value)` or `map(x, condition, value)`."""
    value = bodies[-1]
    conditions = bodies[:-1]
    return lambda scope: [
        value(inner)
        for inner in _each(node, name, scope)
        if all(_boolean(condition(inner)) for condition in conditions)
    ]


_MACROS: dict[str, Callable[[Node, str, list[Node]], Node]] = {
    "all": _all,
    "exists": _exists,
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _map,
}

# Functions and methods


def _called(function: Callable[..., Any], name: str, arguments: list[Any]) -> Any:
    try:
        return function(*arguments)
    except (TypeError, ValueError, AttributeError, re.error, IndexError) as error:
        raise CelError(f"{name}({', '.join(_kind(each) for each in arguments)}): {error}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {_kind(value)}")
    return value


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError(f"cannot convert {_kind(value)} to a string")


def _size(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise TypeError(f"{_kind(value)} has no size")
    return len(value)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return _text(text).replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    return (
        list(_text(text)) if not separator else _text(text).split(separator, count - 1 if count > 0 else -1)
    )


def _sorted(value: list[Any]) -> bool:
    return all(first <= second for first, second in pairwise(value))


_METHODS: dict[str, Callable[..., Any]] = {
    "size": _size,
    "contains": lambda text, part: part in _text(text),
    "startsWith": lambda text, part: _text(text).startswith(part),
    "endsWith": lambda text, part: _text(text).endswith(part),
    "matches": lambda text, pattern: re.search(pattern, _text(text)) is not None,
    "lowerAscii": lambda text: _text(text).lower(),
    "upperAscii": lambda text: _text(text).upper(),
    "trim": lambda text: _text(text).strip(),
    "replace": _replace,
    "split": _split,
    "join": lambda value, separator="": separator.join(value),
    "substring": lambda text, start, end=None: _text(text)[start:end],
    "indexOf": lambda value, part: value.find(part) if isinstance(value, str) else value.index(part),
    "charAt": lambda text, place: _text(text)[place],
    "find": lambda text, pattern: ((found := re.search(pattern, _text(text))) and found[0]) or "",
    "isSorted": _sorted,
    "sum": sum,
    "min": min,
    "max": max,
    "hasValue": lambda value: value is not _NONE,
    "value": lambda value: _present(value),
    "orValue": lambda value, otherwise: otherwise if value is _NONE else value.value,
}


def _present(value: _Optional) -> Any:
    if value is _NONE:
        raise ValueError("optional.none() dereference")
    return value.value


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": _size,
    "int": int,
    "uint": int,
    "double": float,
    "string": _string,
    "type": _kind,
    "matches": lambda text, pattern: re.search(pattern, _text(text)) is not None,
}
