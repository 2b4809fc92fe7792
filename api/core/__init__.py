"""Built-in Kubernetes types: the published definitions, and models of the pod template made from them.

`openapi.json` is written by hack/core_openapi.py and `models.py` by `make generate`; neither is edited by
hand. Importing this package reads neither: the definitions are loaded on first use, and the models cost
0.2 s, so import them only where a typed template is really wanted.
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


def definitions() -> Mapping[str, dict[str, Any]]:
    """Return name → OpenAPI (Swagger 2) schema of every built-in type we touch. Shared: do not modify."""
    return document()["definitions"]  # type: ignore[no-any-return]  # a decoded edge
