"""Protobuf bodies of built-in kinds, which kubectl's and Go's typed clients send. Answers are JSON.

A body is `k8s\\0` + Unknown{typeMeta, raw}; the layout of the messages is in api/core/protobuf.json.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from elasticjob.api import core
from elasticjob.devcluster.server.model.errors import bad_request
from elasticjob.devcluster.server.model.store import Manifest

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


def decode(body: bytes) -> Manifest:
    """The object in a protobuf body. 400 for a kind that is not served and for a broken body."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body of the request is no Kubernetes protobuf: it does not begin with k8s\\0")
    try:
        envelope = dict(_pairs(body[len(_MAGIC) :]))
        names = {number: value.decode() for number, value in _pairs(envelope.get(1, b""))}
        api_version, kind = names.get(1, ""), names.get(2, "")
        message = _message_of(api_version, kind)
        if message is None:
            raise bad_request(f"protobuf bodies of kind {kind!r} of {api_version} are not read: send JSON")
        return {"apiVersion": api_version, "kind": kind} | _message(envelope.get(2, b""), message)
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, struct.error) as error:
        raise bad_request("the body of the request is a broken protobuf message") from error


def _message_of(api_version: str, kind: str) -> str | None:
    group, _, version = api_version.rpartition("/")
    names = (f"{group.partition('.')[0] or 'core'}.{version}.{kind}", f"meta.v1.{kind}")
    return next((name for name in names if name in core.messages()), None)


def _message(raw: bytes, name: str) -> Manifest:
    fields, answer = core.messages()[name], dict[str, Any]()
    for number, value in _pairs(raw):
        if str(number) in fields:
            _add(answer, *fields[str(number)], value)
    return answer


def _add(answer: Manifest, field: str, kind: str, count: str, keeps_empty: bool, value: Any) -> None:
    if count == "map":
        entry = dict(_pairs(value))
        answer.setdefault(field, {})[entry.get(1, b"").decode()] = _value(kind, entry.get(2, b""))
        return
    found = _value(kind, value)
    if count == "many":
        answer.setdefault(field, []).append(found)
    elif not field:
        answer.update(found)
    elif found is not None and (found or keeps_empty or isinstance(found, dict)):
        answer[field] = found


def _value(kind: str, value: Any) -> Any:
    if read := _SPECIAL.get(kind):
        return read(value)
    return _message(value, kind)


def _time(raw: bytes) -> str | None:
    """`2026-01-02T03:04:05Z`; None for Go's zero time, an empty message."""
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if (moment := _moment(raw)) else None


def _micro_time(raw: bytes) -> str | None:
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}" if (moment := _moment(raw)) else None


def _moment(raw: bytes) -> datetime | None:
    parts = dict(_pairs(raw))
    since = timedelta(seconds=_sign(parts.get(1, 0)), microseconds=parts.get(2, 0) // 1000)
    return datetime.fromtimestamp(0, UTC) + since if raw else None


def _int_or_string(raw: bytes) -> int | str:
    parts = dict(_pairs(raw))
    text: bytes = parts.get(3, b"")
    return text.decode() if parts.get(1) else _sign(parts.get(2, 0))


def _quantity(raw: bytes) -> str:
    text: bytes = dict(_pairs(raw)).get(1, b"")
    return text.decode() or "0"


def _json(raw: bytes) -> Any:
    """RawExtension, FieldsV1 and JSON hold the bytes of a JSON value."""
    return json.loads(dict(_pairs(raw)).get(1) or b"null")


def _texts(raw: bytes) -> list[str]:
    return [value.decode() for _, value in _pairs(raw)]


def _schema_or_bool(raw: bytes) -> Any:
    parts = dict(_pairs(raw))
    return _message(parts[2], _SCHEMA) if 2 in parts else bool(parts.get(1))


def _schema_or_list(raw: bytes) -> Any:
    found = [(number, _message(value, _SCHEMA)) for number, value in _pairs(raw)]
    return found[0][1] if found and found[0][0] == 1 else [schema for _, schema in found]


def _schema_or_texts(raw: bytes) -> Any:
    parts = dict(_pairs(raw))
    return _message(parts[1], _SCHEMA) if 1 in parts else _texts(raw)


def _sign(value: int) -> int:
    """Negative numbers are written as 64 bits."""
    return value - (1 << 64) if value >> 63 else value


_SCHEMA = "apiextensions.v1.JSONSchemaProps"
_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "string": bytes.decode,
    "bytes": lambda value: base64.b64encode(value).decode(),
    "bool": bool,
    "int32": lambda value: _sign(value or 0),
    "int64": lambda value: _sign(value or 0),
    "double": lambda value: struct.unpack("<d", value)[0],
    "meta.v1.Time": _time,
    "meta.v1.MicroTime": _micro_time,
    "api.resource.Quantity": _quantity,
    "util.intstr.IntOrString": _int_or_string,
    "meta.v1.FieldsV1": _json,
    "pkg.runtime.RawExtension": _json,
    "apiextensions.v1.JSON": _json,
    "meta.v1.Verbs": _texts,
    "authentication.v1.ExtraValue": _texts,
    "authorization.v1.ExtraValue": _texts,
    f"{_SCHEMA}OrBool": _schema_or_bool,
    f"{_SCHEMA}OrArray": _schema_or_list,
    f"{_SCHEMA}OrStringArray": _schema_or_texts,
}


def _pairs(raw: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value): an int for varints, bytes for everything else."""
    place = 0
    while place < len(raw):
        tag, place = _varint(raw, place)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, place = _varint(raw, place)
            yield number, value
            continue
        size, place = _varint(raw, place) if wire == 2 else ({1: 8, 5: 4}[wire], place)
        if place + size > len(raw):
            raise IndexError(size)
        yield number, raw[place : place + size]
        place += size


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
