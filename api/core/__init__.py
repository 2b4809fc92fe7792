"""Built-in Kubernetes types: the published definitions, and models of the pod template made from them.

`hack/generate/core` writes `openapi.json` and `protobuf.json`, and `make generate` `models.py`; none is
edited by hand. Importing this package reads none: the definitions are loaded on first use, and the models
cost 0.2 s, so import them only where a typed template is really wanted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

POD_TEMPLATE_SPEC = "io.k8s.api.core.v1.PodTemplateSpec"


@cache
def document() -> Mapping[str, Any]:
    """Return the whole file: `version` of Kubernetes and `definitions`. Shared: do not modify."""
    text = Path(__file__).with_name("openapi.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]  # a decoded edge


@cache
def messages() -> Mapping[str, dict[str, tuple[str, str, str, bool]]]:
    """Return protobuf message → field number → (JSON name, type, "one" | "many" | "map", keeps empty values).

    A field without a JSON name is an embedded struct: its fields belong to the message that has it.
    """
    text = Path(__file__).with_name("protobuf.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]  # a decoded edge


def definitions() -> Mapping[str, dict[str, Any]]:
    """Return name → OpenAPI (Swagger 2) schema of every built-in type we touch. Shared: do not modify."""
    return document()["definitions"]  # type: ignore[no-any-return]  # a decoded edge
