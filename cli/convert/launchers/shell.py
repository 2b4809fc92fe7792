"""The simple commands of a shell script, with their places in its text. Nothing is run. Pure.

Words keep their quotation marks, so a command can be replaced within the script and the rest stays as it is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elasticjob.cli.convert.launchers.launch import Word
from elasticjob.cli.convert.launchers.variables import expand

LARGEST: Final = 256 * 1024
"""Characters of a script that are read; the rest of a longer one is left alone."""
GAP: Final = re.compile(r"(?:[ \t\r]|\\\r?\n)+")
PLAIN: Final = re.compile(r"[^\s\\'\"`$;&|()<>#]+|#")
SINGLE: Final = re.compile(r"'[^']*'?")
DOUBLE: Final = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
BACKTICKS: Final = re.compile(r"`(?:[^`\\]|\\.)*`?", re.DOTALL)
BRACES: Final = re.compile(r"\$\{[^}]*\}?")
REDIRECTION: Final = re.compile(r"\d*(?:<<-?|<>|>>|>\||<&|>&|&>>?|<|>)[ \t]*")
HERE: Final = re.compile(r"<<-?[ \t]*\\?(['\"]?)(\w+)\1")
ARRAY: Final = re.compile(r"[A-Za-z_]\w*\+?=\Z")
ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
DEFAULTED: Final = re.compile(r"\$\{(\w+):?=(.*)\}", re.DOTALL)
DECLARES: Final = frozenset({"export", "declare", "typeset", "local", "readonly"})
PRINTS: Final = re.compile(
    r"echo|printf|set|date|hostname|pwd|nvidia-smi|scontrol|squeue|sinfo|true|sleep|wait|exit|trap|"
    r"time|fi|done|then|else|do|\{|\}|esac|env|ls|which|ibstat|ibv_devinfo"
)
"""Programs that are left out without a loss: they print, wait, or ask Slurm."""


@dataclass(frozen=True)
class Call:
    """A simple command: its words, and where each is in the script."""

    words: tuple[Word, ...]
    starts: tuple[int, ...]
    end: int


def calls(script: str) -> Iterator[Call]:
    """Find the simple commands of a script, in order."""
    return _Scanner(script[:LARGEST]).calls()


def words(line: str) -> list[Word]:
    """Return the words of a line as a shell would take them, quotation marks in place."""
    return [word for call in calls(line) for word in call.words]


def plain(raw: str) -> str:
    """Return a word without its quotation marks; variables stay."""
    try:
        return " ".join(shlex.split(raw, comments=False)) if raw[:1] != "`" else raw
    except ValueError:
        return raw


def assignments(call: Call, known: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a command sets and nothing else, their values as far as they are known."""
    given, bare = list(call.words), False
    if given and given[0].plain == ":":  # sets what is not set yet
        found_defaults = [DEFAULTED.fullmatch(word.plain) for word in given[1:]]
        return {each[1]: expand(each[2], known) for each in found_defaults if each and each[1] not in known}
    if given and given[0].plain in DECLARES:
        bare = given[0].plain == "export"
        given = [word for word in given[1:] if not word.plain.startswith("-")]
    raws = (word.raw for word in given)
    found = [ASSIGNED.fullmatch(f"{raw}=${raw}" if bare and raw.isidentifier() else raw) for raw in raws]
    if not found or not all(found):
        return {}
    values: dict[str, str] = {}
    for each in found:
        if each is None:
            continue
        name, adds, raw = each.groups()
        inner = raw[1:-1] if raw.startswith("(") and raw.endswith(")") else None
        value = plain(raw) if inner is None else " ".join(word.raw for word in words(inner))
        before = {**known, **values}
        told = expand(value, before)
        values[name] = f"{before.get(name, '')} {told}".strip() if adds else told
    return values


def split(given: Sequence[Word], variables: Mapping[str, str], depth: int = 4) -> list[Word]:
    """Return words with the variables put in that stand for several words, as a shell does."""
    found: list[Word] = []
    for word in given:
        name = re.fullmatch(r"\"?\$\{?(\w+)(?:\[[@*]\])?(?::\+\"\$\{\w+\[@\]\}\")?\}?\"?", word.raw)
        value = variables.get(name[1]) if name else None
        whole = value is not None and (word.raw[0] != '"' or "[" in word.raw)
        if whole and value is not None and depth:
            found += split(words(value), variables, depth - 1)
        else:
            found.append(word)
    return found


class _Scanner:
    """Walks over a script once."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.words: list[Word] = []
        self.starts: list[int] = []
        self.end = 0
        self.redirected = False
        self.documents: list[str] = []

    def calls(self) -> Iterator[Call]:
        while self.at < len(self.text):
            here = self.text[self.at]
            if gap := GAP.match(self.text, self.at):
                self.at = gap.end()
            elif here == "#":
                self.at = self._line_end()
            elif redirection := REDIRECTION.match(self.text, self.at):
                self._redirect(redirection)
            elif here in "\n;&|()":
                self.at += 1
                yield from self._flush()
                if here == "\n":
                    self._skip_documents()
            else:
                self._word()
        yield from self._flush()

    def _flush(self) -> Iterator[Call]:
        if self.words:
            yield Call(tuple(self.words), tuple(self.starts), self.end)
        self.words, self.starts, self.redirected = [], [], False

    def _redirect(self, found: re.Match[str]) -> None:
        if document := HERE.match(self.text, self.at + len(found[0]) - len(found[0].lstrip("0123456789"))):
            self.documents.append(document[2])
            self.at = document.end()
        else:
            self.at = found.end()
            self._raw()
        self.redirected = True

    def _word(self) -> None:
        start = self.at
        raw = self._raw()
        if self.redirected:
            return
        self.words.append(Word(plain(raw), raw))
        self.starts.append(start)
        self.end = self.at

    def _raw(self) -> str:
        start = self.at
        while self.at < len(self.text):
            rest = self.text[self.at]
            if rest == "$" and self.text.startswith("$(", self.at):
                self._parentheses(self.at + 1)
            elif found := next(
                (
                    match
                    for pattern in (BRACES, SINGLE, DOUBLE, BACKTICKS, PLAIN)
                    if (match := pattern.match(self.text, self.at))
                ),
                None,
            ):
                self.at = found.end()
            elif rest == "\\" and not self.text.startswith(("\\\n", "\\\r\n"), self.at):
                self.at = min(self.at + 2, len(self.text))
            elif rest == "$":
                self.at += 1
            elif rest == "(" and ARRAY.search(self.text[start : self.at]):
                self._parentheses(self.at)
            else:
                break
        return self.text[start : self.at]

    def _parentheses(self, at: int) -> None:
        """Go behind the parenthesis that closes the one at a place."""
        depth = 0
        while at < len(self.text):
            quoted = next((m for p in (SINGLE, DOUBLE, BACKTICKS) if (m := p.match(self.text, at))), None)
            if quoted:
                at = quoted.end()
                continue
            depth += {"(": 1, ")": -1}.get(self.text[at], 0)
            at += 2 if self.text[at] == "\\" else 1
            if not depth:
                break
        self.at = min(at, len(self.text))

    def _line_end(self) -> int:
        found = self.text.find("\n", self.at)
        return len(self.text) if found < 0 else found

    def _skip_documents(self) -> None:
        for name in self.documents:
            found = re.compile(rf"^[ \t]*{name}[ \t]*$", re.MULTILINE).search(self.text, self.at)
            self.at = found.end() if found else len(self.text)
        self.documents = []
