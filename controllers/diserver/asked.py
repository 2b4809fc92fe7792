"""What is asked of di-server, read from bodies and queries. Pure.

Messages are without quotes, because DI-engine's command line replaces them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import msgspec

from elasticjob.api.diengine.pods import GPU
from elasticjob.api.resources import Amount, Bytes, Cores, MalformedQuantity
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.api.v1alpha1.checks.common import is_label

COUNTS: Final = ("replicas", "cpus", "cpu", "gpus", "gpu", "memory")
BODY: Final = ("namespace", "coordinator", "collectors", "learners")
QUERY: Final = ("namespace", "name", "coordinator", "aggregator")
MOST_NAMES: Final = 4096


class Refused(Exception):
    """A call is answered by this HTTP status; `done` is what was done of it nevertheless."""

    def __init__(self, status: int, message: str, done: object = None) -> None:
        super().__init__(message)
        self.status, self.message, self.done = status, message, done


@dataclass(frozen=True)
class Amounts:
    """Replicas of a role, and the resources of each: `resources` has those that are not zero."""

    replicas: int = 0
    gpus: int = 0
    resources: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Ask:
    """A coordinator asks for more, or for fewer, collectors and learners."""

    namespace: str
    coordinator: str
    collectors: Amounts
    learners: Amounts


@dataclass(frozen=True)
class Report:
    """A coordinator or an aggregator tells of pods that it cannot reach."""

    namespace: str
    caller: str
    collectors: tuple[str, ...]
    learners: tuple[str, ...]


@dataclass(frozen=True)
class Query:
    """Whose replicas are read: those of all jobs, of a namespace, or of the one that is named."""

    namespace: str = ""
    name: str = ""
    coordinator: str = ""
    aggregator: str = ""


def query_of(given: Mapping[str, str]) -> Query:
    """Return the query of a GET. Raises Refused for unknown keys."""
    found: dict[str, str] = {}
    for key, value in given.items():
        if key.lower() not in QUERY:
            raise Refused(400, f"{_plain(key)} is not a parameter: use {', '.join(QUERY)}")
        found[key.lower()] = value
    return Query(**found) if found.get("namespace") else Query()


def ask_of(body: bytes) -> Ask:
    """Return what a POST or DELETE of replicas asks for. Raises Refused."""
    given = _object(body)
    amounts = [_amounts(role, given.get(role)) for role in ("collectors", "learners")]
    return Ask(_name(given, "namespace"), _name(given, "coordinator"), *amounts)


def report_of(body: bytes) -> Report:
    """Return what a POST of failed replicas tells. Raises Refused."""
    given = _object(body)
    names = [_names(role, given.get(role)) for role in ("collectors", "learners")]
    return Report(_name(given, "namespace"), _name(given, "coordinator"), *names)


def digest_of(verb: str, asked: Ask | Report) -> str:
    """Return the same 32 hexadecimal digits for calls that ask the same of the same caller."""
    return hashlib.sha256(msgspec.json.encode([verb, asked])).hexdigest()[:32]


def id_of(key: str, job: str) -> str:
    """Return 32 hexadecimal digits for an Idempotency-Key of the job with the uid `job`."""
    return hashlib.sha256(msgspec.json.encode([job, key])).hexdigest()[:32]


def _object(body: bytes) -> Mapping[str, Any]:
    if not body.strip():
        raise Refused(400, "the body is empty: send a JSON object with namespace and coordinator")
    try:
        given = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise Refused(400, f"the body is not JSON: {_plain(str(error))}") from None
    if not isinstance(given, dict):
        raise Refused(400, "the body is not a JSON object: send one with namespace and coordinator")
    for key in given:
        if key not in BODY:
            raise Refused(400, f"{_plain(key)} is not a field: use {', '.join(BODY)}")
    return given


def _name(given: Mapping[str, Any], field: str) -> str:
    value = given.get(field)
    if not isinstance(value, str) or not is_label(value):
        raise Refused(400, f"{field} is {_shown(value)}: write the name of a {field}, as in the pod")
    return value


def _names(role: str, given: Any) -> tuple[str, ...]:
    """The names of pods, each once, in the order in which they came."""
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MOST_NAMES:
        raise Refused(400, f"{role} is {_shown(given)}: write a list of at most {MOST_NAMES} names of pods")
    for each in given:
        if not isinstance(each, str) or not is_label(each):
            raise Refused(400, f"{role} has {_shown(each)}: write the name of a pod")
    return tuple(dict.fromkeys(given))


def _amounts(role: str, given: Any) -> Amounts:
    if given is None:
        return Amounts()
    if not isinstance(given, dict):
        raise Refused(400, f"{role} is {_shown(given)}: write an object with replicas, cpus, gpus and memory")
    for key in given:
        if key not in COUNTS:
            raise Refused(400, f"{role}.{_plain(key)} is not a field: use replicas, cpus, gpus, memory")
    gpus = _whole(f"{role}.gpus", _one_of(role, given, "gpus", "gpu"))
    cpu = _quantity(f"{role}.cpus", _one_of(role, given, "cpus", "cpu"), Cores)
    memory = _quantity(f"{role}.memory", given.get("memory"), Bytes)
    amounts = {"cpu": str(cpu) if cpu else "", "memory": str(memory) if memory else "", GPU: str(gpus or "")}
    resources = tuple((name, amount) for name, amount in amounts.items() if amount)
    return Amounts(_whole(f"{role}.replicas", given.get("replicas")), gpus, resources)


def _one_of(role: str, given: Mapping[str, Any], long: str, short: str) -> Any:
    """The value of a field that clients spell in two ways."""
    first, second = given.get(long), given.get(short)
    if first is not None and second is not None and _value(first) != _value(second):
        raise Refused(400, f"{role}.{long} is {_shown(first)} and {role}.{short} {_shown(second)}: write one")
    return second if first is None else first


def _value(raw: Any) -> Fraction | int | str:
    try:
        return Amount.parse(raw).value
    except MalformedQuantity:
        return str(raw)


def _whole(path: str, raw: Any) -> int:
    amount = _quantity(path, raw, Amount)
    if Fraction(amount.value).denominator != 1:
        raise Refused(400, f"{path} is {_shown(raw)}: write a whole number")
    return int(amount.value)


def _quantity(path: str, raw: Any, unit: type[Amount]) -> Amount:
    if raw is None or raw == "":
        return unit(0)
    try:
        amount = unit.parse(raw)
    except MalformedQuantity:
        raise Refused(400, f"{path} is {_shown(raw)}: write {unit.EXAMPLE}") from None
    if amount.value < 0:
        raise Refused(400, f"{path} is {_shown(raw)}: write 0 or more")
    return amount


def _shown(value: Any) -> str:
    if value is None:
        return "missing"
    return _plain(str(value) if not isinstance(value, str) else value) or "empty"


def _plain(text: str) -> str:
    """Text without quotes, and not too much of it."""
    return text.replace("'", "").replace('"', "").replace("`", "")[:80]
