"""The values of the Helm chart: values.yaml, and the schema by which Helm refuses others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from elasticjob import __version__

CONFIG: Final = Path(__file__).parent.parent / "config"
HEADER: Final = "# Made by `make generate` from config and hack/chart.py; do not edit.\n"
USER: Final = 65532

OBJECT: Final[dict[str, Any]] = {"type": "object"}
OBJECTS: Final[dict[str, Any]] = {"type": "array", "items": OBJECT}
TEXTS: Final[dict[str, Any]] = {"type": "object", "additionalProperties": {"type": "string"}}
SECRETS: Final[dict[str, Any]] = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 1}},
    },
}
RESOURCES: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"requests": OBJECT, "limits": OBJECT, "claims": OBJECTS},
}
WHERE: Final[Mapping[str, Any]] = {
    "nodeSelector": TEXTS,
    "tolerations": OBJECTS,
    "affinity": OBJECT,
    "priorityClassName": {"type": "string"},
    "podSecurityContext": OBJECT,
    "containerSecurityContext": OBJECT,
}
"""Where pods run, and as whom: of the three programs, and of masters."""
PLACED: Final[Mapping[str, Any]] = {"imagePullSecrets": SECRETS, **WHERE}
OF_A_POD: Final[Mapping[str, Any]] = {
    **WHERE,
    "podLabels": TEXTS,
    "podAnnotations": TEXTS,
    "serviceAccount": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"annotations": TEXTS},
    },
    "extraEnv": OBJECTS,
}
"""What each of the three programs has beside its own values."""
EMPTY: Final[Mapping[str, Any]] = {"object": {}, "array": [], "string": ""}


ABOUT: Final = {
    "nodeSelector": "Where the operator's pods run.",
    "podSecurityContext": (
        "Fields of the securityContexts of the operator's pods and their container, added to ours or in\n"
        "their place; null takes one of ours away."
    ),
    "podLabels": "More labels and annotations of the operator's pods, and annotations of its ServiceAccount.",
    "extraEnv": "More variables of the operator: ELASTICJOB_OPERATOR_* are in controllers/settings.py.",
}


def default_of(name: str) -> Any:
    """Return the empty default of a value of pods."""
    if name == "serviceAccount":
        return {"annotations": {}}
    return deepcopy(EMPTY[{**PLACED, **OF_A_POD}[name]["type"]])  # or YAML would have one refer to another


@dataclass(frozen=True)
class Value:
    """One entry of values.yaml, and its part of values.schema.json."""

    about: str
    default: Any
    schema: Mapping[str, Any] = field(default_factory=dict)


def values() -> Mapping[str, Value]:
    """Return the chart's values; defaults that `config/` has are read there."""
    spec, container = deployed("operator")
    image = {
        "repository": container["image"],
        "tag": "",
        "digest": "",
        "pullPolicy": container["imagePullPolicy"],
    }
    text, flag, count = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 1}
    parts = {
        "repository": text | {"minLength": 1},
        "tag": text,
        "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    }
    return {
        "image": Value(
            "The image of the operator and di-server. No tag: that of the chart's version. A digest wins.",
            image,
            members(parts),
        ),
        "trainerImage": Value(
            f"The image of masters whose job names none; empty means elasticjob/trainer:{__version__}.",
            "",
            text,
        ),
        "imagePullSecrets": Value(
            "Secrets of this namespace, as in - name: registry, with which the images above and Brain's are\n"
            "pulled. Those of masters are in the jobs' namespaces: masters.imagePullSecrets.",
            [],
            SECRETS,
        ),
        "userId": Value(
            "The user and group of all pods of this release, and of masters whose job names none. 0: the\n"
            "cluster chooses one that is not root, as OpenShift's restricted-v2 does.",
            USER,
            {"type": "integer", "minimum": 0},
        ),
        "masters": Value(
            "What pods of masters have whose job says nothing else: imagePullSecrets are names in the job's\n"
            "namespace. Fields of the securityContexts replace ours, and null takes one of ours away.",
            {name: default_of(name) for name in PLACED},
            members(PLACED),
        ),
        **{name: Value(ABOUT.get(name, ""), default_of(name), each) for name, each in OF_A_POD.items()},
        "nameOverride": Value(
            "The label app.kubernetes.io/name of all objects, if not elasticjob.", "", text
        ),
        "fullnameOverride": Value(
            "What the names of all objects begin with, in place of elasticjob.",
            "",
            text | {"maxLength": 40, "pattern": "^([a-z]([-a-z0-9]*[a-z0-9])?)?$"},
        ),
        "replicas": Value(
            "Operators that serve webhooks; one of them at a time reconciles.",
            spec["replicas"],
            count,
        ),
        "resources": Value("Requests and limits of each operator.", container["resources"], RESOURCES),
        "watchNamespace": Value(
            "The only namespace whose jobs are run; empty means the whole cluster.",
            "",
            text | {"maxLength": 63},
        ),
        "scrapers": Value(
            "Whose pods may read the metrics of masters: a list of labels of namespaces, as in\n"
            "- kubernetes.io/metadata.name: monitoring. Brain's namespace is always added.",
            [],
            {"type": "array", "items": TEXTS | {"minProperties": 1}},
        ),
        "gangScheduler": Value(
            "The schedulerName of pods in gangs of scheduler-plugins, where that is a second scheduler.",
            "",
            text,
        ),
        "brain": Value(
            "Brain, which sizes jobs in cluster mode by the history of earlier ones (docs/brain.md).\n"
            "`secret` names a Secret with `key` and `reading-token`, and, where `postgresql` is true,\n"
            "`database` (a URL): several replicas need that. Otherwise SQLite is kept on a volume.\n"
            "`share` is fulfilment or goodput: the cluster is shared among jobs whose workers have a range.\n"
            "`source` is masters, none, or prometheus, whose URL is `prometheus`. SQLite's volume stays\n"
            "when the release is uninstalled. Its pods have the same values as the operator's.",
            brain_values(),
            members(
                {
                    "enabled": flag,
                    "image": members({name: parts[name] for name in ("repository", "tag", "digest")}),
                    "replicas": count,
                    "secret": text | {"minLength": 1},
                    "postgresql": flag,
                    "storage": members({"size": text | {"minLength": 1}, "className": text}),
                    "share": {"enum": ["none", "fulfilment", "goodput"]},
                    "source": {"enum": ["masters", "prometheus", "none"]},
                    "prometheus": text,
                    "resources": RESOURCES,
                    **OF_A_POD,
                }
            ),
        ),
        "diServer": Value(
            "di-server, which DIJobs of DI-engine need (docs/dijob.md). `secret` names a Secret with `key`,\n"
            "by which pods get tokens that are bound to their job; empty: whoever reaches it may call. Its\n"
            "pods have the same values as the operator's.",
            di_server_values(),
            members(
                {
                    "enabled": flag,
                    "replicas": count,
                    "secret": text,
                    "localPorts": flag,
                    "resources": RESOURCES,
                    **OF_A_POD,
                }
            ),
        ),
        "crds": Value(
            "Whether this release brings the CRDs, and the rights on jobs of the cluster's roles view, edit\n"
            "and admin. One release of a cluster does. The CRDs stay when it is uninstalled.",
            True,
            flag,
        ),
        "global": Value(
            "Values of a chart that contains this one: imageRegistry goes before repositories that name no\n"
            "registry, imagePullSecrets are added to those above.",
            {"imageRegistry": "", "imagePullSecrets": []},
            {"type": "object", "properties": {"imageRegistry": text, "imagePullSecrets": SECRETS}},
        ),
    }


def brain_values() -> Mapping[str, Any]:
    """Return the values of Brain; defaults that `config/` has are read there."""
    spec, container = deployed("brain")
    claim = yaml.safe_load((CONFIG / "brain" / "claim.yaml").read_text())["spec"]
    return {
        "enabled": False,
        "image": {"repository": container["image"], "tag": "", "digest": ""},
        "replicas": spec["replicas"],
        "secret": "elasticjob-brain",
        "postgresql": False,
        "storage": {"size": claim["resources"]["requests"]["storage"], "className": ""},
        "share": "none",
        "source": "masters",
        "prometheus": "",
        "resources": container["resources"],
        **{name: default_of(name) for name in OF_A_POD},
    }


def di_server_values() -> Mapping[str, Any]:
    """Return the values of di-server; defaults that `config/` has are read there."""
    spec, container = deployed("diengine")
    return {
        "enabled": False,
        "replicas": spec["replicas"],
        "secret": "",
        "localPorts": False,
        "resources": container["resources"],
        **{name: default_of(name) for name in OF_A_POD},
    }


def deployed(folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the spec of the Deployment in a folder of `config/`, and its only container."""
    spec = yaml.safe_load((CONFIG / folder / "deployment.yaml").read_text())["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    return spec, container


def values_text() -> str:
    """Return values.yaml."""
    return HEADER + "".join(described(name, value) for name, value in values().items())


def described(name: str, value: Value) -> str:
    """Return one entry of values.yaml."""
    about = "".join(f"# {line}\n" for line in value.about.splitlines())
    return ("\n" if about else "") + about + yaml.safe_dump({name: value.default}, sort_keys=False)


def schema_text() -> str:
    """Return values.schema.json, by which Helm refuses values that are not there."""
    properties = {
        name: ({"description": value.about.replace("\n", " ")} if value.about else {}) | dict(value.schema)
        for name, value in values().items()
    }
    draft = {"$schema": "https://json-schema.org/draft-07/schema#"}
    return json.dumps(draft | members(properties), indent=2) + "\n"


def members(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these properties and no others."""
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}
