"""Admission webhooks: what may be written, decided by pure functions, asked by the API server.

    def defaults(review: Review[Thing]) -> Sequence[JsonPatchOperation]: ...
    def check(review: Review[Thing]) -> Sequence[Problem]: ...
    def advise(review: Review[Thing]) -> Sequence[str]: ...
    THING_WEBHOOK = Webhook(THING, mutate=defaults, validate=check, warn=advise)

server.py serves them. A handler that raises denies the request with a sentence: nothing is let through
unchecked, nothing crashes. Plain functions run in a thread, for they may take long; they share nothing with
reconcilers. Coroutine functions run in the event loop, and may ask the cluster.
"""

from __future__ import annotations

import base64
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.problem import Problem

T = TypeVar("T")
R = TypeVar("R")

JsonPatchOperation = dict[str, Any]

log = logging.getLogger(__name__)


class Refusal(Exception):
    """Raised by a mutating handler for what the server's own checks, which come next, would say less well."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True)
class Review(Generic[T]):
    """One write under review. `new` is None for DELETE, `old` for CREATE.

    `raw` is the new object as it was sent (the old one for DELETE), for what the model does not know.
    """

    operation: str
    kind: Kind[T]
    old: T | None
    new: T | None
    raw: Manifest
    user: str = ""
    namespace: str = ""
    name: str = ""
    dry_run: bool = False


class Reader(Protocol):
    """Reads that a validating handler may make; a Client provides them."""

    async def find(self, kind: Kind[R], name: str, namespace: str | None = None) -> R | None:
        """The object as the server has it now, or None."""


Mutate = Callable[[Review[T]], Sequence[JsonPatchOperation]]
Validate = (
    Callable[[Review[T]], Sequence[Problem]] | Callable[[Review[T], Reader], Awaitable[Sequence[Problem]]]
)


Warn = Callable[[Review[T]], Sequence[str]]
"""Sentences for the writer's terminal, about fields that are allowed but deprecated."""


@dataclass(frozen=True)
class Terms:
    """On which terms the API server asks. A webhook that must not be skipped keeps the defaults.

    What a webhook of kinds of our own refuses cannot lock out the operator itself, so nothing is left out by
    default; one that concerns pods or other parts of the operator must leave out its namespace.
    """

    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    """The failure policy: refuse or admit a write whose review gets no answer."""
    timeout: int = 10
    """Seconds (1 to 30) that the API server waits, and after which a handler is cancelled."""
    namespaces: Mapping[str, Any] = field(default_factory=dict)
    """A label selector on the object's namespace."""
    objects: Mapping[str, Any] = field(default_factory=dict)
    """A label selector on the object."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """CEL expressions by name; asked only where all hold. `request`, `object` and `oldObject` are known."""
    side_effects: bool = False
    """Whether a handler writes to the cluster; it must not where `dry_run` is set."""
    reinvocation: Literal["Never", "IfNeeded"] = "Never"
    """Whether a mutating handler is asked again when a later webhook changed the object."""

    def __post_init__(self) -> None:
        if not 1 <= self.timeout <= 30:
            raise ValueError(f"timeout is {self.timeout}: the API server takes 1 to 30 seconds")


@dataclass(frozen=True)
class Webhook(Generic[T]):
    """How writes to one kind are changed, checked and commented."""

    kind: Kind[T]
    mutate: Mutate[T] | None = None
    validate: Validate[T] | None = None
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    warn: Warn[T] | None = None
    terms: Terms = Terms()


class UserInfo(msgspec.Struct):
    username: str = ""


class Request(msgspec.Struct, rename="camel"):
    """The request of an AdmissionReview, objects left as bytes."""

    uid: str
    operation: str
    name: str = ""
    namespace: str = ""
    dry_run: bool | None = None
    user_info: UserInfo = msgspec.field(default_factory=UserInfo)
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class AdmissionReview(msgspec.Struct):
    request: Request


@dataclass(frozen=True)
class Answer:
    """Whether the write may happen, with which changes, and why not."""

    allowed: bool
    patch: Sequence[JsonPatchOperation] = ()
    problems: Sequence[Problem] = ()
    code: int = 200
    warnings: Sequence[str] = ()
    about: tuple[str, str, str] = ("", "", "")
    """Group, kind and name of the object; kubectl says "The ElasticJob "digits" is invalid" by them."""

    def manifest(self, uid: str) -> Manifest:
        """The AdmissionReview to send back."""
        response: Manifest = {"uid": uid, "allowed": self.allowed}
        if self.patch:
            encoded = base64.b64encode(msgspec.json.encode(list(self.patch))).decode()
            response |= {"patchType": "JSONPatch", "patch": encoded}
        if self.warnings:
            response["warnings"] = _shorten(self.warnings)
        if not self.allowed:
            response["status"] = self._status()
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}

    def _status(self) -> Manifest:
        shown = [
            Problem(_cut(each.path, LONGEST_PROBLEM), _cut(each.message, LONGEST_PROBLEM))
            for each in self.problems[:MOST]
        ]
        causes = [
            {"reason": "FieldValueInvalid", "field": problem.path, "message": problem.message}
            for problem in shown
        ]
        said = [str(problem) if problem.path else problem.message for problem in shown]
        if left := len(self.problems) - len(shown):
            said.append(f"and {left} more")
        return {
            "status": "Failure",
            "code": self.code,
            "reason": REASONS.get(self.code, "InternalError"),
            "message": "; ".join(said),
            "details": dict(zip(("group", "kind", "name"), self.about, strict=True)) | {"causes": causes},
        }


ALLOWED = Answer(True)
MOST, LONGEST_PROBLEM = 32, 1024
"""Problems that a refusal names, and characters of each: 30,000 would make a response of 20 MB."""
REASONS = {422: "Invalid", 504: "Timeout"}
LONGEST_WARNING, ALL_WARNINGS = 256, 4096
"""Characters: what an API server passes on of one warning, and of all of an answer."""


class Run(Protocol):
    """Where plain functions are called: in place, or in a thread."""

    async def __call__(self, function: Callable[[], R], /) -> R: ...


async def in_place(function: Callable[[], R]) -> R:
    return function()


async def mutate(webhook: Webhook[Any], request: Request, run: Run = in_place) -> Answer:
    """The answer of the mutating handler.

    What does not fit the model passes: the schema or the validating handler names what is wrong.
    """

    def answer() -> Answer:
        try:
            review = review_of(webhook.kind, request)
        except ValueError:
            return ALLOWED
        return Answer(True, patch=webhook.mutate(review)) if webhook.mutate else ALLOWED

    try:
        return await run(answer)
    except Refusal as refusal:
        return _refused(webhook, request, refusal.problems)
    except Exception as error:
        return _broken(webhook, request, error)


async def validate(webhook: Webhook[Any], request: Request, reader: Reader, run: Run = in_place) -> Answer:
    """The answer of the validating handler, with the warnings of the warning one."""
    try:
        review = await run(lambda: review_of(webhook.kind, request))
    except ValueError as error:
        return _refused(webhook, request, misfits(error))
    try:
        problems = await _problems(webhook.validate, review, reader, run) if webhook.validate else ()
        warnings = await run(lambda: webhook.warn(review)) if webhook.warn else ()  # type: ignore[misc]
    except Exception as error:
        return _broken(webhook, request, error)
    answer = _refused(webhook, request, problems) if problems else ALLOWED
    return replace(answer, warnings=warnings)


def too_late(webhook: Webhook[Any], request: Request, seconds: float) -> Answer:
    """The answer when a handler took longer than the API server waits."""
    what = f"{webhook.kind.name} {request.namespace}/{request.name}"
    sentence = f"checking {what} took longer than {seconds:g} s and was given up: try again, or see the log"
    log.error("an admission handler is too slow", extra={"object": what, "seconds": seconds})
    return _refused(webhook, request, [Problem("", sentence)], code=504)


def review_of(kind: Kind[T], request: Request) -> Review[T]:
    """The request, decoded. Raises ValueError when the new object does not fit the model.

    An old object that does not fit (it was admitted by an older version) is given as None.
    """
    new, old = bytes(request.object), bytes(request.old_object)
    return Review(
        operation=request.operation,
        kind=kind,
        old=_old(kind, old),
        new=None if new == b"null" else kind.decode(new),
        raw=msgspec.json.decode(new if new != b"null" else old) or {},
        user=request.user_info.username,
        namespace=request.namespace,
        name=request.name,
        dry_run=bool(request.dry_run),
    )


def misfits(error: ValueError) -> list[Problem]:
    """The validation errors of an object, from Pydantic (a list) or msgspec (a sentence)."""
    errors: Callable[[], Sequence[Manifest]] | None = getattr(error, "errors", None)
    if errors is None:
        return [Problem("", str(error))]
    return [Problem(field_path(found["loc"]), str(found["msg"])) for found in errors()]


def field_path(location: Sequence[str | int]) -> str:
    """`("spec", "envs", 0, "name")` as `spec.envs[0].name`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


async def _problems(
    validate: Validate[Any], review: Review[Any], reader: Reader, run: Run
) -> Sequence[Problem]:
    if inspect.iscoroutinefunction(validate):
        found: Sequence[Problem] = await validate(review, reader)
        return found
    return await run(lambda: validate(review))  # type: ignore[call-arg,arg-type,return-value]  # the pure form


def _shorten(warnings: Sequence[str]) -> list[str]:
    """As many warnings as an API server passes on, each on one line."""
    found, left = [], ALL_WARNINGS
    for warning in warnings:
        line = _cut(" ".join(warning.split()), LONGEST_WARNING)
        left -= len(line)
        if left < 0:
            break
        found.append(line)
    return found


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _old(kind: Kind[T], raw: bytes) -> T | None:
    if raw == b"null":
        return None
    try:
        return kind.decode(raw)
    except ValueError:
        return None


def _broken(webhook: Webhook[Any], request: Request, error: Exception) -> Answer:
    what = f"{webhook.kind.name} {request.namespace}/{request.name}"
    log.error("an admission handler failed", extra={"object": what, "error": str(error)}, exc_info=error)
    sentence = f"checking {what} failed inside of the webhook ({type(error).__name__}: {error}): see its log"
    return _refused(webhook, request, [Problem("", sentence)], code=500)


def _refused(webhook: Webhook[Any], request: Request, problems: Sequence[Problem], code: int = 422) -> Answer:
    return Answer(
        False, problems=problems, code=code, about=(webhook.kind.group, webhook.kind.name, request.name)
    )
