"""Conversion between the versions of a custom kind: typed functions around one hub, asked by the API server.

    THINGS = Conversion(THING_V2, (Spoke(THING_V1, to_hub=upgrade, from_hub=downgrade),))

Every version is converted to the hub and from there to the one wanted, so n versions need n - 1 pairs.
Guarantees
- What a request asks for is converted as a whole or not at all; a failure names the object and the versions.
- Metadata stays as it was, but for labels and annotations, which functions may change.
The functions are pure and total: the API server asks for every object that is stored, at every list, and one
that fails makes the list fail. A round trip must lose nothing: what the other version cannot say belongs
into an annotation. Fields that a model does not name are lost; use `Kind.untyped()` to see all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from elasticjob.kube.kinds import Kind, Manifest
from elasticjob.kube.review import misfits

H = TypeVar("H")
S = TypeVar("S")

log = logging.getLogger(__name__)

CHANGEABLE = ("labels", "annotations")


@dataclass(frozen=True)
class Spoke(Generic[H, S]):
    """One version beside the hub, and the way to it and back."""

    kind: Kind[S]
    to_hub: Callable[[S], H]
    from_hub: Callable[[H], S]


@dataclass(frozen=True)
class Conversion(Generic[H]):
    """All versions of one kind. Raises ValueError where they are not versions of one kind."""

    hub: Kind[H]
    spokes: tuple[Spoke[H, Any], ...]

    def __post_init__(self) -> None:
        kinds = [self.hub, *(spoke.kind for spoke in self.spokes)]
        if len({(kind.group, kind.name, kind.plural) for kind in kinds}) > 1:
            raise ValueError(f"{', '.join(map(_named, kinds))} are not versions of one kind")
        if len({kind.version for kind in kinds}) < len(kinds):
            raise ValueError(f"{', '.join(map(_named, kinds))}: a version is named twice")


class CannotConvert(Exception):
    """One object of a request cannot be converted; the message says which, and why."""


class ConversionRequest(msgspec.Struct):
    """The request of a ConversionReview, objects left as bytes."""

    uid: str
    desired: str = msgspec.field(name="desiredAPIVersion")
    objects: list[msgspec.Raw] = []


class ConversionReview(msgspec.Struct):
    request: ConversionRequest


def converted(conversion: Conversion[Any], request: ConversionRequest) -> Manifest:
    """The ConversionReview to send back."""
    try:
        objects = [convert(conversion, bytes(raw), request.desired) for raw in request.objects]
    except CannotConvert as error:
        log.exception("a conversion failed", extra={"error": str(error)})
        return failed(request.uid, str(error))
    return _review({"uid": request.uid, "convertedObjects": objects, "result": {"status": "Success"}})


def failed(uid: str, why: str) -> Manifest:
    """The ConversionReview that says why nothing was converted."""
    return _review({"uid": uid, "result": {"status": "Failure", "message": why}})


def convert(conversion: Conversion[Any], raw: bytes, desired: str) -> Manifest:
    """The object in `raw` in the version `desired` (group/version). Raises CannotConvert."""
    given: Manifest = msgspec.json.decode(raw)
    version = given.get("apiVersion", "")
    if version == desired:
        return given
    what = _what(given, desired)
    source, target = _version(conversion, version, what), _version(conversion, desired, what)
    try:
        made = _manifest(_across(conversion, source, target, raw))
    except Exception as error:
        raise CannotConvert(f"{what}: {_why(error)}") from error
    metadata = _metadata(given.get("metadata") or {}, made.pop("metadata", None) or {}, what)
    return made | {"apiVersion": desired, "kind": target.name, "metadata": metadata}


def _across(conversion: Conversion[Any], source: Kind[Any], target: Kind[Any], raw: bytes) -> Any:
    spokes = {spoke.kind.version: spoke for spoke in conversion.spokes}
    found = source.decode(raw)
    if spoke := spokes.get(source.version):
        found = spoke.to_hub(found)
    if spoke := spokes.get(target.version):
        found = spoke.from_hub(found)
    return found


def _version(conversion: Conversion[Any], api_version: str, what: str) -> Kind[Any]:
    kinds = {kind.api_version: kind for kind in (conversion.hub, *(each.kind for each in conversion.spokes))}
    if api_version not in kinds:
        raise CannotConvert(
            f"{what}: {api_version!r} is not known here; known are {', '.join(sorted(kinds))}"
        )
    return kinds[api_version]


def _manifest(found: Any) -> Manifest:
    """A converted object as JSON; what its function did not set is left to the schema's defaults."""
    dump: Callable[..., Manifest] = getattr(found, "model_dump", msgspec.to_builtins)
    if dump is msgspec.to_builtins:
        return dump(found)
    return dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


def _metadata(before: Manifest, after: Manifest, what: str) -> Manifest:
    """The metadata that was, with the labels and annotations that are; a function may leave out all of it."""
    if not after.get("name"):
        return before
    for name in ("name", "namespace", "uid"):
        if (after.get(name) or "") != (before.get(name) or ""):
            raise CannotConvert(f"{what}: metadata.{name} was changed; only labels and annotations may be")
    kept = {name: value for name, value in before.items() if name not in CHANGEABLE}
    return kept | {name: after[name] for name in CHANGEABLE if after.get(name)}


def _what(given: Manifest, desired: str) -> str:
    metadata = given.get("metadata") or {}
    name = "/".join(filter(None, (metadata.get("namespace"), metadata.get("name")))) or "without a name"
    return f"{given.get('kind')} {name} from {given.get('apiVersion')} to {desired}"


def _why(error: Exception) -> str:
    if isinstance(error, ValueError) and (found := misfits(error)):
        return "; ".join(str(problem) if problem.path else problem.message for problem in found)
    return f"{type(error).__name__}: {error}"


def _named(kind: Kind[Any]) -> str:
    return f"{kind.name} {kind.api_version}"


def _review(response: Manifest) -> Manifest:
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}


Conversions = Sequence[Conversion[Any]]
