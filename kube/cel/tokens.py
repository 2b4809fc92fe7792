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
  | (?P<float>\d*\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
  | (?P<hex>0[xX][0-9a-fA-F]+[uU]?)
  | (?P<int>\d+[uU]?)
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
            why = f"syntax error at column {place + 1}: unexpected {text[place]!r}"
            raise CelSyntaxError(why, place, f"Syntax error: token recognition error at: '{text[place]}'")
        kind = match.lastgroup or ""
        if kind != "space":
            yield Token(kind, match[0], place)
        place = match.end()
    yield Token("end", "", len(text))


def unquote(text: str) -> str | bytes:
    """Return what a quoted text stands for; `r` before it keeps its backslashes, `b` makes it bytes."""
    prefix = text[: min(text.index(quote) for quote in "\"'" if quote in text)].lower()
    quotes = 3 if text[len(prefix) :][:3] in ('"""', "'''") else 1
    inner = text[len(prefix) + quotes : -quotes]
    if "b" in prefix:
        return (inner if "r" in prefix else _ESCAPE.sub(_byte, inner)).encode("utf-8", "surrogateescape")
    return inner if "r" in prefix else _ESCAPE.sub(_character, inner)


_ESCAPE = re.compile(r"\\([xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.DOTALL)


def _character(match: re.Match[str]) -> str:
    code = _code(match[1])
    return _ESCAPES.get(match[1], match[1]) if code is None else chr(code)


def _byte(match: re.Match[str]) -> str:
    """The same within bytes, where a number is a byte, not a character."""
    code = _code(match[1])
    return _character(match) if code is None or code < 0x80 or match[1][0] in "uU" else chr(0xDC00 + code)


def _code(escape: str) -> int | None:
    if len(escape) == 1:
        return None
    return int(escape, 8) if escape[0].isdigit() else int(escape[1:], 16)


# Names that CEL keeps for itself, and characters it has no place for, are escaped in field names.
_UNESCAPED = {"__underscores__": "__", "__dot__": ".", "__dash__": "-", "__slash__": "/"}


def field(name: str) -> str:
    if name.startswith("`"):
        return name[1:-1]
    for escaped, plain in _UNESCAPED.items():
        name = name.replace(escaped, plain)
    reserved = re.fullmatch(r"__([a-z]+)__", name)
    return reserved[1] if reserved else name


_WORDS = frozenset(
    (
        *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in"),
        *("let", "loop", "namespace", "null", "package", "return", "true", "var", "void", "while"),
    )
)


RESERVED = _WORDS - {"true", "false", "null", "in"}
"""Words that no variable may have."""


def escaped(name: str) -> str:
    """Return a field's name as rules write it. Inverse of `field`."""
    if name in _WORDS:
        return f"__{name}__"
    for written, plain in _UNESCAPED.items():
        name = name.replace(plain, written)
    return name
