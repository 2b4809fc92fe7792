"""Takes secrets out of objects and of logs before they leave the cluster. Pure, and linear in what it reads.

A value goes for its name (NAME=value, name: value, --name value, {"name": …, "value": …}), for its own
form (a token's prefix, a URL's password or query string), or because a Secret of the job has it. Rather too
much is taken out than too little.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

OUT: Final = "[REDACTED]"
SECRET: Final = re.compile(
    "auth|authorization|bearer|connectionstring|cookie|dockerconfigjson|dsn|pass|pat|sas|signature"
)
"""Words of names whose values are secrets; `key` is one after another word."""
WITHIN: Final = re.compile(
    r"passw(?:or)?d|passphrase|secret|token(?!i[sz])|(?:access|api|private)[_-]?key|credential|pwd|"
    r"netrc|sshpass|(?<!by)(?<!com)pass$",
    re.IGNORECASE,
)
"""Parts of such names wherever they stand, as in PGPASSWORD; a tokenizer is no secret."""
COUNT: Final = re.compile(
    r"[\[(\\\"' ]*(?:\d[\d_,.]{0,40}(?:e[+-]?\d{1,3})?[kmgbt%]?(?:/s)?)(?=[\s,;)\]}\\\"'|]|$)", re.IGNORECASE
)
"""How many tokens there are, which is no secret."""
SHORT: Final = 6
"""Characters of the shortest value of a Secret that is taken out wherever it stands."""
MOST_LINES: Final = 300
"""Lines of such a value that are looked for by themselves."""
ANSI: Final = re.compile(r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033)\[[\d;]{0,32}m")
ABOUT: Final = re.compile("class|count|dir|file|mode|name|path|ref|seconds|type")
"""Last words of names that say where or what a secret is, and not the secret."""
KEPT: Final = frozenset({"topologyKey", "automountServiceAccountToken"})
PLAIN: Final = frozenset({"", "true", "false", "null", "none", "nil"})
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NAMES: Final = (
    *("auth", "bearer", "cookie", "cred", "dockerconfig", "dsn", "key", "netrc"),
    *("pass", "pat", "pwd", "sas", "secret", "sign", "string", "token"),
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
        ("hv", r"\bhv[bsr]\.[\w-]{16,}+"),
        ("dckr_pat_", r"\bdckr_pat_[\w-]{16,}+"),
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
        (
            "curl",
            r"(\s(?:-[a-z]{0,9}u|--(?:proxy-)?user)[ =]?)(?:\"[^\"\n]*+\"|'[^'\n]*+'|[^\s\"':]{1,256}:\S+)",
            rf"\1{OUT}",
        ),
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
_START: Final = re.compile(r"^(?:\d{4}-\d\d-\d\dT\S{1,40} )?(?:\[\w{1,40}\]:)?")
_KEY: Final = re.compile(
    r"\s{0,200}(?:- )?[\"']?(?P<name>[A-Za-z_][\w.-]*+)[\"']?:\s{0,9}(?P<block>[|>])?[-+\d]{0,2}\s*$"
)
_FIELD: Final = re.compile(r"\s*+(?:- )?[\"']?[A-Za-z_][\w.-]*+[\"']?:(?:\s|$)")
_REST: Final = re.compile(r"\\\"[^\"\\\n]*+\\\"|\"(?:[^\"\\\n]++|\\.)*+\"|'[^'\n]*+'|[^\r\n]++")


def redacted(value: Any) -> Any:
    """Return an object of the API server without secrets, and without the records of its writers."""
    match value:
        case Mapping():
            return dict(_fields(value))
        case list() | tuple():
            return list(_items(value))
        case str():
            return text(value)
        case _:
            return value


def text(words: str) -> str:
    """Return lines without secrets."""
    words = ANSI.sub("", words)
    for sign, form in FORMS:
        if sign in words:
            words = form.sub(OUT, words)
    return "\n".join(_lines(words.split("\n")))


def of_secrets(values: Iterable[bytes]) -> Callable[[str], str]:
    """Return what takes values of Secrets out of a text: whole, by lines, as JSON has them, in base64."""
    forms = {form for value in values for form in _forms(value) if form not in OUT}
    ordered = sorted(forms, key=len, reverse=True)

    @lru_cache(1 << 16)  # pods of a job say the same
    def hide(words: str) -> str:
        for form in ordered:
            if form in words:
                words = words.replace(form, OUT)
        return words

    return hide


def without(value: Any, hide: Callable[[str], str]) -> Any:
    """Return an object with each of its texts, and of its numbers, as `hide` leaves it."""
    match value:
        case Mapping():
            return {hide(name): without(each, hide) for name, each in value.items()}
        case list() | tuple():
            return [without(each, hide) for each in value]
        case str() | int() | float():
            return value if (left := hide(str(value))) == str(value) else left
        case _:
            return value


@lru_cache(4096)
def is_secret(name: str) -> bool:
    """Whether the value of a variable, a field or a flag of this name is a secret."""
    words = [word.lower() for word in _WORDS.findall(name[-80:])]
    if name in KEPT or not words or ABOUT.fullmatch(words[-1]):
        return False
    is_word = any(map(SECRET.fullmatch, (*words, "".join(words)))) or "key" in words[1:]
    return is_word or WITHIN.search(name[-80:]) is not None


def hides(name: str, value: str) -> bool:
    """Whether a value of this name is a secret: `max_tokens: 512` is none, nor is `token_id: 7`."""
    low = name.lower()
    if not is_secret(name) or value.strip("\\\"',;").lower() in PLAIN:
        return False
    count = COUNT.match(value) if "token" in low and not is_secret(low.replace("token", "")) else None
    return count is None or ("tokens" not in low and len(count[0]) >= SHORT)


def _forms(value: bytes) -> Iterator[str]:
    """Yield what a value of a Secret looks like where it is printed."""
    for part in {value, *value.splitlines()[:MOST_LINES]}:
        bare = part.strip()
        if len(bare) < SHORT:
            continue
        for code in (base64.b64encode, base64.urlsafe_b64encode):
            yield from (code(each).decode().rstrip("=") for each in (part, bare, bare + b"\n"))
        words = bare.decode(errors="replace")
        said = {words, repr(words)[1:-1], ascii(words)[1:-1], repr(bare)[2:-1]}
        for _ in range(4):  # a message may be JSON within JSON
            yield from said
            said = {json.dumps(each, ensure_ascii=plain)[1:-1] for each in said for plain in (True, False)}


def _lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without secrets; what is deeper than a name that ends its line is its value, as in YAML."""
    deeper, any_text = math.inf, False
    for words in lines:
        body = _START.sub("", words, count=1)
        bare = body.lstrip()
        indent = len(body) - len(bare)
        if bare and indent + bare.startswith("- ") > deeper and (any_text or not _FIELD.match(bare)):
            yield words[: len(words) - len(bare)] + OUT
            continue
        if bare:
            key = _KEY.match(body)
            deeper = indent if key and is_secret(key["name"]) else math.inf
            any_text = key is not None and key["block"] is not None
        yield _line(words)


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
        if value and OUT not in value[0] and hides(name, value[0]):
            yield words[end : head.end()]
            yield OUT
            end = value.end()
    yield words[end:]


def _fields(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of an object: of a Secret no value, of a variable none that its name forbids."""
    variable = str(value.get("name", ""))
    for name, each in value.items():
        if name == "managedFields":
            continue
        if name in ("data", "stringData") and value.get("kind") == "Secret":
            yield name, dict.fromkeys(each or (), OUT)
        elif name == LAST_APPLIED:
            yield name, _nested(each)
        elif isinstance(each, str) and (hides(name, each) or (name == "value" and hides(variable, each))):
            yield name, OUT
        elif isinstance(each, Mapping) and "value" in each and hides(name, str(each["value"])):  # spec.envs
            yield name, {**redacted(each), "value": OUT}
        else:
            yield name, redacted(each)


def _items(value: Sequence[Any]) -> Iterator[Any]:
    """Yield the items of a list; what follows a flag whose name forbids it is its value."""
    flag = ""
    for each in value:
        is_flag = isinstance(each, str) and each.startswith("-")
        hidden = (
            isinstance(each, str) and not is_flag and (hides(flag, each) or (flag == "-u" and ":" in each))
        )
        yield OUT if hidden else redacted(each)
        flag = each if is_flag and "=" not in each else ""


def _nested(said: Any) -> str:
    """Return an object that is written as JSON in an annotation."""
    try:
        return json.dumps(redacted(json.loads(said)))
    except (RecursionError, TypeError, ValueError):
        return OUT
