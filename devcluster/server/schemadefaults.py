"""Defaults that a definition's schema may not have: of another type, out of bounds, with unknown fields."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import wrong
from elasticjob.devcluster.server.pruning import prune
from elasticjob.devcluster.server.schemas import Schema
from elasticjob.devcluster.server.validation import validate


def default_problems(schema: Schema, path: str) -> Iterator[Cause]:
    """What is wrong with the defaults of a structural schema, from the root down.

    Maps are left out: what is in additionalProperties is never defaulted.
    """
    if schema.get("default") is not None:
        yield from _problems(schema["default"], schema, f"{path}.default")
    if isinstance(schema.get("items"), dict):
        yield from default_problems(schema["items"], f"{path}.items")
    for name, child in (schema.get("properties") or {}).items():
        yield from default_problems(child, f"{path}.properties[{name}]")


def _problems(default: Any, schema: Schema, path: str) -> Iterator[Cause]:
    if prune(deepcopy(default), schema):
        yield wrong(path, default, "must not have unknown fields")
    for cause in validate(default, schema):
        where = f"{path}.{cause.field}" if cause.field else path
        yield Cause(where, cause.message, cause.reason)
