"""The patches of mutating webhooks: missing labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticjob.kube.webhook.review import JsonPatchOperation, Review


def missing_labels(review: Review[Any], wanted: Mapping[str, str]) -> list[JsonPatchOperation]:
    """Return the patch that adds the labels that the new object lacks, and changes no other."""
    present = (review.raw.get("metadata") or {}).get("labels")
    if not present:
        return [{"op": "add", "path": "/metadata/labels", "value": dict(wanted)}] if wanted else []
    return [
        {"op": "add", "path": f"/metadata/labels/{_escape(name)}", "value": value}
        for name, value in wanted.items()
        if name not in present
    ]


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
