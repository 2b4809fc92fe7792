"""Generate api/core/models.py: Pydantic models of PodTemplateSpec and its references, from
api/core/openapi.json.

The published types fit Go but not a faithful model, so they are corrected before generation:
- IntOrString and Quantity are strings there, but manifests contain `port: 8080` and `cpu: 1`;
- FieldsV1 and RawExtension are empty objects there, and would lose their content;
- fields newer than the document are kept (`extra="allow"`), or a read followed by a write would erase them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from elasticjob.api.core import POD_TEMPLATE_SPEC, definitions
from hack.generate.core.openapi import REFERENCE, Schema, closure

ROOTS = (POD_TEMPLATE_SPEC, "io.k8s.apimachinery.pkg.apis.meta.v1.Condition")
CORRECTED: dict[str, Schema] = {
    "IntOrString": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    "Quantity": {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]},
    "FieldsV1": {"type": "object", "additionalProperties": True},
    "RawExtension": {"type": "object", "additionalProperties": True},
    "Time": {"type": "string"},
    "MicroTime": {"type": "string"},
}
HEADER = '"""Pydantic models of PodTemplateSpec and its parts, made by `make generate`; do not edit."""'
OPTIONS = (
    "--input-file-type=jsonschema",
    "--output-model-type=pydantic_v2.BaseModel",
    "--target-python-version=3.11",
    "--snake-case-field",
    "--allow-population-by-field-name",
    "--use-annotated",
    "--use-standard-collections",
    "--use-union-operator",
    "--extra-fields=allow",
    "--collapse-root-models",
    "--disable-timestamp",
    "--formatters=builtin",
)


def core_models() -> str:
    """Return the text of models.py."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "schema.json"), Path(folder, "models.py")
        source.write_text(json.dumps(schema()))
        command = [
            sys.executable,
            "-m",
            "datamodel_code_generator",
            *OPTIONS,
            f"--custom-file-header={HEADER}",
        ]
        subprocess.run([*command, f"--input={source}", f"--output={target}"], check=True)
        return target.read_text()


def schema() -> Schema:
    """Return one JSON schema with ROOTS and all they refer to, corrected and with short names."""
    published = {name: CORRECTED.get(short(name), each) for name, each in definitions().items()}
    found = {short(name): converted(published[name]) for name in closure(published, iter(ROOTS))}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": dict(sorted(found.items()))}


def converted(node: Any) -> Any:
    """Return a schema with short references and only standard keys."""
    if isinstance(node, list):
        return [converted(value) for value in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return {"$ref": REFERENCE + short(node["$ref"].removeprefix(REFERENCE))}
    kept = {
        key: value for key, value in node.items() if not key.startswith("x-kubernetes-") and key != "format"
    }
    return {key: converted(value) for key, value in kept.items()}


def short(name: str) -> str:
    """Return the last word of a dotted name; the models' closure has no two definitions of one last word."""
    return name.rpartition(".")[2]
