"""Patterns as API servers read them: RE2's, without look-around and back-references.

`re2_problem` says why a server refuses one. `matches` answers as a server would, and in time that is linear
in the text whatever the pattern: it runs on the engine of pydantic, which is of the kind of RE2 but does not
tell where. `found` gives the texts that match, each in linear time too, but a slow one: for `find` and
`findAll`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from pydantic_core import SchemaError, SchemaValidator, core_schema

from elasticjob.kube.finding import Steps, Test, Word, matches_in, steps_of

_TOKEN: Final = re.compile(
    r"""
    (?P<escape>\\[pP]\{[^}]*\}|\\x\{[^}]*\}|\\.)
  | (?P<set>\[\^?\]?(?:\\[pP]\{[^}]*\}|\\x\{[^}]*\}|\\.|\[:\^?[a-z]+:\]|[^\]\\])*\])
  | (?P<group>\(\?(?:P?<[A-Za-z0-9_]+>|[imsU-]*[:)]|P?[^()]?[=!]?)|\()
  | (?P<repeat>\{\d+(?:,\d*)?\}\??|[*+?]\??)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = frozenset("aftnrvAbBzdDsSwWpPxQE0")
_SET_ESCAPES: Final = frozenset("aftnrvdDsSwWpPx0")
_CLASSES: Final = frozenset(
    [
        "L",
        "Lu",
        "Ll",
        "Lt",
        "Lm",
        "Lo",
        "M",
        "Mn",
        "Mc",
        "Me",
        "N",
        "Nd",
        "Nl",
        "No",
        "P",
        "Pc",
        "Pd",
        "Ps",
        "Pe",
        "Pi",
        "Pf",
        "Po",
        "S",
        "Sm",
        "Sc",
        "Sk",
        "So",
        "Z",
    ]
)
_SCRIPTS: Final = frozenset(
    ["Arabic", "Cyrillic", "Greek", "Han", "Hangul", "Hebrew", "Hiragana", "Katakana", "Latin", "Thai"]
)
_POSIX: Final[Mapping[str, str]] = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_OPENS: Final = re.compile(r"\(\?(?:P?<\w+>|[imsU-]*:)|\($")
_UNKNOWN_GROUPS: Final[Mapping[str, str]] = {
    "(?=": "look-ahead",
    "(?!": "look-ahead",
    "(?<=": "look-behind",
    "(?<!": "look-behind",
    "(?P=": "back-references",
    "(?P>": "recursion",
    "(?>": "atomic groups",
    "(?#": "comments",
}
_MOST_REPEATS: Final = 1000


def re2_problem(pattern: str) -> str | None:
    """Return what a pattern has that RE2 does not know, or None."""
    before = ""
    for token in _tokens(pattern):
        kind, text = token.lastgroup or "", token[0]
        if kind == before == "repeat":
            return f"RE2 does not repeat a repetition, as {text} would"
        if kind in _PROBLEMS and (problem := _PROBLEMS[kind](text)):
            return problem
        before = kind
    try:
        re.compile("".join(_plain(token) for token in _tokens(pattern)))
    except re.error as error:
        return f"it is no regular expression: {error}"
    except RecursionError:
        return "its groups are nested too deeply"
    return _too_often(pattern) or _unreadable(pattern)


def _unreadable(pattern: str) -> str | None:
    """What `matches` has against a pattern: nothing, for all that is taken."""
    try:
        _matcher(pattern)
    except ValueError as error:
        return str(error)
    return None


def matches(pattern: str, text: str) -> bool:
    """Return whether a text has the pattern somewhere. Raises ValueError for what cannot be read."""
    return _matcher(pattern).isinstance_python(text)


def found(pattern: str, text: str) -> Iterator[str]:
    """Return the texts that match, from the left. Raises ValueError for what cannot be read."""
    if not matches(pattern, text):
        return iter(())
    return (text[start:end] for start, end in matches_in(_steps(pattern), text))


_MOST_KEPT: Final = 1024


@lru_cache(_MOST_KEPT)
def _matcher(pattern: str) -> SchemaValidator:
    try:
        return _engine("".join(_linear(token) for token in _tokens(pattern)))
    except SchemaError as error:
        why = str(error).strip().splitlines()[-1].strip()
        raise ValueError(f"the pattern {pattern!r} cannot be read: {why}") from None


def _engine(written: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=written, regex_engine="rust-regex"))


@lru_cache(_MOST_KEPT)
def _steps(pattern: str) -> Steps:
    words = (Word(each.lastgroup or "", each[0], _linear(each)) for each in _tokens(pattern))
    return steps_of(words, _letters)


def _letters(pattern: str) -> Test:
    """What a character is asked, on the engine of `matches`: to both it is the same."""
    return _engine(rf"\A(?:{pattern})\z").isinstance_python


_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)


def _tokens(pattern: str) -> Iterator[re.Match[str]]:
    """The words of a pattern; what stands between \\Q and \\E is plain text."""
    plain = _QUOTED.sub(lambda each: each[0] if each[1] is None else re.escape(each[1]), pattern)
    return _TOKEN.finditer(plain)


_ASCII: Final[Mapping[str, str]] = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
_LINEAR: Final[Mapping[str, str]] = {r"\b": r"(?-u:\b)", r"\0": r"\x00", r"\<": "<", r"\>": ">"}


def _linear(token: re.Match[str]) -> str:
    """The token as pydantic's engine reads it: without Unicode's digits, letters and spaces."""
    kind, text = token.lastgroup, token[0]
    if kind == "escape":
        letter = text[1]
        if ranges := _ASCII.get(letter.lower()):
            return f"[{'^' * letter.isupper()}{ranges}]"
        return _LINEAR.get(text, _without_caret(text))
    if kind == "set":
        return "[" + _SET_WORD.sub(_linear_word, _literal_bracket(text[1:-1])) + "]"
    if kind == "group":
        return _without_name(text)
    return rf"\{text}" if text in ("{", "}") else text


def _without_name(group: str) -> str:
    """The beginning of a group whose text nobody asks for: names may stand twice, and be numbers."""
    return re.sub(r"^\((\?P?<\w+>)?$", "(?:", group)


_SET_WORD: Final = re.compile(
    r"\[:(?P<not>\^?)(?P<posix>[a-z]+):\]|\\(?P<letter>[dDsSwW])|\\[pP]\{\^[^}]*\}|\\.|[\[&~]|--"
)


def _linear_word(word: re.Match[str]) -> str:
    """A word within a set; this engine also knows sets within sets, and calculates with them."""
    if word["posix"]:
        return f"[{word['not']}{_POSIX[word['posix']]}]"
    if letter := word["letter"]:
        return f"[{'^' * letter.isupper()}{_ASCII[letter.lower()]}]"
    if word[0] == "--":
        return r"-\-"  # up to a dash
    if word[0].startswith("\\"):
        return _LINEAR.get(word[0], _without_caret(word[0]))
    return rf"\{word[0]}"


def _without_caret(text: str) -> str:
    r"""A class of Unicode with its negation outside: `\p{^L}` is `\P{L}`."""
    if text[1] not in "pP" or text[2:4] != "{^":
        return text
    return rf"\{'P' if text[1] == 'p' else 'p'}{{{text[4:]}"


def _literal_bracket(inner: str) -> str:
    """The inside of a set whose first `]`, which is a plain one, says so."""
    return re.sub(r"^(\^?)\]", r"\1\\]", inner)


def _unambiguous(inner: str) -> str:
    """The inside of a set, with nothing that Python warns of: one day it may calculate with sets, too."""
    return re.sub(r"(&&|~~|\|\|)", lambda each: rf"{each[0][0]}\{each[0][0]}", inner).replace("--", r"-\-")


def _plain(token: re.Match[str]) -> str:
    """The token for a parser that shall only see whether parentheses and repetitions fit."""
    kind, text = token.lastgroup, token[0]
    if kind in ("escape", "set"):
        return "a"
    if kind == "group":
        return "(" if _OPENS.match(text) else ""
    return text


def _repeat_problem(text: str) -> str | None:
    counts = [int(count) for count in re.findall(r"\d+", text)]
    return f"{text} ends before it begins" if counts != sorted(counts) else None


def _escape_problem(text: str, known: frozenset[str] = _ESCAPES) -> str | None:
    letter = text[1]
    if letter in "pP":
        name = text[3:-1].removeprefix("^") if text[2:3] == "{" else ""
        return None if name in _CLASSES | _SCRIPTS | {""} else f"RE2 may not know {text}"
    if letter in known or not letter.isalnum():
        return None
    if letter.isdigit():
        return "RE2 knows no back-references"
    return f"RE2 knows no {text}" + (r", but \z" if letter == "Z" else "")


def _set_problem(text: str) -> str | None:
    if unknown := set(re.findall(r"\[:\^?([a-z]+):\]", text)) - _POSIX.keys():
        return f"RE2 knows no [:{min(unknown)}:]"
    escapes = re.findall(r"\\[pP]\{[^}]*\}|\\.", text)
    if problem := next(filter(None, (_escape_problem(escape, _SET_ESCAPES) for escape in escapes)), None):
        return problem
    plain = re.sub(r"\[:\^?[a-z]+:\]|\\[pP](?:\{[^}]*\}|.)|\\x\{[^}]*\}", "", text[1:-1]).replace("[", r"\[")
    try:
        re.compile(f"[{_unambiguous(plain)}]" if plain.strip("^") else "")
    except re.error as error:
        return f"it is no regular expression: {error}"
    return None


def _group_problem(text: str) -> str | None:
    if text == "(" or re.fullmatch(r"\(\?(?:P?<\w+>|[imsU-]*[:)])", text):
        return None
    name = next((name for start, name in _UNKNOWN_GROUPS.items() if text.startswith(start)), f"group {text}")
    return f"RE2 knows no {name}"


def _plain_problem(text: str) -> str | None:
    return "it is no regular expression: unterminated character set" if text == "[" else None


_PROBLEMS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "other": _plain_problem,
    "escape": _escape_problem,
    "set": _set_problem,
    "group": _group_problem,
    "repeat": _repeat_problem,
}


def _too_often(pattern: str) -> str | None:
    """RE2 writes repetitions out: within each other, too, they may not be more than a thousand."""
    within, last = [1], 1
    for token in _tokens(pattern):
        kind, text = token.lastgroup, token[0]
        if kind == "group" and _OPENS.match(text):
            within.append(1)
        elif text == ")" and len(within) > 1:
            last = within.pop()
        elif kind == "repeat":
            last *= max((int(count) for count in re.findall(r"\d+", text)), default=1)
        else:
            last = 1
        within[-1] = max(within[-1], last)
        if last > _MOST_REPEATS:
            return f"RE2 repeats at most {_MOST_REPEATS} times, not {last}"
    return None
