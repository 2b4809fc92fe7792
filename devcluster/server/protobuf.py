"""The few protobuf bodies that kubectl insists on: `create namespace|configmap|secret|sa|token` and `auth`.

kubectl's typed clients send protobuf whatever the server would like. Answers may be JSON, so reading is
enough. A body is `k8s\\0` + Unknown{typeMeta, raw}; `MESSAGES` is what we need of the published .proto files.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from elasticjob.devcluster.server.errors import bad_request
from elasticjob.devcluster.server.store import Manifest

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

# message → field number → (name, kind); kinds: text, int, bool, base64, texts, text map, … or a message
Fields = dict[int, tuple[str, str]]
_META = (1, ("metadata", "ObjectMeta"))
MESSAGES: dict[str, Fields] = {
    "Unknown": {1: ("typeMeta", "TypeMeta"), 2: ("raw", "bytes")},
    "TypeMeta": {1: ("apiVersion", "text"), 2: ("kind", "text")},
    "ObjectMeta": {
        1: ("name", "text"),
        2: ("generateName", "text"),
        3: ("namespace", "text"),
        5: ("uid", "text"),
        6: ("resourceVersion", "text"),
        11: ("labels", "text map"),
        12: ("annotations", "text map"),
        14: ("finalizers", "texts"),
    },
    "Namespace": dict((_META,)),
    "ConfigMap": dict(
        (_META, (2, ("data", "text map")), (3, ("binaryData", "base64 map")), (4, ("immutable", "bool")))
    ),
    "Secret": dict(
        (
            _META,
            (2, ("data", "base64 map")),
            (3, ("type", "text")),
            (4, ("stringData", "text map")),
            (5, ("immutable", "bool")),
        )
    ),
    "ServiceAccount": dict((_META, (4, ("automountServiceAccountToken", "bool")))),
    "TokenRequest": dict((_META, (2, ("spec", "TokenRequestSpec")))),
    "TokenRequestSpec": {1: ("audiences", "texts"), 4: ("expirationSeconds", "int")},
    "SelfSubjectReview": dict((_META,)),
    "SelfSubjectAccessReview": dict((_META, (2, ("spec", "SelfSubjectAccessReviewSpec")))),
    "SelfSubjectAccessReviewSpec": {
        1: ("resourceAttributes", "ResourceAttributes"),
        2: ("nonResourceAttributes", "NonResourceAttributes"),
    },
    "ResourceAttributes": {
        number: (name, "text")
        for number, name in enumerate(
            ("namespace", "verb", "group", "version", "resource", "subresource", "name"), start=1
        )
    },
    "NonResourceAttributes": {1: ("path", "text"), 2: ("verb", "text")},
    "SelfSubjectRulesReview": dict((_META, (2, ("spec", "SelfSubjectRulesReviewSpec")))),
    "SelfSubjectRulesReviewSpec": {1: ("namespace", "text")},
}


def decode(body: bytes) -> Manifest:
    """The object in a protobuf body. 400 for a kind that is not in the table and for a broken body."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body of the request is no Kubernetes protobuf: it does not begin with k8s\\0")
    try:
        envelope = _message(body[len(_MAGIC) :], "Unknown")
        kind = (envelope.get("typeMeta") or {}).get("kind", "")
        if kind not in MESSAGES:
            raise bad_request(f"protobuf bodies of kind {kind!r} are not read here: send JSON")
        answer: Manifest = envelope["typeMeta"] | _message(envelope.get("raw", b""), kind)
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise bad_request("the body of the request is a broken protobuf message") from error
    return answer


def _message(raw: bytes, name: str) -> Manifest:
    answer: Manifest = {}
    for number, value in _pairs(raw):
        if number in MESSAGES[name]:
            field, kind = MESSAGES[name][number]
            _add(answer, field, kind, value)
    return answer


def _add(answer: Manifest, field: str, kind: str, value: Any) -> None:
    """Put one value into an object; empty scalars are how Go writes absent ones."""
    if kind == "texts":
        answer.setdefault(field, []).append(value.decode())
    elif kind.endswith(" map"):
        entry = dict(_pairs(value))
        scalar = _scalar(kind.removesuffix(" map"), entry.get(2, b""))
        answer.setdefault(field, {})[entry.get(1, b"").decode()] = scalar
    elif kind in MESSAGES:
        answer[field] = _message(value, kind)
    elif found := _scalar(kind, value):
        answer[field] = found


def _scalar(kind: str, value: Any) -> Any:
    if kind == "text":
        return value.decode()
    if kind == "base64":
        return base64.b64encode(value).decode()
    return bool(value) if kind == "bool" else value


def _pairs(raw: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value): an int for varints, bytes for everything with a length."""
    place = 0
    while place < len(raw):
        tag, place = _varint(raw, place)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, place = _varint(raw, place)
            yield number, value
        elif wire == 2:
            size, place = _varint(raw, place)
            if place + size > len(raw):
                raise IndexError(size)
            yield number, raw[place : place + size]
            place += size
        else:
            place += {1: 8, 5: 4}[wire]


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
