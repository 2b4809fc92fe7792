"""Requests to di-server, read from bodies and queries, and their bounds. Pure.

Whatever a client sends is a request within bounds, or Refused (400) with the field and what to write there.
Messages are without quotes, because DI-engine's command line replaces them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from reprlib import Repr
from typing import Any, Final, TypeVar

import msgspec

from elasticjob.api.diengine import gpus as devices
from elasticjob.api.diengine.pods import GPU
from elasticjob.api.resources import Amount, Bytes, Cores, MalformedQuantity
from elasticjob.api.v1alpha1.checks.common import is_label

COUNTS: Final = ("replicas", "cpus", "cpu", "gpus", "gpu", "memory")
BODY: Final = ("namespace", "coordinator", "collectors", "learners")
QUERY: Final = ("namespace", "name", "coordinator", "aggregator")
MOST_NAMES: Final = 4096
MOST_CORES: Final = Cores(2**20)
MOST_MEMORY: Final = Bytes(2**60)
LONGEST_KEY: Final = 255
QUOTES: Final = "'\"`"
KINDS: Final = {"namespace": "namespace", "coordinator": "coordinator, as in its pod"}
_brief = Repr()
_brief.maxlevel, _brief.maxlong, _brief.maxother = 3, 90, 90


class Whole(Amount):
    """A number of replicas or devices."""

    EXAMPLE = "a whole number, such as 2"


A = TypeVar("A", bound=Amount)


class Refusal(Exception):
    """A call is answered by this HTTP status; `done` is what was done of it nevertheless."""

    def __init__(self, status: int, message: str, done: object = None) -> None:
        super().__init__(message)
        self.status, self.message, self.done = status, message, done


@dataclass(frozen=True)
class Limits:
    """Bounds of a request: pods of one call for collectors, and for learners; pods of a job beside its
    coordinator; GPUs of one replica. Aggregators and ddp pods count.
    """

    per_request: int = 256
    per_job: int = 2048
    gpus: int = devices.MOST


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

    @property
    def caller(self) -> str:
        """The pod that asks."""
        return self.coordinator


@dataclass(frozen=True)
class Report:
    """A coordinator or an aggregator tells of pods that it cannot reach."""

    namespace: str
    caller: str
    collectors: tuple[str, ...]
    learners: tuple[str, ...]


Asked = Ask | Report


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
        field = key.lower()
        if field not in QUERY:
            raise Refusal(400, f"{plain(key)} is not a parameter: use {', '.join(QUERY)}")
        if field in found:
            raise Refusal(400, f"{field} is given twice: write it once")
        found[field] = value
    for field, value in found.items():
        if value and not is_label(value):
            raise Refusal(400, f"{field} is {_show(value)}: write the name of a {KINDS.get(field, 'pod')}")
    return Query(**found) if found.get("namespace") else Query()


def additions_of(body: bytes, limits: Limits) -> Ask:
    """Return what a POST of replicas asks for, within `limits`. Raises Refused."""
    ask = removals_of(body, limits)
    for role, amounts in (("collector", ask.collectors), ("learner", ask.learners)):
        if amounts.replicas > limits.per_request:
            most = limits.per_request
            raise Refusal(
                400, f"{amounts.replicas} {role}s are more than one call may ask for: {most}; write fewer"
            )
    return ask


def removals_of(body: bytes, limits: Limits) -> Ask:
    """Return what a DELETE of replicas asks for: more than there are is no mistake. Raises Refused."""
    given = _object(body)
    amounts = [_amounts(role, given.get(role), limits) for role in ("collectors", "learners")]
    return Ask(_name(given, "namespace"), _name(given, "coordinator"), *amounts)


def report_of(body: bytes, _: Limits) -> Report:
    """Return what a POST of failed replicas reports. Raises Refused."""
    given = _object(body)
    names = [_names(role, given.get(role)) for role in ("collectors", "learners")]
    return Report(_name(given, "namespace"), _name(given, "coordinator"), *names)


def digest_of(verb: str, asked: Asked) -> str:
    """Return the same 32 hexadecimal digits for calls that ask the same of the same caller."""
    return hashlib.sha256(msgspec.json.encode([verb, asked])).hexdigest()[:32]


def key_of(headers: Mapping[str, str]) -> str:
    """Return the Idempotency-Key of a call, "" without one. Raises Refused."""
    key = headers.get("Idempotency-Key", "")
    if len(key) > LONGEST_KEY:
        raise Refusal(400, f"the Idempotency-Key is longer than {LONGEST_KEY} characters: shorten it")
    if not (key.isascii() and key.isprintable()):
        raise Refusal(400, "the Idempotency-Key is not printable ASCII: write letters and digits")
    return key


def id_of(key: str, job: str) -> str:
    """Return 32 hexadecimal digits for an Idempotency-Key of the job with the uid `job`."""
    return hashlib.sha256(msgspec.json.encode([job, key])).hexdigest()[:32]


def _object(body: bytes) -> Mapping[str, Any]:
    if not body.strip():
        raise Refusal(400, "the body is empty: send a JSON object with namespace and coordinator")
    try:
        given = json.loads(body.decode(), object_pairs_hook=_without_twins, parse_constant=_no_number)
    except RecursionError:
        raise Refusal(400, "the body is not JSON that can be read: it is nested too deep") from None
    except ValueError as error:  # UnicodeDecodeError too
        raise Refusal(400, f"the body is not JSON: {plain(str(error))}; send a JSON object") from None
    if not isinstance(given, dict):
        raise Refusal(400, "the body is not a JSON object: send one with namespace and coordinator")
    for key in given:
        if key not in BODY:
            raise Refusal(400, f"{plain(key)} is not a field: use {', '.join(BODY)}")
    return given


def _without_twins(pairs: Iterable[tuple[str, Any]]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Refusal(400, f"{plain(key)} is in one object twice: write it once")
        found[key] = value
    return found


def _no_number(word: str) -> Any:
    raise Refusal(400, f"the body is not JSON: {word} is no number of JSON; write one")


def _name(given: Mapping[str, Any], field: str) -> str:
    value = given.get(field)
    if not isinstance(value, str) or not is_label(value):
        raise Refusal(400, f"{field} is {_show(value)}: write the name of a {KINDS[field]}")
    return value


def _names(role: str, given: Any) -> tuple[str, ...]:
    """The names of pods, each once, in the order in which they came."""
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MOST_NAMES:
        raise Refusal(400, f"{role} is {_show(given)}: write a list of at most {MOST_NAMES} names of pods")
    for each in given:
        if not isinstance(each, str) or not is_label(each):
            raise Refusal(400, f"{role} has {_show(each)}: write the name of a pod")
    return tuple(dict.fromkeys(given))


def _amounts(role: str, given: Any, limits: Limits) -> Amounts:
    if given is None:
        return Amounts()
    if not isinstance(given, dict):
        raise Refusal(400, f"{role} is {_show(given)}: write an object with replicas, cpus, gpus and memory")
    for key in given:
        if key not in COUNTS:
            raise Refusal(400, f"{role}.{plain(key)} is not a field: use replicas, cpus, gpus, memory")
    gpus = _whole(f"{role}.gpus", _one_of(role, given, "gpus", "gpu"), Whole(limits.gpus))
    cpu = _quantity(f"{role}.cpus", _one_of(role, given, "cpus", "cpu"), Cores, MOST_CORES)
    memory = _quantity(f"{role}.memory", given.get("memory"), Bytes, MOST_MEMORY)
    amounts = {"cpu": str(cpu) if cpu else "", "memory": str(memory) if memory else "", GPU: str(gpus or "")}
    resources = tuple((name, amount) for name, amount in amounts.items() if amount)
    return Amounts(_whole(f"{role}.replicas", given.get("replicas")), gpus, resources)


def _one_of(role: str, given: Mapping[str, Any], long: str, short: str) -> Any:
    """The value of a field that clients spell in two ways."""
    first, second = given.get(long), given.get(short)
    if first is not None and second is not None and _value(first) != _value(second):
        raise Refusal(400, f"{role}.{long} is {_show(first)} and {role}.{short} {_show(second)}: write one")
    return second if first is None else first


def _value(raw: Any) -> Fraction | int | str:
    try:
        return Amount.parse(raw).value
    except MalformedQuantity:
        return str(raw)


def _whole(path: str, raw: Any, most: Whole | None = None) -> int:
    amount = _quantity(path, raw, Whole, most)
    if Fraction(amount.value).denominator != 1:
        raise Refusal(400, f"{path} is {_show(raw)}: write {Whole.EXAMPLE}")
    return int(amount.value)


def _quantity(path: str, raw: Any, unit: type[A], most: A | None = None) -> A:
    if raw is None or raw == "":
        return unit(0)
    try:
        amount = unit.parse(raw)
    except MalformedQuantity:
        raise Refusal(400, f"{path} is {_show(raw)}: write {unit.EXAMPLE}") from None
    if amount.value < 0:
        raise Refusal(400, f"{path} is {_show(raw)}: write 0 or more")
    if most is not None and amount.value > most.value:
        raise Refusal(400, f"{path} is {_show(raw)}: write at most {most}")
    return amount


def _show(value: Any) -> str:
    if value is None:
        return "missing"
    return plain(value if isinstance(value, str) else _brief.repr(value)) or "empty"


def plain(text: str, most: int = 80) -> str:
    """Return a text without quotes, of characters that can be printed, and not too much of it."""
    found = (each if each.isprintable() else "?" for each in text[: 2 * most] if each not in QUOTES)
    return "".join(found)[:most]
