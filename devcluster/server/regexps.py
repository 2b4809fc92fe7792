"""Why Go's engine takes a pattern not, in its words."""

from __future__ import annotations

import re

from elasticjob.kube.re2 import re2_problem

_TOKEN = re.compile(
    r"""
    (?P<escape>\\(?:[pP]\{[^}]*\}|[pP].|x\{[^}]*\}|x..|.)?)
  | (?P<set>\[\^?\]?(?:\\.|\[:\^?\w*:\]|[^\]\\])*\]?)
  | (?P<group>\(\?(?:P?<[^>]*>?|[imsU]*(?:-[imsU]+)?[:)]|.{0,2})|\()
  | (?P<end>\))
  | (?P<repeat>(?:\{\d+(?:,\d*)?\}|[*+?])\??)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = "aftnrvAbBzdDsSwWpPxQEC"
_GROUP = re.compile(r"\((\?(P?<\w+>|[imsU]*(-[imsU]+)?[:)]))?")
_MOST_REPEATS = 1000
_MOST_NESTED = 200  # fewer than Go takes; what is told of patterns that are refused in any case


def go_problem(pattern: str) -> str:
    """What `regexp.Compile` has against a pattern; "" for one that it takes."""
    if re2_problem(pattern) is None:
        return ""
    return _first_problem(pattern) or f"invalid or unsupported Perl syntax: `{pattern}`"


def _first_problem(pattern: str) -> str:
    depth, deepest, before, start = 0, 0, "", 0
    for token in _TOKEN.finditer(pattern):
        kind, text = token.lastgroup or "", token[0]
        if kind == "repeat" and before in ("", "repeat"):
            return _bad_repeat(pattern, token, before, start)
        if problem := _bad_token(kind, text):
            return problem
        depth += (text == "(" or (kind == "group" and not text.endswith(")"))) - (kind == "end")
        deepest = max(deepest, depth)
        if depth < 0:
            return f"unexpected ): `{pattern}`"
        opened = kind == "group" or text == "|"
        before, start = ("" if opened else kind), token.start()
    if deepest > _MOST_NESTED:
        return f"expression nests too deeply: `{pattern}`"
    return f"missing closing ): `{pattern}`" if depth else ""


def _bad_repeat(pattern: str, token: re.Match[str], before: str, start: int) -> str:
    if before == "repeat":
        return f"invalid nested repetition operator: `{pattern[start : token.end()]}`"
    return f"missing argument to repetition operator: `{token[0]}`"


def _bad_token(kind: str, text: str) -> str:
    if kind == "escape":
        return _bad_escape(text)
    if kind == "set":
        return _bad_set(text)
    if kind == "group" and not _GROUP.fullmatch(text):
        return _bad_group(text)
    if kind == "repeat" and _repeats_too_often(text):
        return f"invalid repeat count: `{text.rstrip('?')}`"
    return ""


def _bad_group(text: str) -> str:
    """What begins like a name is one, or the rest of the pattern is."""
    if text.startswith(("(?P<", "(?<")):
        return f"invalid named capture: `{text}`"
    return f"invalid or unsupported Perl syntax: `{text[:3]}`"


def _bad_escape(text: str) -> str:
    if text == "\\":
        return "trailing backslash at end of expression: ``"
    letter = text[1]
    if letter in "pP":
        return f"invalid character class range: `{text}`"
    known = not letter.isalnum() or letter in _ESCAPES
    return "" if known and letter != "_" else f"invalid escape sequence: `{text[:2]}`"


def _bad_set(text: str) -> str:
    if not text.endswith("]") or len(text.strip("[]^")) == 0:
        return f"missing closing ]: `{text}`"
    for each in re.finditer(r"(?<!\\)([^\\\[\]])-([^\\\]])", text):
        if each[1] > each[2]:
            return f"invalid character class range: `{each[0]}`"
    named = re.search(r"\[:\^?\w*:\]", text)
    return f"invalid character class range: `{named[0]}`" if named else ""


def _repeats_too_often(text: str) -> bool:
    counts = [int(each) for each in re.findall(r"\d+", text)]
    return any(each > _MOST_REPEATS for each in counts) or counts != sorted(counts)
