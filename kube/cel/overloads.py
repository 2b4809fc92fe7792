"""Which functions rules may call, with which types: what Kubernetes 1.35 declares for custom resources.

A form is written `(arguments) → result`, or `target.(arguments) → result` for a method; `A`, `B` and `V` are
any types. Operators have the names that complaints call them by: `_+_`, `_[_]`, `@in`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from elasticjob.kube.cel.types import Type


@dataclass(frozen=True)
class Overload:
    """One form of a function; the first argument of a method is its target."""

    arguments: tuple[Type, ...]
    result: Type
    is_method: bool


_OPERATORS: Final = """
_?_:_    (bool, A, A) → A
!_       (bool) → bool
-_       (int) → int; (double) → double
_==_     (A, A) → bool
_!=_     (A, A) → bool
_+_      (bytes, bytes) → bytes; (double, double) → double; (duration, duration) → duration
_+_      (duration, timestamp) → timestamp; (timestamp, duration) → timestamp; (int, int) → int
_+_      (list(A), list(A)) → list(A); (string, string) → string; (uint, uint) → uint
_-_      (double, double) → double; (duration, duration) → duration; (int, int) → int; (uint, uint) → uint
_-_      (timestamp, duration) → timestamp; (timestamp, timestamp) → duration
_*_      (double, double) → double; (int, int) → int; (uint, uint) → uint
_/_      (double, double) → double; (int, int) → int; (uint, uint) → uint
_%_      (int, int) → int; (uint, uint) → uint
_[_]     (list(A), int) → A; (map(A, B), A) → B
_[_]     (optional_type(list(V)), int) → optional_type(V); (optional_type(map(A, V)), A) → optional_type(V)
_[?_]    (list(V), int) → optional_type(V); (optional_type(list(V)), int) → optional_type(V)
_[?_]    (map(A, V), A) → optional_type(V); (optional_type(map(A, V)), A) → optional_type(V)
@in      (A, list(A)) → bool; (A, map(A, B)) → bool
"""

_COMPARED: Final = """(bool, bool) → bool; (int, int) → bool; (int, double) → bool; (int, uint) → bool;
    (uint, uint) → bool; (uint, double) → bool; (uint, int) → bool; (double, double) → bool;
    (double, int) → bool; (double, uint) → bool; (string, string) → bool; (bytes, bytes) → bool;
    (timestamp, timestamp) → bool; (duration, duration) → bool"""

_STANDARD: Final = """
size     (bytes) → int; bytes.() → int; (list(A)) → int; list(A).() → int
size     (map(A, B)) → int; map(A, B).() → int; (string) → int; string.() → int
type     (A) → type(A)
dyn      (A) → dyn
bool     (bool) → bool; (string) → bool
bytes    (bytes) → bytes; (string) → bytes
double   (double) → double; (int) → double; (string) → double; (uint) → double
int      (int) → int; (double) → int; (duration) → int; (string) → int; (timestamp) → int; (uint) → int
uint     (uint) → uint; (double) → uint; (int) → uint; (string) → uint
string   (string) → string; (bool) → string; (bytes) → string; (double) → string; (duration) → string
string   (int) → string; (timestamp) → string; (uint) → string; (ip) → string; (cidr) → string
duration (duration) → duration; (int) → duration; (string) → duration
timestamp (timestamp) → timestamp; (int) → timestamp; (string) → timestamp
contains string.(string) → bool
endsWith string.(string) → bool
startsWith string.(string) → bool
matches  (string, string) → bool; string.(string) → bool
getFullYear     timestamp.() → int; timestamp.(string) → int
getMonth        timestamp.() → int; timestamp.(string) → int
getDayOfYear    timestamp.() → int; timestamp.(string) → int
getDayOfMonth   timestamp.() → int; timestamp.(string) → int
getDate         timestamp.() → int; timestamp.(string) → int
getDayOfWeek    timestamp.() → int; timestamp.(string) → int
getHours        timestamp.() → int; timestamp.(string) → int; duration.() → int
getMinutes      timestamp.() → int; timestamp.(string) → int; duration.() → int
getSeconds      timestamp.() → int; timestamp.(string) → int; duration.() → int
getMilliseconds timestamp.() → int; timestamp.(string) → int; duration.() → int
"""

_OPTIONALS: Final = """
optional.of             (V) → optional_type(V)
optional.ofNonZeroValue (V) → optional_type(V)
optional.none           () → optional_type(V)
optional.unwrap         (list(optional_type(V))) → list(V)
unwrapOpt list(optional_type(V)).() → list(V)
value     optional_type(V).() → V
hasValue  optional_type(V).() → bool
or        optional_type(V).(optional_type(V)) → optional_type(V)
orValue   optional_type(V).(V) → V
first     list(V).() → optional_type(V)
last      list(V).() → optional_type(V)
"""

_TEXTS: Final = """
charAt      string.(int) → string
indexOf     string.(string) → int; string.(string, int) → int
lastIndexOf string.(string) → int; string.(string, int) → int
lowerAscii  string.() → string
upperAscii  string.() → string
replace     string.(string, string) → string; string.(string, string, int) → string
split       string.(string) → list(string); string.(string, int) → list(string)
substring   string.(int) → string; string.(int, int) → string
trim        string.() → string
format      string.(list(dyn)) → string
strings.quote (string) → string
join        list(string).() → string; list(string).(string) → string
find        string.(string) → string
findAll     string.(string) → list(string); string.(string, int) → list(string)
"""

_LISTS: Final = """
indexOf     list(A).(A) → int
lastIndexOf list(A).(A) → int
sum         list(int).() → int; list(uint).() → uint; list(double).() → double; list(duration).() → duration
slice       list(A).(int, int) → list(A)
flatten     list(list(A)).() → list(A); list(dyn).(int) → list(dyn)
lists.range (int) → list(int)
reverse     list(A).() → list(A)
distinct    list(A).() → list(A)
sets.contains   (list(A), list(A)) → bool
sets.equivalent (list(A), list(A)) → bool
sets.intersects (list(A), list(A)) → bool
"""

_ORDERED: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")

_QUANTITIES: Final = """
quantity      (string) → quantity
isQuantity    (string) → bool
sign          (quantity) → int
isInteger     quantity.() → bool
asInteger     quantity.() → int
asApproximateFloat quantity.() → double
isGreaterThan quantity.(quantity) → bool; semver.(semver) → bool
isLessThan    quantity.(quantity) → bool; semver.(semver) → bool
compareTo     quantity.(quantity) → int; semver.(semver) → int
add           quantity.(quantity) → quantity; quantity.(int) → quantity
sub           quantity.(quantity) → quantity; quantity.(int) → quantity
"""

_ADDRESSES: Final = """
ip             (string) → ip; cidr.() → ip
isIP           (string) → bool
ip.isCanonical (string) → bool
family               ip.() → int
isUnspecified        ip.() → bool
isLoopback           ip.() → bool
isLinkLocalMulticast ip.() → bool
isLinkLocalUnicast   ip.() → bool
isGlobalUnicast      ip.() → bool
cidr           (string) → cidr
isCIDR         (string) → bool
containsIP     cidr.(string) → bool; cidr.(ip) → bool
containsCIDR   cidr.(string) → bool; cidr.(cidr) → bool
prefixLength   cidr.() → int
masked         cidr.() → cidr
url            (string) → url
isURL          (string) → bool
getScheme      url.() → string
getHost        url.() → string
getHostname    url.() → string
getPort        url.() → string
getEscapedPath url.() → string
getQuery       url.() → map(string, list(string))
"""

_VERSIONS: Final = """
semver   (string) → semver; (string, bool) → semver
isSemver (string) → bool; (string, bool) → bool
major    semver.() → int
minor    semver.() → int
patch    semver.() → int
validate     format.(string) → optional_type(list(string))
format.named (string) → optional_type(format)
"""

FORMATS: Final = (
    *("dns1123Label", "dns1123Subdomain", "dns1035Label", "qualifiedName", "dns1123LabelPrefix"),
    *("dns1123SubdomainPrefix", "dns1035LabelPrefix", "labelValue"),
    *("uri", "uuid", "byte", "date", "datetime"),
)

_NAMES: Final[Mapping[str, str]] = {
    "cidr": "net.CIDR",
    "duration": "google.protobuf.Duration",
    "format": "kubernetes.NamedFormat",
    "ip": "net.IP",
    "quantity": "kubernetes.Quantity",
    "semver": "kubernetes.Semver",
    "timestamp": "google.protobuf.Timestamp",
    "url": "kubernetes.URL",
}


def _lines() -> Iterator[tuple[str, str]]:
    """Each function with one or more of its forms."""
    for table in (*(_OPERATORS, _STANDARD, _OPTIONALS, _TEXTS, _LISTS, _QUANTITIES, _ADDRESSES, _VERSIONS),):
        for line in table.strip().splitlines():
            name, forms = line.split(maxsplit=1)
            yield name, forms
    yield from ((f"_{sign}_", _COMPARED) for sign in ("<", "<=", ">", ">="))
    yield from ((f"format.{name}", "() → format") for name in FORMATS)
    for kind in _ORDERED:
        yield "isSorted", f"list({kind}).() → bool"
        yield from ((name, f"list({kind}).() → {kind}") for name in ("min", "max"))
        yield "sort", f"list({kind}).() → list({kind})"


def _read() -> dict[str, tuple[Overload, ...]]:
    found: dict[str, tuple[Overload, ...]] = {}
    for name, forms in _lines():
        found[name] = (*found.get(name, ()), *(_form(form) for form in forms.split(";")))
    return found


_FORM: Final = re.compile(r"(?:(?P<target>.+)\.)?\((?P<arguments>.*)\) → (?P<result>.+)")


def _form(text: str) -> Overload:
    match = _FORM.fullmatch(" ".join(text.split()))
    assert match is not None, text
    target = _kinds(match["target"] or "")
    return Overload((*target, *_kinds(match["arguments"])), _kinds(match["result"])[0], bool(target))


def _kinds(text: str) -> tuple[Type, ...]:
    """The types in a text, which stand between commas."""
    found, depth, start = [], 0, 0
    for place, letter in enumerate(f"{text},"):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            found.append(text[start:place].strip())
            start = place + 1
    return tuple(_kind(each) for each in found if each)


def _kind(text: str) -> Type:
    name, _, inner = text.partition("(")
    return Type(_NAMES.get(name, name), _kinds(inner.removesuffix(")")))


FUNCTIONS: Final[Mapping[str, tuple[Overload, ...]]] = _read()
