"""A resource type, and the names of things: how to find an object on the server and how to decode it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from elasticjob.kube.json import TooDeep

T = TypeVar("T")
UNSAFE: Final = re.compile(r"[/%?#\\\x00-\x20\x7f-\x9f]|^\.\.?$")
"""Characters and words that names of objects never have, and that would lead a path to another object."""

Manifest = dict[str, Any]
"""A JSON object on its way out."""


class Key(NamedTuple):
    """The name of one object; `namespace` is "" for cluster-scoped ones."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True)
class Kind(Generic[T]):
    """One resource type. `model` is a msgspec.Struct, a Pydantic model, or `dict` for plain JSON objects."""

    group: str
    version: str
    name: str
    plural: str
    model: type[T]
    namespaced: bool = True

    @cached_property
    def api_version(self) -> str:
        """`v1` for the core group, `group/version` for all others."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def resource(self) -> str:
        """The name kubectl understands: `pods`, `elasticjobs.elastic.iml.github.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a collection (no name), an object, or a subresource.

        Raises ValueError where one object of a namespaced kind is named without its namespace, and for what
        is a name of no object, but would lead to another one.
        """
        if UNSAFE.search(name) or UNSAFE.search(namespace):
            raise ValueError(f"{self.name} {name!r} in {namespace!r}: no object is called so")
        if self.namespaced and name and not namespace:
            raise ValueError(f"{self.name} {name!r} is namespaced: say which namespace")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = ("namespaces", namespace) if self.namespaced and namespace else ()
        return "/".join((root, *scope, self.plural, *filter(None, (name, subresource))))

    def decode(self, raw: bytes) -> T:
        """The object in `raw`. Raises ValueError (msgspec's or Pydantic's) if it does not fit the model."""
        try:
            return cast(T, _decoder(cast(Any, self.model))(raw))
        except RecursionError as error:
            raise TooDeep from error

    def convert(self, manifest: Manifest) -> T:
        """The object of a decoded manifest; errors as in `decode`."""
        return self.decode(msgspec.json.encode(manifest))

    def untyped(self) -> Kind[Manifest]:
        """The same resource, decoded to plain JSON objects."""
        return cast(Kind[Manifest], replace(self, model=cast(Any, dict)))

    def __str__(self) -> str:
        return self.name


@lru_cache(maxsize=256)
def _decoder(model: type[Any]) -> Callable[[bytes], Any]:
    validate: Callable[[bytes], Any] | None = getattr(model, "model_validate_json", None)
    return validate or _struct_decoder(model)


def _struct_decoder(model: type[Any]) -> Callable[[bytes], Any]:
    decoder = msgspec.json.Decoder(model, strict=False)

    def decode(raw: bytes) -> Any:
        try:
            return decoder.decode(raw)
        except (
            msgspec.ValidationError
        ):  # the API writes null where it means absent (creationTimestamp, lists)
            return msgspec.convert(without_nulls(msgspec.json.decode(raw)), model, strict=False)

    return decode


def without_nulls(value: Any) -> Any:
    """`value` without the members of objects that are null, at any depth."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
