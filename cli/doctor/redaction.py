"""Takes secrets out of objects and of logs before they leave the cluster. Pure, and linear in what it reads.

A value goes for its name (NAME=value, name: value, --name value, {"name": …, "value": …}), or for its own
form (a token's prefix, a URL's password or query string). Rather too much is taken out than too little.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

OUT: Final = "[REDACTED]"
SECRET: Final = re.compile(
    "api_?key|accesskey|auth|authorization|bearer|connectionstring|cookie|credentials?|dockerconfigjson|dsn|"
    "pass|passphrase|passw(?:or)?d|privatekey|pwd|sas|secrets?|signature|token"
)
"""Words of names whose values are secrets; `key` is one after another word."""
ABOUT: Final = re.compile("class|count|dir|file|mode|name|path|ref|seconds|type")
"""Last words of names that say where or what a secret is, and not the secret."""
KEPT: Final = frozenset({"topologyKey", "automountServiceAccountToken"})
PLAIN: Final = frozenset({"", "true", "false", "null", "none", "nil"})
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NAMES: Final = (
    *("auth", "bearer", "cookie", "cred", "dockerconfig", "dsn", "key"),
    *("pass", "pwd", "sas", "secret", "sign", "string", "token"),
)
"""A line without one of them has no name whose value is a secret."""
FORMS: Final = tuple(
    (sign, re.compile(pattern, re.DOTALL))
    for sign, pattern in (
        (
            "PRIVATE KEY-----",
            r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,20}KEY-----|\Z)",
        ),
        ("eyJ", r"\beyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?"),  # JWT
        ("gh", r"\bgh[opusr]_\w{16,}+"),
        ("github_pat_", r"\bgithub_pat_\w{16,}+"),
        ("glpat-", r"\bglpat-[\w-]{16,}+"),
        ("hf_", r"\bhf_\w{16,}+"),
        ("npm_", r"\bnpm_\w{16,}+"),
        ("pypi-", r"\bpypi-[\w-]{16,}+"),
        ("sk-", r"\bsk-[\w-]{16,}+"),
        ("k_live_", r"\b[rs]k_live_\w{16,}+"),
        ("xox", r"\bxox[abeprs]-[\w-]{10,}+"),
        ("A", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
        ("AIza", r"\bAIza[\w-]{30,}+"),
        ("SG.", r"\bSG\.[\w-]{16,}+\.[\w-]{16,}+"),
        ("hooks.slack.com", r"(?<=hooks\.slack\.com/services/)\S+"),
    )
)
"""What tokens look like, and a part that all of a kind have: looking for that is cheap."""
LINES: Final = tuple(
    (sign, re.compile(pattern, re.IGNORECASE), instead)
    for sign, pattern, instead in (
        ("cookie", r"\b(cookie\\?[\"']?\s{0,3}[:=]\s{0,3})[^\r\n]+", rf"\1{OUT}"),
        ("authorization", r"\b(authorization\\?[\"']?\s{0,3}[:=]\s{0,3})[^\r\n]+", rf"\1{OUT}"),
        ("bearer", r"\b(bearer\s{1,3}(?:token\s{1,3})?)\S{6,}", rf"\1{OUT}"),
        (" is ", r"\b((?:token|password|secret|key)(?: of [\w ]{1,40}?)? is )\S+", rf"\1{OUT}"),
        ("@", r"\b([a-z][a-z0-9+.-]{0,30}://[^\s/:@?#\"']{0,99}:)[^\s\"']{0,256}@", rf"\1{OUT}@"),
        ("@", r"\b(https?://)(?!git@)[^\s/:@?#\"']{1,256}@", rf"\1{OUT}@"),
        ("?", r"(?<=[\w/])\?[\w.%~\[\]-]{1,99}=[^\s\"'<>]*+", f"?{OUT}"),
    )
)
"""Headers, sentences, and users and query strings of addresses, with a part that all lines with such have."""
_WORDS: Final = re.compile(r"[A-Z]++(?![a-z])|[A-Z]?[a-z]++|[A-Z]")
_HEAD: Final = re.compile(
    r"(?<![\w.-])(?P<flag>--?)?(?P<name>[A-Za-z_][\w.-]*+)"
    r"(?:\\?[\"']?\s{0,3}(?P<is>=|:(?!//))\s{0,3}|(?(flag)\s{1,3}(?!-)|(?!)))"
)
_VALUE: Final = re.compile(r"\\\"[^\"\\\n]*+\\\"|\"(?:[^\"\\\n]++|\\.)*+\"|'[^'\n]*+'|\S++")
_REST: Final = re.compile(r"\\\"[^\"\\\n]*+\\\"|\"(?:[^\"\\\n]++|\\.)*+\"|'[^'\n]*+'|[^\r\n]++")


def redacted(value: Any) -> Any:
    """Return an object of the API server without secrets, and without the records of its writers."""
    match value:
        case Mapping():
            return dict(_fields(value))
        case list():
            return list(_items(value))
        case str():
            return text(value)
        case _:
            return value


def text(words: str) -> str:
    """Return lines without secrets."""
    for sign, form in FORMS:
        if sign in words:
            words = form.sub(OUT, words)
    return "\n".join(map(_line, words.split("\n")))


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Whether the value of a variable, a field or a flag of this name is a secret."""
    words = [word.lower() for word in _WORDS.findall(name[-80:])]
    if name in KEPT or not words or ABOUT.fullmatch(words[-1]):
        return False
    return any(map(SECRET.fullmatch, (*words, "".join(words)))) or "key" in words[1:]


def _line(words: str) -> str:
    low = words.lower()
    for sign, pattern, instead in LINES:
        if sign in low:
            words = pattern.sub(instead, words)
    return "".join(_without_values(words)) if any(name in low for name in NAMES) else words


def _without_values(words: str) -> Iterator[str]:
    """Yield a line in parts, without the values that follow a name which forbids them."""
    end = 0
    for head in _HEAD.finditer(words):
        name, sign = head["name"], head["is"]
        if head.start() < end or not is_secret(name):
            continue
        value = (_REST if sign == ":" else _VALUE).match(words, head.end())
        if value and OUT not in value[0] and value[0].strip("\\\"',;").lower() not in PLAIN:
            yield words[end : head.end()]
            yield OUT
            end = value.end()
    yield words[end:]


def _fields(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of an object: of a Secret no value, of a variable none that its name forbids."""
    is_variable = is_secret(str(value.get("name", "")))
    for name, each in value.items():
        if name == "managedFields":
            continue
        if name in ("data", "stringData") and value.get("kind") == "Secret":
            yield name, dict.fromkeys(each or (), OUT)
        elif name == LAST_APPLIED:
            yield name, _nested(each)
        elif isinstance(each, str) and (is_secret(name) or (is_variable and name == "value")):
            yield name, each if each in PLAIN else OUT
        elif isinstance(each, Mapping) and is_secret(name) and "value" in each:  # spec.envs of a job
            yield name, {**redacted(each), "value": OUT}
        else:
            yield name, redacted(each)


def _items(value: list[Any]) -> Iterator[Any]:
    """Yield the items of a list; what follows a flag whose name forbids it is its value."""
    hidden = False
    for each in value:
        is_flag = isinstance(each, str) and each.startswith("-")
        yield OUT if hidden and isinstance(each, str) and not is_flag else redacted(each)
        hidden = is_flag and "=" not in each and is_secret(each)


def _nested(said: Any) -> str:
    """Return an object that is written as JSON in an annotation."""
    try:
        return json.dumps(redacted(json.loads(said)))
    except (RecursionError, TypeError, ValueError):
        return OUT
