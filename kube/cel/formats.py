"""Formats of texts that expressions may ask for by name, and what they have against a text."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from elasticjob.kube.cel.addresses import link
from elasticjob.kube.cel.moments import date, timestamp

Problems = Callable[[str], list[str]]


@dataclass(frozen=True)
class Format:
    """`pattern_size` is what servers take for the length of its pattern when they count costs."""

    name: str
    pattern_size: int

    def problems(self, text: str) -> list[str]:
        """Return what the format has against a text."""
        return _PROBLEMS[self.name](text)


_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_KEY})?"
_KEY_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_KEY}')"
)


def _is(pattern: str, text: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def _checked(pattern: str, longest: int, rule: str, *examples: str) -> Problems:
    shown = " or ".join(f"'{each}', " for each in examples)
    why = f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"

    def problems(text: str) -> list[str]:
        too_long = [f"must be no more than {longest} characters"] if len(text.encode()) > longest else []
        return too_long + ([] if _is(pattern, text) else [why])

    return problems


_label_problems = _checked(
    _LABEL,
    63,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character",
    "my-name",
    "123-abc",
)
_subdomain_problems = _checked(
    _SUBDOMAIN,
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character",
    "example.com",
)
_dns_1035_problems = _checked(
    _DNS_1035,
    63,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character",
    "my-name",
    "abc-123",
)


def _label(text: str) -> list[str]:
    found = _label_problems(text)
    if found and not _is(_LABEL, text) and _is(_SUBDOMAIN, text):
        return [*found[:-1], "must not contain dots"]
    return found


def _prefix(problems: Problems) -> Problems:
    """The same of a text that something may follow: it may end in a dash."""
    return lambda text: problems(f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text)


def _qualified(text: str) -> list[str]:
    *prefixes, name = text.split("/")
    if len(prefixes) > 1:
        return [
            f"a valid label key {_KEY_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]
    found = []
    if prefixes:
        parts = _subdomain_problems(prefixes[0]) if prefixes[0] else ["must be non-empty"]
        found += [f"prefix part {each}" for each in parts]
    if not name:
        found.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        found.append("name part must be no more than 63 characters")
    return found if _is(_KEY, name) else [*found, f"name part {_KEY_RULE}"]


def _read(reader: Callable[[str], object], why: str) -> Problems:
    def problems(text: str) -> list[str]:
        try:
            reader(text)
        except (ValueError, OverflowError) as error:
            return [why or str(error).removeprefix("URL parse error during conversion from string: ")]
        return []

    return problems


def _base64(text: str) -> None:
    if not text or "\n" in text:
        raise ValueError("it is empty")
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _uuid(text: str) -> list[str]:
    is_one = _is("(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", text)
    return [] if is_one else ["does not match the UUID format"]


_PROBLEMS: Final[Mapping[str, Problems]] = {
    "dns1123Label": _label,
    "dns1123Subdomain": _subdomain_problems,
    "dns1035Label": _dns_1035_problems,
    "qualifiedName": _qualified,
    "dns1123LabelPrefix": _prefix(_label),
    "dns1123SubdomainPrefix": _prefix(_subdomain_problems),
    "dns1035LabelPrefix": _prefix(_dns_1035_problems),
    "labelValue": _checked(
        _VALUE,
        63,
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and "
        "must start and end with an alphanumeric character",
        "MyValue",
        "my_value",
        "12345",
    ),
    "uri": _read(link, ""),
    "uuid": _uuid,
    "byte": _read(_base64, "invalid base64"),
    "date": _read(date, "invalid date"),
    "datetime": _read(timestamp, "invalid datetime"),
}
_SIZES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("dns1123Label", "dns1035Label", "dns1123LabelPrefix", "dns1035LabelPrefix"), 30),
    **dict.fromkeys(("dns1123Subdomain", "qualifiedName", "dns1123SubdomainPrefix"), 60),
    **{"labelValue": 40, "uri": 1103, "uuid": 70, "byte": 84, "date": 71, "datetime": 71},
}
FORMATS: Final[Mapping[str, Format]] = {name: Format(name, size) for name, size in _SIZES.items()}
