"""Reading an API server's audit log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

WRITES = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [create, update, patch, delete, deletecollection]}
- {level: None}
"""
ALL = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata}
"""


@dataclass(frozen=True)
class Audited:
    """One request: its times, user, verb, object, and status code."""

    began: datetime
    ended: datetime
    user: str
    agent: str
    source: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    uri: str
    message: str = ""
    """The message of a refusal."""


def read(lines: Iterable[str]) -> list[Audited]:
    """The requests of an audit log, in the order of their answers; a watch is there when it begins."""
    return [_audited(event) for line in lines if (event := json.loads(line))["stage"] != "RequestReceived"]


def _audited(event: dict[str, Any]) -> Audited:
    about = event.get("objectRef", {})
    return Audited(
        datetime.fromisoformat(event["requestReceivedTimestamp"]),
        datetime.fromisoformat(event["stageTimestamp"]),
        event["user"].get("username", ""),
        event.get("userAgent", ""),
        next(iter(event.get("sourceIPs", ())), ""),
        event["verb"],
        about.get("apiGroup", ""),
        about.get("resource", ""),
        about.get("subresource", ""),
        about.get("namespace", ""),
        about.get("name", ""),
        event.get("responseStatus", {}).get("code", 0),
        event["requestURI"],
        event.get("responseStatus", {}).get("message", ""),
    )
