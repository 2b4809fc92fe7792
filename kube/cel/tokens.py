"""The words of an expression, and what its names and strings stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from elasticjob.kube.cel.values import CelSyntaxError


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    place: int


_TOKENS = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
  | (?P<hex>0[xX][0-9a-fA-F]+u?)
  | (?P<int>\d+u?)
  | (?P<string>(?:[rR][bB]?|[bB][rR]?)?(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''
      |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`]+`)
  | (?P<sign>\|\||&&|==|!=|<=|>=|\.\?|\[\?|[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def tokens(text: str) -> Iterator[Token]:
    place = 0
    while place < len(text):
        match = _TOKENS.match(text, place)
        if match is None:
            raise CelSyntaxError(f"syntax error at column {place + 1}: unexpected {text[place]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            yield Token(kind, match[0], place)
        place = match.end()
    yield Token("end", "", len(text))


def unquote(text: str) -> str | bytes:
    """Return what a quoted text stands for; `r` before it keeps its backslashes, `b` makes it bytes."""
    prefix = text[: min(text.index(quote) for quote in "\"'" if quote in text)].lower()
    found = _unquoted(text[len(prefix) :], raw="r" in prefix)
    return found.encode() if "b" in prefix else found


def _unquoted(text: str, *, raw: bool) -> str:
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


# Names that CEL keeps for itself, and characters it has no place for, are escaped in field names.
_UNESCAPED = {"__underscores__": "__", "__dot__": ".", "__dash__": "-", "__slash__": "/"}


def field(name: str) -> str:
    if name.startswith("`"):
        return name[1:-1]
    for escaped, plain in _UNESCAPED.items():
        name = name.replace(escaped, plain)
    reserved = re.fullmatch(r"__([a-z]+)__", name)
    return reserved[1] if reserved else name


_RESERVED = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in"),
        *("let", "loop", "namespace", "null", "package", "return", "true", "var", "void", "while"),
    )
)


def escaped(name: str) -> str:
    """Return a field's name as rules write it. Inverse of `field`."""
    if name in _RESERVED:
        return f"__{name}__"
    for written, plain in _UNESCAPED.items():
        name = name.replace(plain, written)
    return name
