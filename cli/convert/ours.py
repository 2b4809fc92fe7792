"""Manifests of this operator's own kinds: the fields that their models have, at any depth. Pure."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Union, get_args, get_origin

from elasticjob.cli.convert import pods
from elasticjob.cli.convert.system import Fields
from elasticjob.kube.crd.model import Part
from elasticjob.kube.objects.kinds import Manifest

Template = Callable[[Fields], Manifest]
"""Reads the field template of a role."""


def fields_of(fields: Fields, model: type[Part], template: Template = pods.template) -> Manifest:
    """Return the fields that a model has, each kept; other fields stay unread."""
    return {name: _value(fields, name, kind, template) for name, kind in _members(model) if name in fields}


def _value(fields: Fields, name: str, kind: Any, template: Template) -> Any:
    value = fields.peek(name)
    if isinstance(value, dict) and value:
        if name == "template":
            return template(fields)
        if part := _part(kind):
            return fields_of(fields.below(name), part, template)
        if part := _part_of_map(kind):
            members = fields.below(name)
            return {key: _value(members, key, part, template) for key in members.value}
    if (
        isinstance(value, list)
        and all(isinstance(one, dict) for one in value)
        and (part := _part_of_list(kind))
    ):
        return [fields_of(each, part, template) for each in fields.each(name)]
    return fields.keep(name)


def _members(model: type[Part]) -> Iterator[tuple[str, Any]]:
    """Find the fields of a model by the names that manifests have."""
    for name, field in model.model_fields.items():
        yield field.alias or name, field.annotation


def _part(kind: Any) -> type[Part] | None:
    """Return the model of an object; None for other types."""
    for one in _alternatives(kind):
        if isinstance(one, type) and issubclass(one, Part):
            return one
    return None


def _part_of_map(kind: Any) -> type[Part] | None:
    found = (get_args(one)[1] for one in _alternatives(kind) if get_origin(one) in (dict, Mapping))
    return next((part for one in found if (part := _part(one))), None)


def _part_of_list(kind: Any) -> type[Part] | None:
    found = (get_args(one)[0] for one in _alternatives(kind) if get_origin(one) is list)
    return next((part for one in found if (part := _part(one))), None)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the types of a union, without their annotations."""
    if hasattr(kind, "__metadata__"):
        return _alternatives(kind.__origin__)
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(one for each in get_args(kind) for one in _alternatives(each))
    return (kind,)
